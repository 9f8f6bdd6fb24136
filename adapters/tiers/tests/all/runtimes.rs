//! The same program under tokio, smol and a bare `block_on`: futures need no particular runtime.
#![cfg(target_os = "linux")]

use std::path::Path;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

/// Buffers that do not fit in memory together, each used by a future of its own.
async fn program(path: &Path) -> Result<(), Error> {
    let manager = Manager::builder().memory(2 * MIB).directory_of(path, 32 * MIB).build_async()?.await?;
    let one = async |number: u8| -> Result<Buffer, Error> {
        let options = BufferOptions { name: Some(format!("buffer {number}")), wait: true, ..BufferOptions::default() };
        let buffer = manager.allocate_async(MIB, options).await?;
        buffer.write_async(1000, vec![number; 5000]).await?;
        manager.sync_async(&buffer).await?;
        assert_eq!(buffer.read_async(5999, 2).await?, [number, 0]);
        Ok(buffer)
    };
    let buffers = futures_util::future::try_join_all((1..=8).map(one)).await?;
    // One after the other: two fit into memory, and a lease does not wait for others.
    for (number, buffer) in (1..).zip(&buffers) {
        assert_eq!(buffer.lease_best_async().await?[1000], number);
    }
    assert_eq!(manager.list().len(), 8);
    drop((buffers, manager));
    let manager = Manager::builder().memory(2 * MIB).directory_of(path, 32 * MIB).build_async()?.await?;
    for number in 1..=8 {
        let buffer = manager.open(&format!("buffer {number}"))?;
        assert_eq!(buffer.read_async(999, 2).await?, [0, number]);
    }
    Ok(())
}

fn in_a_directory(run: impl FnOnce(&Path) -> Result<(), Error>) {
    let directory = tempfile::tempdir().expect("a directory");
    run(directory.path()).expect("it ends well");
}

#[test]
fn under_tokio_on_one_thread_and_on_several() {
    let one = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    in_a_directory(|path| one.block_on(program(path)));
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_path_buf();
    // Spawned: the futures may go from thread to thread.
    let spawned = several.spawn(async move { program(&path).await });
    several.block_on(spawned).expect("no panic").expect("it ends well");
}

#[test]
fn under_smol() {
    in_a_directory(|path| smol::block_on(program(path)));
}

#[test]
fn under_a_bare_block_on() {
    in_a_directory(|path| futures_lite::future::block_on(program(path)));
}
