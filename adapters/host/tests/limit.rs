//! Limits count memory: pages, not the slices of 64 KiB that blocks lie in. One test, in a process of its own: the limit is of
//! the whole process.

use std::alloc::{GlobalAlloc as _, Layout};
use terrace_host::{Global, Setting, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

/// Bytes of a block that takes two slices, 128 KiB, and 17 pages.
const BLOCK: usize = 66 << 10;
const PAGES: usize = 17 * 4096;

/// Allocates a block of so many bytes and writes to it; null when there is no memory.
fn take(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes, 16).expect("small");
    // SAFETY: the size is not 0.
    let block = unsafe { A.alloc(layout) };
    if !block.is_null() {
        // SAFETY: a block of so many bytes.
        unsafe { block.write_bytes(7, bytes) };
    }
    block
}

fn give(block: *mut u8, bytes: usize) {
    let layout = Layout::from_size_align(bytes, 16).expect("small");
    // SAFETY: `take` allocated it for this layout.
    unsafe { A.dealloc(block, layout) };
}

/// Asserts with a message, for which the limit is lifted.
#[track_caller]
fn holds(held: bool, what: &str) {
    if !held {
        Setting::Limit(usize::MAX).apply().expect("a setting");
        panic!("{what}: {}", stats());
    }
}

/// Holds 400 live blocks at a share of the limit: every call is served, and hardly a page is purged only to fault again.
fn churn_at(percent: usize, blocks: &mut Vec<*mut u8>) {
    trim();
    let limit = stats().reserved + blocks.capacity() * PAGES * 100 / percent;
    Setting::Limit(limit).apply().expect("a setting");
    blocks.extend((0..blocks.capacity()).map(|_| take(BLOCK)));
    holds(blocks.iter().all(|block| !block.is_null()), "a block is refused below the limit");
    let (mut random, purged) = (fastrand::Rng::with_seed(1), stats().purged);
    for _ in 0..20_000 {
        let at = random.usize(..blocks.len());
        give(blocks[at], BLOCK);
        blocks[at] = take(BLOCK);
        holds(!blocks[at].is_null(), "a block is refused where one went back");
        (1..20).for_each(|step| give(take(step * 50), step * 50));
    }
    let purged = stats().purged - purged;
    holds(purged < 8 << 20, "memory goes back and comes again");
    blocks.drain(..).for_each(|block| give(block, BLOCK));
    Setting::Limit(usize::MAX).apply().expect("a setting");
}

/// Allocates and frees blocks of every size: no more is held than the limit, free memory included.
fn held_within(limit: usize) {
    trim();
    Setting::Limit(limit).apply().expect("a setting");
    let (mut blocks, mut random) = (Vec::with_capacity(2000), fastrand::Rng::with_seed(2));
    for round in 0..60_000 {
        // Phases of small blocks and of large ones, so that each finds what the other freed.
        let most = [2_000, 40_000, 1_000_000][round / 5_000 % 3];
        let bytes = random.usize(1..=most);
        if random.u8(..5) < 3 && blocks.len() < blocks.capacity() {
            let block = take(bytes);
            if !block.is_null() {
                blocks.push((block, bytes));
            }
        } else if !blocks.is_empty() {
            let (block, bytes) = blocks.swap_remove(random.usize(..blocks.len()));
            give(block, bytes);
        }
        if round % 100 == 0 {
            let stats = stats();
            // On top: pages behind blocks that were allocated when less than half was held.
            let held = stats.dirty <= limit + (1 << 20) && stats.reserved <= limit.min(stats.dirty);
            holds(held, "more is held than the limit");
        }
    }
    blocks.into_iter().for_each(|(block, bytes)| give(block, bytes));
    Setting::Limit(usize::MAX).apply().expect("a setting");
}

#[test]
fn a_limit_counts_pages_and_has_no_cliff() {
    let mut blocks = Vec::with_capacity(400);
    // Makes the caches of the small sizes below, before anything is counted.
    (1..20).for_each(|step| give(take(step * 50), step * 50));
    [45, 70, 90, 96, 99].iter().for_each(|&percent| churn_at(percent, &mut blocks));
    held_within(48 << 20);
    trim();
    let stats = stats();
    assert!(stats.dirty < 4 << 20 && stats.reserved <= stats.dirty, "all was freed: {stats}");
    check().expect("every structure agrees");
}
