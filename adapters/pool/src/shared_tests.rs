//! Tests of what a shared pool promises: a handle for threads, owned blocks, typed errors.

use super::*;
use std::collections::BTreeSet;
use terrace_core::pool::{Buckets, SizeClasses};
use terrace_core::sync::AtomicUsize;
use terrace_core::{Cause, FreeError};

/// A pool of `count` blocks of 64 bytes.
pub(crate) fn blocks_of_64(count: u32) -> Buckets<'static, 1> {
    let words: Vec<_> = (0..Buckets::words(&[count])).map(|_| AtomicUsize::new(0)).collect();
    Buckets::new(SizeClasses::new(64, 1).expect("valid"), [count], 0, words.leak()).expect("enough words")
}

fn sendable<T: Send + Sync + Clone>(_: &T) {}

#[test]
fn a_block_goes_back_when_dropped_and_errors_are_typed() {
    let pool = SharedPool::new(blocks_of_64(2));
    sendable(&pool);
    let first = pool.allocate(10).expect("room");
    let _second = pool.allocate(64).expect("room");
    let error = pool.allocate(1).expect_err("full");
    assert_eq!((error.cause, error.asked), (Cause::OutOfMemory, 1));
    let address = first.address();
    drop(first);
    assert_eq!(pool.allocate(1).expect("room again").address(), address);
    assert_eq!(pool.allocate(65).expect_err("no such bucket").cause, Cause::TooLarge);
    assert_eq!(pool.request(Request::new(1).align(3)).expect_err("bad").cause, Cause::BadRequest);
    pool.check().expect("every invariant holds");
}

#[test]
fn threads_share_a_pool_and_never_a_block() {
    let pool = SharedPool::new(blocks_of_64(16));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let held: Vec<_> = (0..4).map(|_| pool.allocate(64).expect("16 for 4 times 4")).collect();
                    let places: BTreeSet<_> = held.iter().map(OwnedBlock::address).collect();
                    assert_eq!(places.len(), 4);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.allocations, stats.frees), (0, 8000, 8000));
    assert_eq!(pool.trim(), 0, "fixed blocks stay");
}

/// An allocator that panics when asked for 13 bytes.
struct Panics(Buckets<'static, 1>);

impl Allocator for Panics {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        assert_ne!(request.bytes, 13, "as told");
        self.0.allocate(request)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.0.free(block, owner)
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

#[test]
fn a_panic_under_the_lock_leaves_the_pool_usable() {
    let pool = SharedPool::new(Panics(blocks_of_64(2)));
    let clone = pool.clone();
    assert!(std::thread::spawn(move || _ = clone.allocate(13)).join().is_err());
    drop(pool.allocate(1).expect("still works"));
    assert_eq!(pool.stats().live_blocks, 0);
}
