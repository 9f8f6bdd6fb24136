//! What a tracked call costs, by mode: nanoseconds for one allocation or one free, in five interleaved rounds.
//!
//! ```text
//! cargo run --release -p terrace-track --example cost
//! RUSTFLAGS="-C force-frame-pointers=yes" cargo run --release -p terrace-track --example cost
//! ```
//! The second makes call stacks as deep as they are; without frame pointers they are cut short.

use std::hint::black_box;
use std::time::Duration;
use terrace_track::{Stamp, TrackMode, Tracker, tag};

/// Blocks that are live together: what a program of tensors has.
const LIVE: usize = 1000;

/// Allocations in a measurement: some tens of milliseconds in the dearest mode.
const PAIRS: usize = 1_000_000;

const ROUNDS: usize = 5;

/// Nanoseconds a call, where each pair frees the oldest block and allocates another.
fn measure(tracker: &Tracker, mode: TrackMode, bytes: u64) -> f64 {
    tracker.set_mode(mode);
    let mut live = [(0u64, Stamp::NONE); LIVE];
    let begun = thread_time();
    for at in 0..PAIRS {
        let (key, stamp) = &mut live[at % LIVE];
        tracker.freed(black_box(*stamp), *key, bytes);
        *key = black_box((at as u64 % (2 * LIVE as u64) + 1) << 12);
        *stamp = tracker.allocated(*key, black_box(bytes), 0);
    }
    let spent = (thread_time() - begun).as_nanos() as f64 / (2 * PAIRS) as f64;
    live.iter().for_each(|(key, stamp)| tracker.freed(*stamp, *key, bytes));
    spent
}

/// Processor time of this thread, so that other programs on the machine are left out as far as they can be.
#[cfg(target_os = "linux")]
fn thread_time() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The time since the first call.
#[cfg(not(target_os = "linux"))]
fn thread_time() -> Duration {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(std::time::Instant::now).elapsed()
}

fn main() {
    let tracker = Tracker::new("cost", &["memory"]);
    let _tag = tag("measured");
    let cases = TrackMode::ALL.into_iter().flat_map(|mode| [(mode, 1 << 10), (mode, 1 << 20)]);
    let cases: Vec<(TrackMode, u64)> = cases.collect();
    let mut spent = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut spent) {
            times.push(measure(&tracker, case.0, case.1));
        }
    }
    println!("{:<9} {:>9}  {:>7} ns a call, median of {ROUNDS} rounds (least, most)", "mode", "bytes", "");
    for ((mode, bytes), times) in cases.iter().zip(&mut spent) {
        times.sort_by(f64::total_cmp);
        let (least, most) = (times[0], times[ROUNDS - 1]);
        println!("{mode:<9} {bytes:>9}  {:>7.2} ({least:.2}, {most:.2})", times[ROUNDS / 2]);
    }
}
