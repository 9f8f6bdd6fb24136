//! The manager on file systems that fail: full, broken underneath, not writable, gone, in use.
//!
//! Checked each time: impossible calls return typed errors; durable bytes are there and right; no wrong bytes, no
//! signal.
#![cfg(target_os = "linux")]

mod broken;
mod full;
mod group;
mod injected;
mod mount;
mod places;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use terrace_tiers::manager::ManagerBuilder;
use terrace_tiers::{Buffer, Error, Manager};

const MIB: u64 = 1 << 20;

/// Passed to a process that runs one test again: the directory it works on.
const DIRECTORY: &str = "TERRACE_FAULTS_DIRECTORY";

/// Bytes of a buffer here: five chunks, the last one shorter.
const BYTES: u64 = 300_000;

fn builder(path: &Path, cap: u64) -> ManagerBuilder {
    Manager::builder().memory(MIB).chunk(64 << 10).directory_of(path, cap)
}

fn manager(path: &Path, cap: u64) -> Manager {
    builder(path, cap).build().expect("it is built")
}

fn name(which: usize) -> String {
    format!("buffer {which}")
}

/// Byte patterns that identify the buffer and the offset.
fn pattern(seed: usize, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ (seed as u8).wrapping_mul(77)).collect()
}

/// A named buffer with its pattern, durable.
fn keep(manager: &Manager, which: usize) -> Result<Buffer, Error> {
    let buffer = match manager.open(&name(which)) {
        Ok(buffer) => buffer,
        Err(_) => manager.allocate_named(&name(which), BYTES)?,
    };
    buffer.write(0, &pattern(which, BYTES))?;
    manager.sync(&buffer)?;
    Ok(buffer)
}

/// Whether a buffer has its pattern. Wrong bytes are none of its outcomes.
fn look(buffer: &Buffer, which: usize) -> Result<(), Error> {
    let mut read = vec![0; BYTES as usize];
    buffer.read(0, &mut read)?;
    assert!(read == pattern(which, BYTES), "buffer {which} has wrong bytes");
    Ok(())
}

fn holds(manager: &Manager, which: usize) {
    look(&manager.open(&name(which)).expect("it is there"), which).expect("it can be read");
}

/// Tries until it succeeds: a tier that failed is suspended for some seconds.
fn in_the_end<T, E: std::fmt::Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) if begun.elapsed() > Duration::from_secs(90) => panic!("still: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// This test once more, in a process of its own, with the directory to work on.
fn again(test: &str, wrapped: &[&str], directory: &Path) -> Command {
    let this = std::env::current_exe().expect("this test");
    let mut command = match wrapped.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(this);
            command
        }
        None => Command::new(this),
    };
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(DIRECTORY, directory);
    command
}

/// In such a process: the directory.
fn given() -> Option<std::path::PathBuf> {
    std::env::var_os(DIRECTORY).map(Into::into)
}

/// Runs a process to its end, which is a good one.
fn passes(mut command: Command) {
    let output = command.output().expect("a process");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&text));
}
