//! What recording costs a device: nanoseconds and events a second, with one and two threads, and that none is lost.
//!
//! ```text
//! cargo run --release -p terrace --features device,recording,track --example record [FILE]
//! ```
//! Without a file, the recording goes to one that is removed at the end.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace::recording::{Reader, Recorder};
use terrace::{Device, DeviceError};
use terrace_tests::Random;

/// Allocations of a thread; as many frees follow.
const ALLOCATIONS: u64 = 2_000_000;
/// Live blocks of a thread, each freed when another takes its place.
const LIVE: usize = 64;

/// Allocates blocks of any size up to 50,000 bytes on a stream of its own, and frees them in any order.
fn work(device: &Device, seed: u64) -> Result<(), DeviceError> {
    let stream = device.stream()?;
    let mut random = Random::new(seed);
    let mut live: Vec<_> = (0..LIVE).map(|_| None).collect();
    for _ in 0..ALLOCATIONS {
        let (at, bytes) = (random.below(LIVE as u64) as usize, 1 + random.below(50_000));
        // The older block goes first.
        live[at] = None;
        live[at] = Some(device.allocate(&stream, bytes)?);
    }
    Ok(())
}

/// Seconds of so many threads at work.
fn measure(device: &Device, threads: u64) -> Result<f64, DeviceError> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|seed| scope.spawn(move || work(device, seed))).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn record(threads: u64, path: &Path) -> Result<(), Box<dyn Error>> {
    let device = Device::host();
    let events = (2 * ALLOCATIONS * threads) as f64;
    let off = measure(&device, threads)?;
    let recorder = Recorder::start(device.tracker(), path)?;
    let on = measure(&device, threads)?;
    let begun = Instant::now();
    let recorded = recorder.finish()?;
    let end = begun.elapsed().as_secs_f64();
    assert_eq!(recorded.events as f64, events, "an event was lost");
    let mut read = 0;
    for entry in Reader::open(path)? {
        entry?;
        read += 1;
    }
    assert_eq!(read, recorded.events, "an event cannot be read");
    let bytes = std::fs::metadata(path)?.len() as f64 / events;
    let (per_off, per_on, rate) = (off * 1e9 / events, on * 1e9 / events, events / (on + end) / 1e6);
    println!("{threads:>7} {per_off:>9.1} {per_on:>9.1} {rate:>19.2} {read:>10} {bytes:>6.2}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or_else(|| directory.path().join("run.terrace"), PathBuf::from);
    println!("threads  ns, off ns, recorded  10^6 events a second     events  bytes");
    [1, 2].into_iter().try_for_each(|threads| record(threads, &path))
}
