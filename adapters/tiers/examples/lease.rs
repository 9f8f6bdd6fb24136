//! Measures what a lease of a buffer in memory costs.
//!
//! `cargo run --release -p terrace-tiers --example lease`
//!
//! Nanoseconds for acquiring and releasing a lease, and in alternation for one atomic addition and one subtraction.
//! Least of 15 rounds of two million.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use terrace_tests::rounds::{Rounds, spread};
use terrace_tiers::{Error, Manager};

const TIMES: u32 = 2_000_000;
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manager = Manager::builder().memory(64 << 20).build()?;
    let buffer = manager.allocate(1 << 20)?;
    buffer.write(0, &[7])?;
    let word = AtomicU64::new(0);
    let measured = Rounds::new(ROUNDS).by_contestant(&mut ["a lease", "two operations"], |what, _| {
        let begun = Instant::now();
        if *what == "a lease" {
            for _ in 0..TIMES {
                let held = black_box(&buffer).lease_best()?;
                assert_eq!(black_box(&held)[0], 7);
            }
        } else {
            for _ in 0..TIMES {
                black_box(&word).fetch_add(1, Ordering::Acquire);
                black_box(&word).fetch_sub(1, Ordering::Release);
            }
        }
        Ok::<_, Error>(begun.elapsed().as_nanos() as f64 / f64::from(TIMES))
    })?;
    let [lease, floor] = [0, 1].map(|which: usize| spread(&measured[which]).map_or(f64::NAN, |all| all.min));
    println!("lease {lease:.1} ns, two atomic operations {floor:.1} ns");
    Ok(())
}
