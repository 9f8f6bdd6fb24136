//! Queues of deferred frees: blocks freed where the heap's lock must not be taken, as in interrupt handlers.
//!
//! Promises upward: a push and a pop take a bounded number of steps, never wait, and mask no interrupts (on targets with
//! compare-and-swap). A push into a full queue returns the block. Each block pushed is popped once, with its layout; the
//! order is not kept.
//! Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_free_queue.rs`).
//!
//! ```text
//! interrupt:  free_later --push--> | block, size, align | EMPTY | BUSY | ... | --pop, two a call--> heap   under its lock
//! ```
//!
//! An interrupt may come between any two steps of a push or a pop, and push as well: it skips the entry that is `BUSY` and
//! takes another. So a push interrupted half way delays no other block; a pop interrupted half way keeps one entry from being
//! used. There is no ABA problem: a thread owns an entry from its compare-and-swap to `BUSY` until its own store. The protocol
//! is that of [`terrace_core::Exchange`], whose items are integers: a block that passed through one would lose the provenance of
//! its pointer.
//!
//! Invariants:
//! - the fields of a `BUSY` entry are read and written only by the thread that made it `BUSY`
//! - `waiting` is never below the number of `FULL` entries: a push counts before it fills, a pop after it has emptied

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

use terrace_core::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Acquire: the thread that takes an entry sees what its last owner did. So a pop sees the fields and what the handler wrote to
/// the block, and a push overwrites no field that a pop still reads.
#[cfg(not(terrace_seeded_bug = "free_queue_claim_relaxed"))]
const CLAIM: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "free_queue_claim_relaxed")]
const CLAIM: Ordering = Ordering::Relaxed;

/// Release: publishes the fields, and all writes before, to the next owner.
#[cfg(not(terrace_seeded_bug = "free_queue_release_relaxed"))]
const RELEASE: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "free_queue_release_relaxed")]
const RELEASE: Ordering = Ordering::Relaxed;

/// A block to be freed later, and its layout.
#[derive(Debug, PartialEq, Eq)]
pub struct DeferredFree {
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the caller of `new` promised that the block is used no more, so any thread may free it.
unsafe impl Send for DeferredFree {}

impl DeferredFree {
    /// A deferred free of `block`, which has `layout`.
    ///
    /// # Safety
    /// Caller must promise for the heap that frees the block in the end what that heap's `free` asks for.
    pub const unsafe fn new(block: NonNull<u8>, layout: Layout) -> Self {
        Self { block, layout }
    }

    /// The block and its layout.
    pub const fn parts(&self) -> (NonNull<u8>, Layout) {
        (self.block, self.layout)
    }
}

/// A queue of deferred frees: [`NoQueue`] or [`FreeQueue`].
///
/// Sealed, because the heap pops under its own lock: a queue that allocated there would enter a heap half way through a call.
pub trait DeferQueue: Sync + sealed::Sealed {
    /// An empty queue.
    #[cfg(not(loom))]
    const EMPTY: Self;
    /// The most blocks that can wait.
    const CAPACITY: usize;

    /// Pushes a block.
    ///
    /// # Errors
    /// The block, when the queue is full.
    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree>;

    /// Pops a block, not always the oldest; `None` when the queue is empty.
    ///
    /// `None` also while other threads are about to fill or empty every entry that is left.
    fn pop(&self) -> Option<DeferredFree>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NoQueue {}
    impl<const N: usize> Sealed for super::FreeQueue<N> {}
}

/// A queue without entries: every push fails. It takes no memory and no instructions.
#[derive(Clone, Copy, Debug)]
pub struct NoQueue;

impl DeferQueue for NoQueue {
    #[cfg(not(loom))]
    const EMPTY: Self = Self;
    const CAPACITY: usize = 0;

    #[inline(always)]
    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree> {
        Err(block)
    }

    #[inline(always)]
    fn pop(&self) -> Option<DeferredFree> {
        None
    }
}

/// A queue of at most `N` deferred frees, for any number of interrupt handlers and cores.
///
/// Blocks are freed in any order. Each entry takes four words. A push takes O(`N`) steps, so `N` bounds what a free costs an
/// interrupt handler; a pop takes O(1) from an empty queue and O(`N`) from another.
///
/// It is the last parameter of a heap: `static HEAP: FirmwareHeap<Fast, 1, FreeQueue<16>> = FirmwareHeap::empty();`. Choose for
/// `N` the most blocks that interrupt handlers free between two calls of the heap elsewhere.
pub struct FreeQueue<const N: usize> {
    /// `FULL` entries, and pushes that have not filled theirs yet: a pop from an empty queue reads nothing else.
    waiting: AtomicUsize,
    entries: [Entry; N],
}

/// The fields hold nothing.
const EMPTY: usize = 0;
/// A thread reads or writes the fields.
const BUSY: usize = 1;
/// The fields hold a deferred free.
const FULL: usize = 2;

/// Room for one deferred free.
struct Entry {
    /// `EMPTY`, `BUSY` or `FULL`.
    state: AtomicUsize,
    block: AtomicPtr<u8>,
    size: AtomicUsize,
    align: AtomicUsize,
}

impl Entry {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            state: AtomicUsize::new(EMPTY),
            block: AtomicPtr::new(ptr::null_mut()),
            size: AtomicUsize::new(0),
            align: AtomicUsize::new(0),
        }
    }

    /// An `EMPTY` entry; loom's atomics are made at run time.
    #[cfg(loom)]
    fn new() -> Self {
        Self {
            state: AtomicUsize::new(EMPTY),
            block: AtomicPtr::new(ptr::null_mut()),
            size: AtomicUsize::new(0),
            align: AtomicUsize::new(0),
        }
    }

    /// Makes an entry `BUSY` if its state is `from`. Acquires what the last owner's `release` published.
    fn claim(&self, from: usize) -> bool {
        self.state.load(Ordering::Relaxed) == from
            && self.state.compare_exchange(from, BUSY, CLAIM, Ordering::Relaxed).is_ok()
    }

    /// Ends ownership. Publishes the fields to the next owner.
    fn release(&self, state: usize) {
        self.state.store(state, RELEASE);
    }
}

impl<const N: usize> FreeQueue<N> {
    /// An empty queue.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), entries: [const { Entry::new() }; N] }
    }

    /// An empty queue; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), entries: [(); N].map(|()| Entry::new()) }
    }
}

impl<const N: usize> Default for FreeQueue<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for FreeQueue<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeQueue<{N}>")
    }
}

impl<const N: usize> DeferQueue for FreeQueue<N> {
    #[cfg(not(loom))]
    const EMPTY: Self = Self::new();
    const CAPACITY: usize = N;

    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree> {
        // Counted before the entry is filled: a pop that finds the count 0 misses no block, and none counts below 0.
        #[cfg(not(terrace_seeded_bug = "free_queue_counted_late"))]
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = self.entries.iter().find(|entry| entry.claim(EMPTY)) else {
            #[cfg(not(terrace_seeded_bug = "free_queue_counted_late"))]
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(block);
        };
        entry.block.store(block.block.as_ptr(), Ordering::Relaxed);
        entry.size.store(block.layout.size(), Ordering::Relaxed);
        entry.align.store(block.layout.align(), Ordering::Relaxed);
        entry.release(FULL);
        #[cfg(terrace_seeded_bug = "free_queue_counted_late")]
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn pop(&self) -> Option<DeferredFree> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let entry = self.entries.iter().find(|entry| entry.claim(FULL))?;
        let block = NonNull::new(entry.block.load(Ordering::Relaxed));
        let layout = Layout::from_size_align(entry.size.load(Ordering::Relaxed), entry.align.load(Ordering::Relaxed));
        entry.release(EMPTY);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // A `FULL` entry holds what a push stored: both are always there.
        Some(DeferredFree { block: block?, layout: layout.ok()? })
    }
}

/// The queue is full. The block comes back, still live: push it again later, or keep it.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull(pub DeferredFree);

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue of frees is full: keep the block and try again, or give the heap a larger FreeQueue")
    }
}

impl core::error::Error for QueueFull {}
