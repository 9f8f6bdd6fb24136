//! What tracking costs a manager's allocation and free: nanoseconds a call, in five interleaved rounds.
//!
//! ```text
//! cargo run --release -p terrace-tiers --example tracked
//! cargo run --release -p terrace-tiers --features track --example tracked
//! ```
//! The first is without the feature: what a program pays that does not ask for it.

use std::hint::black_box;
use std::time::Instant;
use terrace_tiers::{Error, Manager};

const PAIRS: u32 = 100_000;
const ROUNDS: usize = 5;

/// Nanoseconds a call, of an allocation that is never written and of its free.
fn measure(manager: &Manager) -> Result<f64, Error> {
    let begun = Instant::now();
    for _ in 0..PAIRS {
        black_box(manager.allocate(black_box(4096))?);
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(2 * PAIRS))
}

/// Sets the tracker's mode, of which there are four; with the feature only.
#[cfg(feature = "track")]
fn set(manager: &Manager, mode: usize) -> &'static str {
    let mode = terrace_tiers::manager::track::TrackMode::ALL[mode];
    manager.tracker().set_mode(mode);
    mode.name()
}

#[cfg(not(feature = "track"))]
fn set(_: &Manager, _: usize) -> &'static str {
    "compiled out"
}

fn main() -> Result<(), Error> {
    let manager = Manager::builder().memory(64 << 20).build()?;
    let modes = if cfg!(feature = "track") { 4 } else { 1 };
    // One mode by its number, for a profiler.
    if let Some(mode) = std::env::args().nth(1).and_then(|mode| mode.parse().ok()).filter(|mode| *mode < modes) {
        println!("{} {:.2}", set(&manager, mode), measure(&manager)?);
        return Ok(());
    }
    let mut spent = vec![Vec::new(); modes];
    for _ in 0..ROUNDS {
        for (mode, times) in spent.iter_mut().enumerate() {
            set(&manager, mode);
            times.push(measure(&manager)?);
        }
    }
    println!("mode          ns a call, median of {ROUNDS} rounds (least, most)");
    for (mode, times) in spent.iter_mut().enumerate() {
        times.sort_by(f64::total_cmp);
        let (name, least, most) = (set(&manager, mode), times[0], times[ROUNDS - 1]);
        println!("{name:<13} {:>8.2} ({least:.2}, {most:.2})", times[ROUNDS / 2]);
    }
    Ok(())
}
