//! Queues of deferred frees: blocks freed where the heap's lock must not be taken, as in interrupt handlers.
//!
//! Promises upward: a push and a pop take a bounded number of steps, never wait, and mask no interrupts (on targets with
//! compare-and-swap). A push into a full queue returns the block. Each block pushed is popped once, with its layout;
//! blocks are popped in any order.
//! Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_free_queue.rs`).
//!
//! ```text
//! interrupt:  free_later --push--> | block, size, align | EMPTY | BUSY | ... | --pop, two a call--> heap   under its lock
//! ```
//!
//! An interrupt may come between any two steps of a push or a pop, and its handler may push as well: the handler skips
//! the entry that is `BUSY` and takes another. So a push interrupted half way delays no other block; a pop interrupted
//! half way only keeps one entry from being used. There is no ABA problem: a thread owns an entry from its
//! compare-and-swap to `BUSY` until its own store. [`terrace_core::Exchange`] has the same protocol, but its items are
//! integers: a pointer that passed through one would lose its provenance.
//!
//! Invariants:
//! - the fields of a `BUSY` entry are read and written only by the thread that made it `BUSY`
//! - `waiting` is never below the number of `FULL` entries: a push increments it before filling, a pop decrements it
//!   after emptying an entry

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

use terrace_core::sync::{AtomicPtr, AtomicUsize, Ordering, seeded};

/// Acquire: the thread that takes an entry sees what the entry's last owner did. So a pop sees the fields and what the
/// interrupt handler wrote to the block, and a push overwrites no field that a pop still reads.
#[inline(always)]
fn claim_order() -> Ordering {
    if seeded("free_queue_claim_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: publishes an entry's fields, and all earlier writes, to the entry's next owner.
#[inline(always)]
fn release_order() -> Ordering {
    if seeded("free_queue_release_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

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
    /// The block and `layout` must meet the safety conditions of `free` of the heap that will free the block.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{DeferredFree, FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, of this layout, and used no more.
    /// let later = unsafe { DeferredFree::new(block, layout) };
    /// assert_eq!(later.parts(), (block, layout));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub const unsafe fn new(block: NonNull<u8>, layout: Layout) -> Self {
        Self { block, layout }
    }

    /// The block and its layout.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, QueueFull, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live; without a queue it comes back.
    /// let QueueFull(back) = unsafe { HEAP.free_later(block, layout) }.expect_err("no queue");
    /// assert_eq!(back.parts(), (block, layout));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub const fn parts(&self) -> (NonNull<u8>, Layout) {
        (self.block, self.layout)
    }
}

/// A queue of deferred frees: [`NoQueue`] or [`FreeQueue`].
///
/// Sealed, because the heap pops while it holds its lock: a queue that allocated from the heap then would re-enter it.
pub trait DeferQueue: Sync + sealed::Sealed {
    /// An empty queue.
    #[cfg(not(loom))]
    const EMPTY: Self;
    /// Maximum number of blocks in the queue.
    const CAPACITY: usize;

    /// Pushes a block.
    ///
    /// # Errors
    /// A full queue returns the block.
    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree>;

    /// Pops a block, not always the oldest; `None` when the queue is empty.
    ///
    /// Returns `None` also while other threads are filling or emptying every entry in use.
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
/// Blocks are popped in any order. Each entry takes four words. A push takes O(`N`) steps, so `N` bounds what a free
/// costs an interrupt handler; a pop takes O(1) steps if the queue is empty, and else O(`N`).
///
/// The queue is the last type parameter of a heap:
/// `static HEAP: FirmwareHeap<Bounded, 1, FreeQueue<16>> = FirmwareHeap::empty();`. `N` should be the largest number of
/// blocks that interrupt handlers free between two calls of the heap from elsewhere.
pub struct FreeQueue<const N: usize> {
    /// Number of `FULL` entries and of pushes that have not filled theirs yet. A pop that reads 0 looks at no entry.
    waiting: AtomicUsize,
    entries: [Entry; N],
}

/// State of an entry whose fields hold nothing.
const EMPTY: usize = 0;
/// State of an entry whose fields one thread is reading or writing.
const BUSY: usize = 1;
/// State of an entry whose fields hold a deferred free.
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

    /// An `EMPTY` entry; not a `const fn`, since loom makes its atomics at run time.
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
            && self.state.compare_exchange(from, BUSY, claim_order(), Ordering::Relaxed).is_ok()
    }

    /// Gives up ownership of the entry: stores `state`, which publishes the fields to the next owner.
    fn release(&self, state: usize) {
        self.state.store(state, release_order());
    }
}

impl<const N: usize> FreeQueue<N> {
    /// An empty queue.
    ///
    /// ```
    /// use terrace_embedded::{DeferQueue, FreeQueue};
    /// static QUEUE: FreeQueue<16> = FreeQueue::new();
    /// assert!(QUEUE.pop().is_none());
    /// ```
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), entries: [const { Entry::new() }; N] }
    }

    /// An empty queue; not a `const fn`, since loom makes its atomics at run time.
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
        // The push counts before it fills an entry: so no entry is `FULL` when a pop reads the count 0, and no pop
        // lowers the count below 0.
        let late = usize::from(seeded("free_queue_counted_late"));
        self.waiting.fetch_add(1 - late, Ordering::Relaxed);
        let Some(entry) = self.entries.iter().find(|entry| entry.claim(EMPTY)) else {
            self.waiting.fetch_sub(1 - late, Ordering::Relaxed);
            return Err(block);
        };
        entry.block.store(block.block.as_ptr(), Ordering::Relaxed);
        entry.size.store(block.layout.size(), Ordering::Relaxed);
        entry.align.store(block.layout.align(), Ordering::Relaxed);
        entry.release(FULL);
        if late != 0 {
            self.waiting.fetch_add(late, Ordering::Relaxed);
        }
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
        // A `FULL` entry holds the pointer and the layout that a push stored, so neither `?` returns here.
        Some(DeferredFree { block: block?, layout: layout.ok()? })
    }
}

/// The queue was full. The block comes back, still live: push it again later, or keep it.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull(pub DeferredFree);

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue of frees is full: keep the block and try again, or give the heap a larger FreeQueue")
    }
}

impl core::error::Error for QueueFull {}
