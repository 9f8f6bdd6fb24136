//! A pool that threads share: allocate, get an owned block, drop it.
//!
//! Promises upward: [`SharedPool`] is `Clone + Send + Sync`; a block frees itself when dropped, once, on any thread;
//! errors are typed; nothing here panics, also not after another thread panicked.
//! Asks from below: any [`Allocator`]. The lock is held for one call of it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::{AllocError, Allocator, Block, Owner, Request, Stats, Violation};

/// Where an [`OwnedBlock`] goes back to.
pub trait Home {
    /// Takes the block back. It is called in drop: a panic of a waker that it woke goes on, unless the thread is
    /// panicking already; nothing else panics.
    fn give_back(&self, block: Block, owner: Owner);
}

/// A handle to one allocator; clones are handles to the same.
///
/// # Example
/// ```
/// use terrace::engine::pool::{Buckets, SizeClasses};
/// use terrace::engine::shared::SharedPool;
/// use terrace::engine::sync::AtomicUsize;
/// // 64 blocks of 4 KiB: a fixed capacity of 256 KiB.
/// static WORDS: [AtomicUsize; Buckets::words(&[64])] = [const { AtomicUsize::new(0) }; Buckets::words(&[64])];
/// let pool = SharedPool::new(Buckets::new(SizeClasses::new(4096, 1)?, [64], 0, &WORDS)?);
/// let clone = pool.clone();
/// let block = std::thread::spawn(move || clone.allocate(3000)).join().expect("no panic")?;
/// assert_eq!((block.bytes(), pool.stats().in_use), (4096, 4096));
/// drop(block);
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), terrace::AllocError>(())
/// ```
pub struct SharedPool<A> {
    inner: Arc<Mutex<A>>,
}

impl<A> Clone for SharedPool<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A> fmt::Debug for SharedPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPool").finish_non_exhaustive()
    }
}

impl<A: Allocator> SharedPool<A> {
    /// Shares an allocator.
    pub fn new(allocator: A) -> Self {
        Self { inner: Arc::new(Mutex::new(allocator)) }
    }

    /// An allocator changes nothing before it knows that it will succeed, so one left by a panicking thread is whole.
    fn lock(&self) -> MutexGuard<'_, A> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out a block of at least `bytes` bytes.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]: what was asked, the largest free block, what to do.
    pub fn allocate(&self, bytes: u64) -> Result<OwnedBlock<Self>, AllocError> {
        self.request(Request::new(bytes))
    }

    /// Hands out a block with an alignment and for an owner.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    pub fn request(&self, request: Request) -> Result<OwnedBlock<Self>, AllocError> {
        let block = self.lock().allocate(request)?;
        Ok(OwnedBlock::new(self.clone(), block, request.owner))
    }

    /// Gives unused memory back to the source. Returns the bytes given back.
    pub fn trim(&self) -> u64 {
        self.lock().trim()
    }

    /// Counters, as of now.
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Checks every invariant of the allocator. O(n).
    ///
    /// # Errors
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        self.lock().check()
    }
}

impl<A: Allocator> Home for SharedPool<A> {
    fn give_back(&self, block: Block, owner: Owner) {
        // Refused only if a copy of the name was freed through the allocator itself: the block is free then.
        let _ = self.lock().free(block, owner);
    }
}

/// A live block that goes back when dropped.
#[derive(Debug)]
pub struct OwnedBlock<H: Home> {
    home: H,
    block: Block,
    owner: Owner,
}

impl<H: Home> OwnedBlock<H> {
    /// Owns a live block of `home` from here on.
    pub(crate) fn new(home: H, block: Block, owner: Owner) -> Self {
        Self { home, block, owner }
    }

    /// Where it lies, in the allocator's space.
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// Bytes it holds: at least what was asked.
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// The allocator's name for it.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

impl<H: Home> Drop for OwnedBlock<H> {
    fn drop(&mut self) {
        self.home.give_back(self.block, self.owner);
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
pub(crate) mod tests;
