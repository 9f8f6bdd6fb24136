//! The bitmap pool, buckets and counters under loom.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_pool
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: pool_acquire_relaxed
// seeded-env: pool_release_relaxed
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::pool::{Buckets, Pool, SizeClasses};
use terrace_core::sync::AtomicUsize;
use terrace_core::{Allocator, Counters, Request};

/// Words of a pool, and a payload for each block: the memory itself.
struct World {
    words: Vec<AtomicUsize>,
    payload: Vec<UnsafeCell<u32>>,
}

impl World {
    fn new(blocks: u32) -> Arc<Self> {
        let words = (0..Pool::words(blocks)).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { words, payload: (0..blocks).map(|_| UnsafeCell::new(0)).collect() })
    }

    /// Acquires, writes the block, releases: loom reports any write that does not come after the last holder's.
    fn use_one(&self) -> bool {
        let pool = Pool::new(&self.words, self.payload.len() as u32).expect("enough words");
        let Some(block) = pool.acquire() else { return false };
        self.payload[block as usize].with_mut(|_| ());
        pool.release(block).expect("it is ours");
        true
    }
}

#[test]
fn what_one_holder_wrote_is_seen_by_the_next() {
    explore(|| {
        let world = World::new(1);
        let other = world.clone();
        let first = thread::spawn(move || other.use_one());
        let here = world.use_one();
        let there = first.join().expect("no panic");
        assert!(here || there, "at least one found the block");
    });
}

#[test]
fn two_threads_share_two_blocks_and_never_hold_one_twice() {
    explore(|| {
        let world = World::new(2);
        let other = world.clone();
        let user = thread::spawn(move || other.use_one());
        assert!(world.use_one(), "two blocks for two threads: neither fails");
        assert!(user.join().expect("no panic"), "two blocks for two threads: neither fails");
        let pool = Pool::new(&world.words, 2).expect("enough words");
        assert_eq!(pool.in_use(), 0);
        pool.check().expect("at rest");
    });
}

#[test]
fn a_block_released_twice_at_once_is_released_once() {
    explore(|| {
        let world = World::new(1);
        let pool = Pool::new(&world.words, 1).expect("enough words");
        let block = pool.acquire().expect("free");
        let other = world.clone();
        let releaser = thread::spawn(move || Pool::new(&other.words, 1).expect("enough words").release(block).is_ok());
        let here = pool.release(block).is_ok();
        assert!(here != releaser.join().expect("no panic"), "exactly one release is taken");
    });
}

#[test]
fn a_stale_bucket_name_loses_against_the_new_holder() {
    explore(|| {
        // Leaked, because threads outlive the story's stack frame as far as the compiler knows; 24 bytes each time.
        let words: &'static [AtomicUsize] =
            (0..Buckets::words(&[1])).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>().leak();
        let steps = SizeClasses::new(64, 1).expect("valid");
        let buckets = Arc::new(Buckets::new(steps, [1], 0, words).expect("enough words"));
        let old = buckets.acquire(Request::new(1)).expect("room");
        let other = buckets.clone();
        let user = thread::spawn(move || {
            let freed = other.release(old).is_ok();
            let mine = other.acquire(Request::new(1)).ok();
            (freed, mine.is_none_or(|block| other.release(block).is_ok()))
        });
        let here = buckets.release(old).is_ok();
        let (there, kept) = user.join().expect("no panic");
        assert!(here != there, "the old name frees once");
        assert!(kept, "the new holder's block was not freed by the old name");
        buckets.check().expect("at rest");
    });
}

#[test]
fn a_snapshot_taken_at_any_moment_keeps_the_equations() {
    explore(|| {
        let counters = Arc::new(Counters::new());
        let other = counters.clone();
        let user = thread::spawn(move || {
            other.allocated(8, true);
            other.allocated(16, false);
            other.freed(8);
        });
        let seen = counters.snapshot();
        assert_eq!(seen.allocations - seen.frees, seen.live_blocks);
        assert_eq!(seen.hits + seen.misses, seen.allocations);
        assert!(seen.in_use <= seen.peak_in_use && seen.live_blocks <= seen.peak_live_blocks);
        user.join().expect("no panic");
        let stats = counters.snapshot();
        assert_eq!((stats.in_use, stats.peak_in_use, stats.live_blocks, stats.hits, stats.misses), (16, 24, 1, 1, 1));
        counters.check().expect("at rest");
    });
}
