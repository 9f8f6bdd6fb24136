//! What tracking costs a device's cached allocation and free: nanoseconds a call, in five interleaved rounds.
//!
//! ```text
//! cargo run --release -p terrace-device --example tracked
//! cargo run --release -p terrace-device --features track --example tracked
//! ```
//! The first is without the feature: what a program pays that does not ask for it.

use std::hint::black_box;
use std::time::Instant;
use terrace_device::{Device, DeviceError};

const PAIRS: u32 = 1_000_000;
const ROUNDS: usize = 5;

/// Nanoseconds a call, of an allocation from the stream's cache and of its free.
fn measure(device: &Device, bytes: u64) -> Result<f64, DeviceError> {
    let stream = device.stream()?;
    drop(device.allocate(&stream, bytes)?);
    let begun = Instant::now();
    for _ in 0..PAIRS {
        black_box(device.allocate(&stream, black_box(bytes))?);
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(2 * PAIRS))
}

/// Sets the tracker's mode, of which there are four; with the feature only.
#[cfg(feature = "track")]
fn set(device: &Device, mode: usize) -> &'static str {
    let mode = terrace_device::track::TrackMode::ALL[mode];
    device.tracker().set_mode(mode);
    mode.name()
}

#[cfg(not(feature = "track"))]
fn set(_: &Device, _: usize) -> &'static str {
    "compiled out"
}

fn main() -> Result<(), DeviceError> {
    let device = Device::host();
    let modes = if cfg!(feature = "track") { 4 } else { 1 };
    let mut spent = vec![Vec::new(); modes];
    for _ in 0..ROUNDS {
        for (mode, times) in spent.iter_mut().enumerate() {
            set(&device, mode);
            times.push(measure(&device, 4096)?);
        }
    }
    println!("mode          ns a call, median of {ROUNDS} rounds (least, most)");
    for (mode, times) in spent.iter_mut().enumerate() {
        times.sort_by(f64::total_cmp);
        let (name, least, most) = (set(&device, mode), times[0], times[ROUNDS - 1]);
        println!("{name:<13} {:>8.2} ({least:.2}, {most:.2})", times[ROUNDS / 2]);
    }
    Ok(())
}
