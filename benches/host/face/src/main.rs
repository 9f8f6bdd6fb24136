//! One allocator as `#[global_allocator]`, chosen by a feature (none: the system's), and loops of allocations whose size is
//! a constant, as that of a `Box` is.
//!
//! ```text
//! terrace-host-face count pair|pair-empty|batch|batch-empty TIMES     to be counted by callgrind
//! terrace-host-face steps ..the same..                                counted here, where callgrind cannot
//! terrace-host-face time                                             prints nanoseconds: a pair, a block of a batch
//! ```
//!
//! Promises upward: nothing is written to the blocks, and the compiler must take it that somebody reads them; the `empty`
//! loops are the same without the calls. Asks from below: an allocator.

use std::alloc::{Layout, alloc, dealloc};
use std::process::ExitCode;
use std::time::Instant;

#[cfg(any(feature = "mimalloc2", feature = "mimalloc3"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[cfg(feature = "rpmalloc")]
#[global_allocator]
static ALLOCATOR: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

#[cfg(feature = "terrace")]
#[global_allocator]
static ALLOCATOR: terrace_host::Global = terrace_host::Global::new();

/// What is allocated: 32 bytes.
const LAYOUT: Layout = Layout::new::<[u64; 4]>();
/// Blocks of a batch.
const BATCH: usize = 64;
/// Pairs of one timing: some tens of milliseconds.
const TIMED: usize = 4_000_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["count", what, times] if times.parse::<usize>().is_ok_and(|times| count(what, times)) => {}
        ["steps", what, times] if times.parse().is_ok_and(|times| steps(what, times)) => {}
        ["time"] => println!("{} {}", nanoseconds(pairs, TIMED), nanoseconds(batches, TIMED / BATCH) / BATCH as f64),
        _ => {
            eprintln!("error: count or steps pair|pair-empty|batch|batch-empty TIMES, or time");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Runs a loop; whether there is one of this name.
fn count(what: &str, times: usize) -> bool {
    match what {
        "pair" => pairs(times),
        "pair-empty" => (0..times).for_each(|i| seen(std::ptr::without_provenance(i))),
        "batch" => batches(times),
        "batch-empty" => {
            for i in 0..times {
                let mut blocks = [std::ptr::null::<u8>(); BATCH];
                for (j, block) in blocks.iter_mut().enumerate() {
                    *block = std::ptr::without_provenance(i + j);
                    seen(*block);
                }
                seen(blocks.as_ptr().cast());
                blocks.into_iter().for_each(seen);
            }
        }
        _ => return false,
    }
    true
}

/// Prints the instructions of a loop: the difference of twice as many turns to as many, after as many that are not counted.
fn steps(what: &str, times: usize) -> bool {
    let counted = |times| {
        terrace_host_steps::count(|| {
            let _ = count(what, times);
        })
    };
    let difference = || Some(counted(2 * times)?.saturating_sub(counted(times)?));
    let found = count(what, times).then(difference).flatten();
    found.inspect(|steps| println!("{steps}")).is_some()
}

/// Nanoseconds of one turn of a loop, after it ran once before.
fn nanoseconds(run: fn(usize), times: usize) -> f64 {
    run(times / 10);
    let began = Instant::now();
    run(times);
    began.elapsed().as_nanos() as f64 / times as f64
}

#[inline(never)]
fn pairs(times: usize) {
    for _ in 0..times {
        let block = block();
        seen(block);
        free(block);
    }
}

#[inline(never)]
fn batches(times: usize) {
    for _ in 0..times {
        let mut blocks = [std::ptr::null_mut(); BATCH];
        for slot in &mut blocks {
            *slot = block();
            seen(*slot);
        }
        // The list is read by somebody, so that it is one.
        seen(blocks.as_ptr().cast());
        for block in blocks {
            seen(block);
            free(block);
        }
    }
}

#[inline(always)]
fn block() -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { alloc(LAYOUT) }
}

#[inline(always)]
fn free(block: *mut u8) {
    // SAFETY: every block here came from `block`, is freed once, and a null one would have been a bug of a machine without
    // memory for 64 blocks of 32 bytes.
    unsafe { dealloc(block, LAYOUT) }
}

/// The compiler must take it that somebody reads and writes what this points to. No instruction is added.
#[inline(always)]
fn seen(block: *const u8) {
    // SAFETY: it does nothing.
    unsafe { std::arch::asm!("/* {0} */", in(reg) block, options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_runs() {
        for what in ["pair", "pair-empty", "batch", "batch-empty"] {
            assert!(count(what, 10), "{what}");
        }
        assert!(!count("x", 10) && nanoseconds(pairs, 1000) > 0.0);
    }
}
