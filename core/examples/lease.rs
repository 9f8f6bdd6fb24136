//! What a lease of a resident buffer costs, beside its floor: a pair of atomic operations, and a mutex.
//!
//! Run: `cargo run --release -p terrace-core --example lease`
//!
//! Nanoseconds for taking and giving back, on one thread, the best of [`ROUNDS`] rounds: what a machine does when nothing
//! else disturbs it. The subjects take turns, so that a slow moment of the machine meets all of them.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use terrace_core::lease::LeaseWord;

/// Pairs in a round: about 20 ms of them.
const PAIRS: u32 = 1_000_000;
const ROUNDS: usize = 25;

/// Nanoseconds for one call of `pair`.
fn round(mut pair: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..PAIRS).for_each(|_| pair());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS)
}

fn main() {
    let lease = LeaseWord::open();
    lease.set_counted().expect("open");
    let word = AtomicU32::new(0);
    let mutex = Mutex::new(0u32);
    let mut best = [f64::INFINITY; 4];
    for _ in 0..ROUNDS {
        let taken = [
            round(|| {
                black_box(&lease).acquire_shared().expect("counted");
                black_box(black_box(&lease).release_shared());
            }),
            round(|| {
                black_box(&lease).acquire_exclusive().expect("counted");
                black_box(black_box(&lease).release_exclusive());
            }),
            round(|| {
                black_box(&word).fetch_add(1, Ordering::Acquire);
                black_box(&word).fetch_sub(1, Ordering::Release);
            }),
            round(|| *black_box(&mutex).lock().expect("no panic under it") += 1),
        ];
        best.iter_mut().zip(taken).for_each(|(best, taken)| *best = best.min(taken));
    }
    let names = ["shared lease", "exclusive lease", "fetch_add, fetch_sub", "Mutex"];
    for (name, nanoseconds) in names.iter().zip(best) {
        println!("{name:24} {nanoseconds:6.1} ns a pair");
    }
}
