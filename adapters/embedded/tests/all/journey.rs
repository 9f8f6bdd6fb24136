//! The journey of a block of firmware, hop by hop: lock, heap, counters; back through the lock or through the queue of deferred
//! frees; and what a request that finds no room does before it fails.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use terrace_embedded::{Bounded, FreeQueue, Lock, LockedHeap, heap_arena};

/// A critical section that counts how often it was entered. One thread runs the test, so it masks nothing.
#[derive(Debug)]
struct CountedSection;

static ENTERED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the one test is the only caller, and it calls nothing from inside.
unsafe impl Lock for CountedSection {
    const UNLOCKED: Self = Self;

    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        ENTERED.fetch_add(1, Ordering::Relaxed);
        run()
    }
}

static HEAP: LockedHeap<CountedSection, Bounded, 2, FreeQueue<4>> = LockedHeap::empty();

const LAYOUT: Layout = Layout::new::<[u64; 8]>();

/// Runs a step; returns its result, and how often it entered the critical section.
fn sections<R>(step: impl FnOnce() -> R) -> (R, usize) {
    let before = ENTERED.load(Ordering::Relaxed);
    let result = step();
    (result, ENTERED.load(Ordering::Relaxed) - before)
}

/// Frees a block that the test allocated, once.
fn free(block: NonNull<u8>) {
    // SAFETY: see above.
    unsafe { HEAP.free(block, LAYOUT) };
}

/// Defers the free of a block that the test allocated, once.
fn free_later(block: NonNull<u8>) {
    // SAFETY: see above.
    unsafe { HEAP.free_later(block, LAYOUT) }.expect("the queue has room");
}

#[test]
fn a_block_enters_one_critical_section_each_way() {
    // No memory: the request tries; finds no deferred frees; no hook; and fails.
    let (block, entered) = sections(|| HEAP.allocate(LAYOUT));
    assert_eq!((block, entered), (None, 4));
    assert_eq!(HEAP.counters().failures, 1);

    // Memory: a static becomes a region, one free block behind its tables.
    heap_arena!(HEAP, 4096).expect("the first time");
    let empty = HEAP.stats();
    assert_eq!((empty.total, empty.free + empty.tables, empty.free_blocks), (4096, 4096, 1), "{empty}");

    // The fast path: one section; the heap cuts blocks off the front of a free block, so they lie one behind the other.
    let (first, entered) = sections(|| HEAP.allocate(LAYOUT).expect("room"));
    let second = HEAP.allocate(LAYOUT).expect("room");
    assert_eq!((entered, second.addr().get() - first.addr().get()), (1, LAYOUT.size()));
    let two = HEAP.stats();
    assert_eq!((two.live, two.counters.requested, two.free_blocks), (2 * 64, 2 * 64, 1), "no header, no slack: {two}");

    // A free: one section; neighbours are merged at once.
    let ((), entered) = sections(|| free(first));
    assert_eq!((entered, HEAP.stats().free_blocks), (1, 2));
    free(second);
    assert_eq!(HEAP.stats().free_blocks, 1);

    // An interrupt handler's free: no section. The blocks count as live until a later call completes two of them, in its own.
    let blocks = [(); 3].map(|()| HEAP.allocate(LAYOUT).expect("room"));
    let ((), entered) = sections(|| blocks.into_iter().for_each(free_later));
    assert_eq!((entered, HEAP.stats().live), (0, 3 * 64));
    let (block, entered) = sections(|| HEAP.allocate(LAYOUT).expect("room"));
    assert_eq!((entered, HEAP.stats().live), (1, 2 * 64), "three, less two, and the new one");
    free(block);
    assert_eq!(HEAP.stats().live, 0, "the third with this free");

    // No room: the request completes every deferred free, in a section each; that is enough here.
    // A size that is the first of its list, so that a free block of just this size is found; and what is beyond it.
    let step = 8 << ((empty.free / 8).ilog2() - 3);
    let [all, rest] =
        [empty.free / step * step, empty.free % step].map(|bytes| Layout::from_size_align(bytes, 8).expect("a layout"));
    let beside = HEAP.allocate(rest).expect("room");
    let blocks = [(); 4].map(|()| HEAP.allocate(LAYOUT).expect("room"));
    blocks.into_iter().for_each(free_later);
    let (whole, entered) = sections(|| HEAP.allocate(all));
    assert!(whole.is_some());
    // The first attempt completes two. Then: the third; the fourth; an empty queue; an attempt that succeeds.
    assert_eq!((entered, HEAP.counters().failures), (5, 1));

    // Still no room: the hook adds a region, and the request is tried again.
    HEAP.on_out_of_memory(|wanted| wanted == LAYOUT && heap_arena!(HEAP, 1024).is_ok());
    let (beyond, entered) = sections(|| HEAP.allocate(LAYOUT).expect("room in the second region"));
    // An attempt; an empty queue; the hook; its region; an attempt that succeeds.
    assert_eq!(entered, 5);
    assert_eq!((HEAP.stats().total, HEAP.counters().failures), (4096 + 1024, 1));

    // Back to the beginning: nothing is live, and each region is one free block.
    free(beyond);
    // SAFETY: allocated above with this layout.
    unsafe { HEAP.free(whole.expect("room"), all) };
    // SAFETY: as above.
    unsafe { HEAP.free(beside, rest) };
    let end = HEAP.stats();
    assert_eq!((end.live, end.free_blocks, end.counters.requested), (0, 2, 0), "{end}");
    assert_eq!(end.counters.allocations, end.counters.frees);
    HEAP.check().expect("every invariant holds");
}
