//! What each model does with memory whose fence is not open yet, or never will be.

use crate::common;

use common::{MIB, PythonRandom, Scripted};
use terrace_core::{Allocator, Block, Cause, Fence, NoFence, Owner, Request};
use terrace_models::{
    Bfc, BfcOptions, Delay, Growing, PinnedCache, PyTorch, PyTorchOptions, Rmm, RmmOptions, Segments,
};

const A: Owner = Owner(1);
const B: Owner = Owner(2);

fn alloc(pool: &mut impl Allocator, bytes: u64, owner: Owner) -> Block {
    pool.allocate(Request::new(bytes).owner(owner)).unwrap_or_else(|error| panic!("{error}"))
}

fn pytorch(capacity: u64, fence: Scripted, search_after_release: bool) -> PyTorch<Segments, Scripted> {
    let options = PyTorchOptions { search_after_release, ..Default::default() };
    PyTorch::with(Segments::new(capacity), fence, options).unwrap()
}

#[test]
fn pytorch_holds_what_another_stream_freed() {
    let fence = Scripted::default();
    let mut pool = pytorch(0, fence.clone(), false);
    let block = alloc(&mut pool, 20 * MIB, A);
    pool.free(block, B).unwrap();
    pool.check().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.pooled, stats.largest_free), (0, 20 * MIB, 0));
    let second = alloc(&mut pool, 20 * MIB, A);
    assert_ne!(second.address, block.address, "pending: a new segment");
    fence.done.set(1);
    assert_eq!(alloc(&mut pool, 20 * MIB, A).address, block.address, "ready: its own stream's again");
    pool.check().unwrap();
}

#[test]
fn pytorch_gives_its_own_frees_back_at_once() {
    let mut pool = pytorch(0, Scripted::default(), false);
    let block = alloc(&mut pool, 20 * MIB, A);
    pool.free(block, A).unwrap();
    assert_eq!(alloc(&mut pool, 20 * MIB, A).address, block.address);
}

#[test]
fn pytorch_never_uses_a_failed_fences_block_again() {
    let fence = Scripted::default();
    let mut pool = pytorch(0, fence.clone(), false);
    let block = alloc(&mut pool, 20 * MIB, A);
    pool.free(block, B).unwrap();
    fence.broken.set(true);
    assert_ne!(alloc(&mut pool, 20 * MIB, A).address, block.address);
    fence.done.set(9);
    assert_ne!(alloc(&mut pool, 20 * MIB, A).address, block.address);
    assert_eq!(pool.trim(), 0, "a quarantined segment is not given back");
    pool.check().unwrap();
}

/// A fence that opens when it is waited for, as a CUDA event does.
struct Waited(u64);

impl Fence for Waited {
    fn record(&mut self, _: Owner) -> u64 {
        self.0
    }

    fn poll(&mut self, _: Owner, ticket: u64) -> terrace_core::FenceState {
        if ticket < self.0 { terrace_core::FenceState::Ready } else { terrace_core::FenceState::Pending }
    }

    fn wait(&mut self, owner: Owner, ticket: u64) -> terrace_core::FenceState {
        self.0 = self.0.max(ticket + 1);
        self.poll(owner, ticket)
    }
}

/// A segment of which one half lives and the other waits for a fence; then a request for that half.
fn pending_half(search_after_release: bool) -> (PyTorch<Segments, Waited>, Result<Block, Cause>) {
    let options = PyTorchOptions { search_after_release, ..Default::default() };
    let mut pool = PyTorch::with(Segments::new(20 * MIB), Waited(0), options).unwrap();
    let half = alloc(&mut pool, 9 * MIB, A);
    alloc(&mut pool, 11 * MIB - 512, A);
    pool.free(half, B).unwrap();
    let result = pool.allocate(Request::new(9 * MIB).owner(A)).map_err(|error| error.cause);
    (pool, result)
}

/// PyTorch #189504: the last resort waits for the event, but does not search again.
#[test]
fn pytorch_fails_though_the_wait_made_room() {
    let (mut pool, result) = pending_half(false);
    assert_eq!((result, pool.retries()), (Err(Cause::OutOfMemory), 1));
    alloc(&mut pool, 9 * MIB, A); // the same request, once more
    let (pool, result) = pending_half(true);
    assert!(result.is_ok(), "with the search after the release it is served at once");
    assert_eq!((pool.stats().misses, pool.stats().hits), (2, 1));
}

#[test]
fn rmm_takes_from_other_streams_and_waits_on_the_device() {
    let fence = Scripted::default();
    let mut pool = Rmm::with(Segments::new(0), fence.clone(), RmmOptions::default());
    let block = alloc(&mut pool, MIB, A);
    pool.free(block, A).unwrap();
    assert_eq!((alloc(&mut pool, MIB, B).address, pool.waits()), (block.address, 1), "a pending fence stops nothing");
    let second = alloc(&mut pool, MIB, A);
    pool.free(second, A).unwrap();
    fence.broken.set(true);
    assert_ne!(alloc(&mut pool, MIB, B).address, second.address, "a failed one does");
    pool.check().unwrap();
}

#[test]
fn rmm_trim_leaves_what_is_pending() {
    let fence = Scripted::default();
    let mut pool = Rmm::with(Segments::new(0), fence.clone(), RmmOptions::default());
    let block = alloc(&mut pool, MIB, A);
    pool.free(block, A).unwrap();
    assert_eq!(pool.trim(), 0);
    fence.done.set(1);
    assert_eq!(pool.trim(), MIB);
    pool.check().unwrap();
}

#[test]
fn bfc_lets_only_the_freeing_owner_take_a_pending_chunk() {
    let fence = Scripted::default();
    let mut pool = Bfc::with(Segments::new(0), fence.clone(), BfcOptions::default());
    let block = alloc(&mut pool, 2 * MIB, A);
    pool.free(block, A).unwrap();
    pool.check().unwrap();
    assert_eq!(pool.stats().pooled, 2 * MIB);
    let other = alloc(&mut pool, 2 * MIB, B);
    assert_ne!(other.address, block.address, "another owner waits");
    let again = alloc(&mut pool, 2 * MIB, A);
    assert_eq!(again.address, block.address, "its own takes it at once");
    assert_eq!(pool.stats().pooled, 0);
    pool.free(again, A).unwrap();
    fence.done.set(2);
    let region = pool.stats().reserved;
    alloc(&mut pool, 2 * MIB, B);
    assert_eq!(pool.stats().reserved, region, "ready: free for all");
    pool.check().unwrap();
}

#[test]
fn bfc_merges_pending_chunks_for_their_owner_before_it_fails() {
    let fence = Scripted::default();
    let mut pool = Bfc::with(Segments::new(2 * MIB), fence.clone(), BfcOptions::default());
    let blocks = [0; 4].map(|_| alloc(&mut pool, MIB / 2, A));
    for block in blocks {
        pool.free(block, A).unwrap();
    }
    assert_eq!(pool.stats().largest_free, MIB / 2, "pending chunks stay apart");
    let refused = pool.allocate(Request::new(MIB).owner(B)).unwrap_err();
    assert_eq!(refused.cause, Cause::OutOfMemory);
    assert_eq!(alloc(&mut pool, MIB, A).address, blocks[0].address);
    pool.check().unwrap();
    fence.done.set(4);
    alloc(&mut pool, MIB, B);
    pool.check().unwrap();
}

#[test]
fn bfc_never_uses_a_failed_fences_chunk_again() {
    let fence = Scripted::default();
    let mut pool = Bfc::with(Segments::new(0), fence.clone(), BfcOptions::default());
    let block = alloc(&mut pool, 2 * MIB, A);
    pool.free(block, A).unwrap();
    fence.broken.set(true);
    assert_ne!(alloc(&mut pool, 2 * MIB, A).address, block.address);
    assert_eq!(pool.trim(), 0);
    pool.check().unwrap();
}

/// A freed range of addresses, who allocated it, who freed it, and when.
type Freed = (std::ops::Range<u64>, Owner, Owner, u64);

/// What is left of `freed` beside a range that was taken: what its new owner does comes after what was in flight.
fn without(freed: Vec<Freed>, taken: &std::ops::Range<u64>) -> Vec<Freed> {
    let parts = freed.into_iter().flat_map(|(range, allocator, freer, at)| {
        let below = range.start..range.end.min(taken.start);
        let above = range.start.max(taken.end)..range.end;
        [below, above].map(|part| (part, allocator, freer, at))
    });
    parts.filter(|(range, ..)| !range.is_empty()).collect()
}

/// Random work of three owners under a delay; `allowed` says whether a taker may have a range still in flight.
fn race(pool: &mut impl Allocator, delay: &Delay, seed: u32, allowed: fn(Owner, &Freed) -> bool) {
    let (clock, mut random) = (delay.clock(), PythonRandom::new(seed));
    let (mut live, mut freed): (Vec<(Block, Owner)>, Vec<Freed>) = (Vec::new(), Vec::new());
    for now in 0..3000 {
        clock.set(now);
        freed.retain(|old| now < old.3 + 20);
        let owner = Owner(random.randrange(3) as u32);
        if !live.is_empty() && random.random() < 0.5 {
            let (block, allocator) = live.swap_remove(random.randrange(live.len()));
            pool.free(block, owner).unwrap();
            freed.push((block.address..block.address + block.bytes, allocator, owner, now));
        } else if let Ok(block) = pool.allocate(Request::new(random.size(9.0, 23.0)).owner(owner)) {
            let taken = block.address..block.address + block.bytes;
            for old in &freed {
                let apart = old.0.end <= taken.start || taken.end <= old.0.start;
                assert!(apart || allowed(owner, old), "{owner:?} took {old:?} at {now}");
            }
            freed = without(freed, &taken);
            live.push((block, owner));
        }
        pool.check().unwrap();
    }
    clock.set(u64::MAX);
    for (block, owner) in live {
        pool.free(block, owner).unwrap();
    }
    pool.trim();
    pool.check().unwrap();
    assert_eq!((pool.stats().in_use, pool.stats().reserved), (0, 0));
}

#[test]
fn nothing_in_flight_is_handed_to_another() {
    for seed in 1..5 {
        let delay = Delay::new(20);
        // PyTorch: a block is its stream's; freed elsewhere, it is nobody's until the fence opens.
        let bound = |taker, &(_, allocator, freer, _): &Freed| taker == allocator && freer == allocator;
        let mut pool = PyTorch::with(Segments::new(256 * MIB), delay.clone(), PyTorchOptions::default()).unwrap();
        race(&mut pool, &delay, seed, bound);
        let options = PyTorchOptions { expandable: true, ..Default::default() };
        let mut pool = PyTorch::with(Growing::new(256 * MIB), delay.clone(), options).unwrap();
        race(&mut pool, &delay, seed, bound);
        let mut pool = Bfc::with(Segments::new(64 * MIB), delay.clone(), BfcOptions::default());
        race(&mut pool, &delay, seed, |taker, old| taker == old.2);
        let mut pool = Rmm::with(Segments::new(256 * MIB), delay.clone(), RmmOptions::default());
        race(&mut pool, &delay, seed, |_, _| true); // its streams wait on the device
        assert!(pool.waits() > 0);
    }
}

#[test]
fn no_fence_is_always_open() {
    let mut pool = PyTorch::with(Segments::new(0), NoFence, PyTorchOptions::default()).unwrap();
    let block = alloc(&mut pool, MIB, A);
    pool.free(block, B).unwrap();
    assert_eq!(alloc(&mut pool, MIB, A).address, block.address);
}

#[test]
fn pinned_blocks_are_reused_by_size_once_their_events_happened() {
    let fence = Scripted::default();
    let mut pool = PinnedCache::with(Segments::new(0), fence.clone());
    let block = alloc(&mut pool, 5 * MIB, A);
    assert_eq!((block.bytes, pool.stats().reserved), (8 * MIB, 8 * MIB));
    pool.free(block, A).unwrap();
    let second = alloc(&mut pool, 7 * MIB, A);
    assert_ne!(second.address, block.address, "pending, also for its own stream: the host has no order");
    fence.done.set(1);
    assert_ne!(alloc(&mut pool, 4 * MIB, A).address, block.address, "another size is never split from it");
    assert_eq!(alloc(&mut pool, 6 * MIB, B).address, block.address, "ready: for anybody of its size");
    pool.free(second, A).unwrap();
    fence.broken.set(true);
    assert_ne!(alloc(&mut pool, 8 * MIB, A).address, second.address, "a failed fence never opens");
    pool.check().unwrap();
}
