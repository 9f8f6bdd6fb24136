//! Several cores, for which threads stand: the spin lock, a mutex of `lock_api`, and deferred frees.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use terrace_embedded::{Bounded, Checked, DeferredFree, FreeQueue, LockedHeap, QueueFull, SpinHeap, heap_arena};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("small")
}

/// Allocates, resizes and frees blocks, and checks that no other thread wrote into them.
fn churn<A: GlobalAlloc>(heap: &A, thread: u8) {
    let mut live: Vec<(*mut u8, Layout)> = Vec::new();
    let mut random = fastrand::Rng::with_seed(u64::from(thread));
    for _ in 0..if cfg!(miri) { 60 } else { 5_000 } {
        let size = random.usize(1..=500);
        if live.len() < 40 {
            // SAFETY: the layout has bytes.
            let block = unsafe { heap.alloc_zeroed(layout(size)) };
            assert!(!block.is_null());
            // SAFETY: the block has so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "zeroed");
            bytes.fill(thread);
            live.push((block, layout(size)));
        } else {
            let at = random.usize(..live.len());
            let (block, old) = live.swap_remove(at);
            // SAFETY: it is live, and neither size is 0.
            let block = unsafe { heap.realloc(block, old, size) };
            assert!(!block.is_null());
            // SAFETY: a resized block keeps its bytes up to the smaller size.
            let bytes = unsafe { std::slice::from_raw_parts(block, size.min(old.size())) };
            assert!(bytes.iter().all(|&byte| byte == thread), "no other thread wrote here");
            // SAFETY: live, of this layout now, and not used any more.
            unsafe { heap.dealloc(block, layout(size)) };
        }
    }
    // SAFETY: all of these are live.
    live.into_iter().for_each(|(block, layout)| unsafe { heap.dealloc(block, layout) });
}

#[test]
fn many_threads_share_a_spin_heap() {
    static HEAP: SpinHeap<Checked<Bounded>, 2> = SpinHeap::empty();
    heap_arena!(HEAP, 40_000).expect("the first region");
    heap_arena!(HEAP, 200_000).expect("the second");
    thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || churn(&HEAP, thread)))));
    HEAP.check().expect("every invariant holds");
    let stats = HEAP.stats();
    assert_eq!((stats.live, stats.counters.requested), (0, 0), "{stats}");
    assert_eq!(stats.counters.allocations, stats.counters.frees);
    assert_eq!((stats.counters.failures, stats.counters.refused), (0, 0));
}

#[test]
fn any_mutex_of_lock_api_will_do() {
    static HEAP: LockedHeap<spin::lock_api::Mutex<()>> = LockedHeap::empty();
    heap_arena!(HEAP, 200_000).expect("memory");
    thread::scope(|scope| (0..2).for_each(|thread| drop(scope.spawn(move || churn(&HEAP, thread)))));
    assert_eq!(HEAP.stats().live, 0);
}

/// Threads stand for interrupt handlers: they never take the heap's lock. Unlike handlers they run in parallel with each other
/// and with the thread that pops.
#[test]
fn frees_past_the_lock_are_all_done_by_the_calls_of_others() {
    static HEAP: SpinHeap<Checked<Bounded>, 1, FreeQueue<8>> = SpinHeap::empty();
    const BLOCKS: usize = if cfg!(miri) { 60 } else { 20_000 };
    heap_arena!(HEAP, 10_000).expect("a hundred blocks, so that the heap runs out all the time");
    thread::scope(|scope| {
        let interrupts = [(); 2].map(|()| {
            let (send, receive) = mpsc::channel();
            scope.spawn(move || receive.into_iter().for_each(free_in_interrupt));
            send
        });
        for i in 0..BLOCKS {
            let block = loop {
                match HEAP.allocate(layout(72)) {
                    Some(block) => break block,
                    None => thread::yield_now(),
                }
            };
            // SAFETY: the block is live, and used no more.
            let pending = unsafe { DeferredFree::new(block, layout(72)) };
            interrupts[i % 2].send(pending).expect("the thread waits for it");
        }
        drop(interrupts);
        while HEAP.counters().frees < BLOCKS {
            HEAP.collect();
            thread::yield_now();
        }
    });
    HEAP.check().expect("every invariant holds");
    let counters = HEAP.counters();
    assert_eq!((counters.allocations, counters.frees, counters.refused), (BLOCKS, BLOCKS, 0), "each exactly once");
    assert_eq!(HEAP.stats().live, 0);

    fn free_in_interrupt(mut pending: DeferredFree) {
        loop {
            let (block, of) = pending.parts();
            assert_eq!(of, layout(72), "sizes are kept");
            // SAFETY: this thread received the only handle of a live block.
            match unsafe { HEAP.free_later(block, of) } {
                Ok(()) => return,
                Err(QueueFull(back)) => pending = back,
            }
            // A real handler would keep the block for its next run.
            thread::yield_now();
        }
    }
}

#[test]
fn a_push_takes_no_lock() {
    static HEAP: LockedHeap<Counted, Bounded, 1, FreeQueue<2>> = LockedHeap::empty();
    heap_arena!(HEAP, 10_000).expect("memory");
    let blocks = [24, 32, 40].map(|size| (HEAP.allocate(layout(size)).expect("room"), layout(size)));
    let before = ENTRIES.load(Ordering::Relaxed);
    // SAFETY: three live blocks, used no more unless the queue returns them.
    let pushed = blocks.map(|(block, layout)| unsafe { HEAP.free_later(block, layout) });
    assert_eq!(ENTRIES.load(Ordering::Relaxed), before, "no lock for which an interrupt handler would wait");
    let [first, second, third] = pushed;
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(third.expect_err("two places").0.parts(), blocks[2], "handed back");
}

/// A lock that counts how often it was acquired.
#[derive(Debug)]
struct Counted(spin::Mutex<()>);

static ENTRIES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the mutex inside keeps the promise.
unsafe impl terrace_embedded::Lock for Counted {
    const UNLOCKED: Self = Self(spin::Mutex::new(()));

    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        ENTRIES.fetch_add(1, Ordering::Relaxed);
        self.0.locked(run)
    }
}
