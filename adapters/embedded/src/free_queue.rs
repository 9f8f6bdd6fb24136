//! Blocks freed where the heap's lock must not be taken: in interrupt handlers.
//!
//! Promises upward: a push takes a bounded number of steps, waits for nobody, and masks no interrupts (on targets with
//! compare-and-swap). What does not fit comes back. Nothing is lost, and sizes are kept.
//! Asks from below: heapless's queue for many producers and consumers.
//!
//! ```text
//! interrupt:  free_later --push--> | layout, block | layout, block | ... | --pop, two a call--> heap   under its lock
//! ```
//!
//! heapless marks the constructor of its queue as deprecated, because it is not lock-free: a push or pop that was
//! interrupted half way keeps its slot until it goes on. Here that can only mean: an interrupt that stopped a pop half way
//! (possible under a spin lock, not in a critical section) finds a full queue one block early; and a block pushed while a
//! slower push is under way is taken back after that one. Neither waits. Slots are counted in words (`mpmc_large`): in
//! bytes, a push that slept through 256 others would take a slot for free that is not.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use heapless::mpmc;

/// A block that is still to be freed.
#[derive(Debug, PartialEq, Eq)]
pub struct DeferredFree {
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: who makes one promises that nobody uses the block any more: it may be freed from anywhere.
unsafe impl Send for DeferredFree {}

impl DeferredFree {
    /// A block to be freed by whoever gets this.
    ///
    /// # Safety
    /// As for a free of the block, by whatever heap it is freed by in the end.
    pub const unsafe fn new(block: NonNull<u8>, layout: Layout) -> Self {
        Self { block, layout }
    }

    /// The block and its layout.
    pub const fn parts(&self) -> (NonNull<u8>, Layout) {
        (self.block, self.layout)
    }
}

/// Where blocks wait for the heap: [`NoQueue`] or [`FreeQueue`], and nothing else. It is asked under the heap's lock, so one
/// that allocated would find the heap in the middle of a call.
pub trait DeferQueue: Sync + sealed::Sealed {
    /// Nothing waits.
    const EMPTY: Self;
    /// Blocks that can wait.
    const CAPACITY: usize;

    /// Puts a block into the queue.
    ///
    /// # Errors
    /// The block, when the queue is full.
    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree>;

    /// Takes a block out.
    fn pop(&self) -> Option<DeferredFree>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::NoQueue {}
    impl<const N: usize> Sealed for super::FreeQueue<N> {}
}

/// No queue: every push fails. Costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoQueue;

impl DeferQueue for NoQueue {
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

/// Room for `N` blocks, a power of two from 2 on. 12 bytes each on a 32-bit target, and a slot's number.
///
/// It is the last parameter of a heap: `static HEAP: FirmwareHeap<Fast, 1, FreeQueue<16>> = FirmwareHeap::empty();`. Choose `N` as large as
/// the number of blocks that interrupts free between two calls of the heap elsewhere.
pub struct FreeQueue<const N: usize> {
    blocks: mpmc::Queue<DeferredFree, N>,
}

impl<const N: usize> FreeQueue<N> {
    /// Nothing waits.
    #[expect(deprecated, reason = "not lock-free; the head of this file says why that does not matter here")]
    pub const fn new() -> Self {
        Self { blocks: mpmc::Queue::new() }
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
    const EMPTY: Self = Self::new();
    const CAPACITY: usize = N;

    fn push(&self, block: DeferredFree) -> Result<(), DeferredFree> {
        self.blocks.enqueue(block)
    }

    fn pop(&self) -> Option<DeferredFree> {
        self.blocks.dequeue()
    }
}

/// The queue is full: the block comes back, live, to be tried again later or kept.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull(pub DeferredFree);

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue of frees is full: keep the block and try again, or give the heap a larger FreeQueue")
    }
}

impl core::error::Error for QueueFull {}
