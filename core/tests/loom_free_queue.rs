//! The queue of deferred frees of `terrace-embedded` under loom, from its own file: handlers that push beside heaps that pop.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_free_queue
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: free_queue_claim_relaxed
// seeded-env: free_queue_release_relaxed
// seeded-env: free_queue_counted_late
#![cfg(loom)]

mod explore;
#[path = "../../adapters/embedded/src/free_queue.rs"]
#[allow(dead_code, reason = "the stories need no errors")]
mod free_queue;

use core::alloc::Layout;
use core::ptr::NonNull;

use explore::explore;
use free_queue::{DeferQueue, DeferredFree, FreeQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A queue and three blocks. Block `i` lies at `places[i]` and has `i + 1` bytes; loom watches its contents in `contents[i]`.
struct World<const N: usize> {
    queue: FreeQueue<N>,
    places: [u8; 3],
    contents: [UnsafeCell<()>; 3],
}

impl<const N: usize> World<N> {
    fn new() -> Arc<Self> {
        let contents = [(); 3].map(UnsafeCell::new);
        Arc::new(Self { queue: FreeQueue::new(), places: [0; 3], contents })
    }

    fn layout(block: usize) -> Layout {
        Layout::from_size_align(block + 1, 1 << block).expect("a layout")
    }

    /// Writes to a block and defers its free. Returns false if the queue is full.
    fn push(&self, block: usize) -> bool {
        self.contents[block].with_mut(|_| ());
        // SAFETY: nothing frees the block in the end.
        let deferred = unsafe { DeferredFree::new(NonNull::from(&self.places[block]), Self::layout(block)) };
        self.queue.push(deferred).is_ok()
    }

    /// Pops a block and writes to it, as the heap does. Loom reports it when the write races with any other access.
    fn pop(&self) -> Option<usize> {
        let (place, layout) = self.queue.pop()?.parts();
        let block = layout.size() - 1;
        assert_eq!((place, layout), (NonNull::from(&self.places[block]), Self::layout(block)), "of one push");
        self.contents[block].with_mut(|_| ());
        Some(block)
    }
}

#[test]
fn a_block_is_popped_once_with_all_that_was_done_before() {
    explore(|| {
        let world = World::<1>::new();
        let [handler, other] = [world.clone(), world.clone()];
        let handler = thread::spawn(move || assert!(handler.push(0), "the queue is empty"));
        let other = thread::spawn(move || other.pop());
        let mut popped = vec![world.pop()];
        handler.join().expect("no panic");
        popped.push(other.join().expect("no panic"));
        popped.push(world.pop());
        popped.retain(Option::is_some);
        assert_eq!(popped, [Some(0)]);
    });
}

#[test]
fn two_handlers_and_one_entry_lose_no_block() {
    explore(|| {
        let world = World::<1>::new();
        let other = world.clone();
        let other = thread::spawn(move || other.push(1));
        let mine = world.push(0);
        let theirs = other.join().expect("no panic");
        assert!(mine || theirs, "the entry was empty");
        let popped = [world.pop(), world.pop()];
        assert_eq!(popped, [Some(usize::from(theirs)), None]);
        assert_ne!(mine, theirs, "one entry");
    });
}

#[test]
fn an_entry_is_used_again_when_its_block_is_out() {
    explore(|| {
        let world = World::<1>::new();
        assert!(world.push(0));
        let handler = world.clone();
        let handler = thread::spawn(move || handler.push(1));
        let mut popped = vec![world.pop().expect("pushed before")];
        let pushed = handler.join().expect("no panic");
        popped.extend(world.pop());
        assert_eq!(popped, if pushed { vec![0, 1] } else { vec![0] });
        assert_eq!(world.pop(), None);
    });
}

#[test]
fn a_push_under_way_hides_no_other_block() {
    explore(|| {
        let world = World::<2>::new();
        assert!(world.push(2) && world.push(1));
        assert_eq!(world.pop(), Some(2), "so the first entry is empty, and the second holds block 1");
        let handler = world.clone();
        let handler = thread::spawn(move || assert!(handler.push(0), "one entry is empty"));
        let mut popped = vec![world.pop(), world.pop()];
        assert!(popped.contains(&Some(1)), "whatever the handler does meanwhile");
        handler.join().expect("no panic");
        popped.push(world.pop());
        popped.retain(Option::is_some);
        popped.sort_unstable();
        assert_eq!(popped, [Some(0), Some(1)]);
    });
}
