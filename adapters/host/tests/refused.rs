//! A limit refuses what does not fit beside the blocks in use; free memory, wherever it lies, is purged first.

use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread::scope;
use terrace_host::{Background, Global, Setting, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

const MIB: usize = 1 << 20;

/// One test at a time: the limit is of the whole process. The guard lifts it.
struct Limited<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

impl Limited<'_> {
    fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The clock purges nothing: what is purged, the refused call itself purges.
        Setting::Background(Background::Never).apply().expect("a setting");
        Setting::PurgeDelay(None).apply().expect("a setting");
        trim();
        Self(guard)
    }

    /// Sets the limit to so many bytes more than are in use.
    fn leave(&self, bytes: usize) {
        Setting::Limit(stats().reserved + bytes).apply().expect("a setting");
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        Setting::Limit(usize::MAX).apply().expect("a setting");
    }
}

/// Asserts with a message, for which the limit is lifted.
#[track_caller]
fn holds(held: bool, what: &str) {
    if !held {
        Setting::Limit(usize::MAX).apply().expect("a setting");
        panic!("{what}: {}", stats());
    }
}

/// Whether a block of so many bytes can be allocated.
fn is_served(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

#[test]
fn free_pages_between_live_blocks_make_room() {
    const BLOCKS: usize = 200_000;
    let limited = Limited::new();
    let mut blocks: Vec<Option<Box<[u8; 1000]>>> = Vec::with_capacity(BLOCKS);
    limited.leave(256 * MIB);
    blocks.extend((0..BLOCKS).map(|_| Some(Box::new([1; 1000]))));
    // The first block of every span stays.
    for block in &mut blocks {
        if block.as_ref().is_some_and(|block| block.as_ptr().addr() % (64 << 10) != 0) {
            *block = None;
        }
    }
    let kept = blocks.iter().flatten().count();
    holds((BLOCKS / 70..BLOCKS / 50).contains(&kept), "one block of each span stays");
    holds(is_served(100 * MIB), "free pages count as used");
    check().expect("every structure agrees");
}

#[test]
fn caches_of_idle_threads_make_room() {
    const THREADS: usize = 60;
    let limited = Limited::new();
    let barrier = &Barrier::new(THREADS + 1);
    scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                for bytes in (16..30_000).step_by(300) {
                    drop((0..100_000 / bytes).map(|_| vec![1u8; bytes]).collect::<Vec<_>>());
                }
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let cached = stats().cached;
        limited.leave(10 * MIB);
        let served = is_served(cached / 2 + 10 * MIB);
        barrier.wait();
        holds(cached > 40 * MIB, "the threads cache something");
        holds(served, "what idle threads cache counts as used");
    });
    check().expect("every structure agrees");
}

#[test]
fn a_block_shrinks_under_a_limit_that_was_lowered() {
    let _limited = Limited::new();
    let mut block = vec![1u8; 10 * MIB];
    let before = stats().reserved;
    Setting::Limit(5 * MIB).apply().expect("a setting");
    block.truncate(MIB);
    // A refusal would end the process.
    block.shrink_to_fit();
    // The thread that prints results may allocate meanwhile.
    holds((before - stats().reserved).abs_diff(9 * MIB) < MIB / 4, "the rest is used no longer");
    check().expect("every structure agrees");
}

#[test]
fn a_block_that_moves_needs_only_what_it_grows_by() {
    let limited = Limited::new();
    let mut block = vec![1u8; 110 * MIB];
    let before = block.as_ptr();
    // Other tests free memory meanwhile, which the first block may get instead.
    let next = before.addr() + 110 * MIB..before.addr() + 120 * MIB;
    let mut behind: Vec<Vec<u8>> = Vec::new();
    while behind.len() < 64 && !behind.iter().any(|other| next.contains(&other.as_ptr().addr())) {
        behind.push(vec![1u8; MIB]);
    }
    limited.leave(12 * MIB);
    holds(block.try_reserve_exact(10 * MIB).is_ok(), "10 MiB more are refused where 12 are left");
    holds(block.as_ptr() != before, "another block lies behind it");
    holds(block.iter().chain(behind.iter().flatten()).all(|&byte| byte == 1), "the blocks hold what they held");
    holds(block.try_reserve_exact(20 * MIB).is_err(), "20 MiB more are served where 2 are left");
    let reserved = stats().reserved;
    drop(block);
    holds(reserved - stats().reserved == 120 * MIB, "what the block used is used no longer");
    check().expect("every structure agrees");
}
