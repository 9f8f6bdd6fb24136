//! What the tracker costs a call of the allocator, by mode: nanoseconds, in five interleaved rounds.
//!
//! ```text
//! cargo run --release -p terrace-host --features track --example tracked
//! ```
//! What a mode adds is the difference to `off`. Call stacks are as deep as there are frame pointers: with
//! `RUSTFLAGS="-C force-frame-pointers=yes"` whole.

use std::hint::black_box;
use std::time::Duration;
use terrace_host::Global;
use terrace_track::TrackMode;

#[global_allocator]
static A: Global = Global::new();

/// Blocks that are live together.
const LIVE: usize = 1000;

/// Allocations in a measurement.
const PAIRS: usize = 1_000_000;

const ROUNDS: usize = 5;

/// Nanoseconds a call, where each pair frees the oldest block and allocates another.
fn measure(mode: TrackMode) -> f64 {
    Global::tracker().set_mode(mode);
    let mut live: Vec<Option<Box<[u8; 64]>>> = vec![const { None }; LIVE];
    let begun = thread_time();
    for at in 0..PAIRS {
        live[at % LIVE] = None;
        live[at % LIVE] = Some(black_box(Box::new([0; 64])));
    }
    let spent = (thread_time() - begun).as_nanos() as f64 / (2 * PAIRS) as f64;
    drop(live);
    Global::tracker().set_mode(TrackMode::Off);
    spent
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is local and writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    // One mode, for a profiler.
    if let Some(mode) = std::env::args().nth(1) {
        println!("{mode} {:.2}", measure(mode.parse().expect("a mode")));
        return;
    }
    let mut rows = TrackMode::ALL.map(|mode| (mode, Vec::new()));
    for _ in 0..ROUNDS {
        rows.iter_mut().for_each(|(mode, spent)| spent.push(measure(*mode)));
    }
    println!("{:<9} {:>7} ns a call of 64 bytes, {LIVE} live, median of {ROUNDS} rounds (least, most)", "mode", "");
    for (mode, mut spent) in rows {
        spent.sort_by(f64::total_cmp);
        println!("{mode:<9} {:>7.2} ({:.2}, {:.2})", spent[ROUNDS / 2], spent[0], spent[ROUNDS - 1]);
    }
}
