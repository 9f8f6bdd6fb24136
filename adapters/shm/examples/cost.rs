//! What a lease, an open and a creation cost: `cargo run --release -p terrace-shm --example cost`.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> Result<(), terrace_shm::ShmError> {
    use std::time::Instant;
    use terrace_shm::{SharedBuffer, ShmError, Way};

    const ROUNDS: u32 = 20_000;
    let time = |what: &str, round: &dyn Fn() -> Result<(), ShmError>| -> Result<(), ShmError> {
        let began = Instant::now();
        (0..ROUNDS).try_for_each(|_| round())?;
        println!("{what}: {:.2} us", began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS));
        Ok(())
    };
    for way in [Way::Memfd, Way::File] {
        let (options, name) = (SharedBuffer::options().way(way), format!("cost-{}", std::process::id()));
        let buffer = options.create(&name, 4096)?;
        time(&format!("{way:?}, read lease of 4 KiB"), &|| buffer.read::<u64>(..).map(drop))?;
        time(&format!("{way:?}, write lease of 4 KiB"), &|| buffer.write::<u64>(..)?.commit())?;
        time(&format!("{way:?}, open"), &|| options.open(&name).map(drop))?;
        drop(buffer);
        time(&format!("{way:?}, create 4 KiB"), &|| options.create(&name, 4096).map(drop))?;
    }
    Ok(())
}
