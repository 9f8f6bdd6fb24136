//! A pool that threads share: they allocate owned blocks, each of which is freed when dropped.
//!
//! Promises upward: [`SharedPool`] is `Clone + Send + Sync`; a block frees itself when dropped, once, on any thread;
//! errors are typed; nothing here panics, even after another thread panicked.
//! Asks from below: any [`Allocator`]. The lock is held for one call of the allocator at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::{AllocError, Allocator, Block, Owner, Request, Stats, Violation};

/// The pool to which an [`OwnedBlock`] returns.
pub trait Home {
    /// Frees the block. Called in `drop`: it may panic only if a waker that it woke panicked, and the thread is not
    /// panicking already.
    fn give_back(&self, block: Block, owner: Owner);
}

/// A handle to one allocator; clones are handles to the same allocator.
///
/// # Example
/// ```
/// use terrace_core::pool::{Buckets, SizeClasses};
/// use terrace_core::sync::AtomicUsize;
/// use terrace_pool::shared::SharedPool;
/// // 64 blocks of 4 KiB: a fixed capacity of 256 KiB.
/// static WORDS: [AtomicUsize; Buckets::words(&[64])] = [const { AtomicUsize::new(0) }; Buckets::words(&[64])];
/// let pool = SharedPool::new(Buckets::new(SizeClasses::new(4096, 1)?, [64], 0, &WORDS)?);
/// let clone = pool.clone();
/// let block = std::thread::spawn(move || clone.allocate(3000)).join().expect("no panic")?;
/// assert_eq!((block.bytes(), pool.stats().in_use), (4096, 4096));
/// drop(block);
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), terrace_core::AllocError>(())
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
    /// Wraps an allocator in a pool that threads can share.
    pub fn new(allocator: A) -> Self {
        Self { inner: Arc::new(Mutex::new(allocator)) }
    }

    /// Locks the allocator. It changes nothing before a call is sure to succeed: it is consistent after a thread
    /// panicked.
    fn lock(&self) -> MutexGuard<'_, A> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a block of at least `bytes` bytes.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]: the error has the size requested, the largest free block, and what to do.
    pub fn allocate(&self, bytes: u64) -> Result<OwnedBlock<Self>, AllocError> {
        self.request(Request::new(bytes))
    }

    /// Allocates a block with an alignment and for an owner.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    pub fn request(&self, request: Request) -> Result<OwnedBlock<Self>, AllocError> {
        let block = self.lock().allocate(request)?;
        Ok(OwnedBlock::new(self.clone(), block, request.owner))
    }

    /// Releases unused memory to the source; returns the bytes released.
    pub fn trim(&self) -> u64 {
        self.lock().trim()
    }

    /// The allocator's counters as of now.
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Checks every invariant of the allocator. O(n).
    ///
    /// # Errors
    /// The clause that is violated.
    pub fn check(&self) -> Result<(), Violation> {
        self.lock().check()
    }
}

impl<A: Allocator> Home for SharedPool<A> {
    fn give_back(&self, block: Block, owner: Owner) {
        // Fails only if a copy of `block` was freed by the allocator itself: the block is free already.
        let _ = self.lock().free(block, owner);
    }
}

/// A live block, which is freed when dropped.
#[derive(Debug)]
pub struct OwnedBlock<H: Home> {
    home: H,
    block: Block,
    owner: Owner,
    /// False once the block was taken out: it then stays live.
    owned: bool,
}

impl<H: Home> OwnedBlock<H> {
    /// Takes ownership of a live block of `home`.
    pub(crate) fn new(home: H, block: Block, owner: Owner) -> Self {
        Self { home, block, owner, owned: true }
    }

    /// The address of the block, in the allocator's address space.
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// Size of the block in bytes: at least the size requested.
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// The block as the allocator names it.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The block, which stays live.
    pub(crate) fn into_block(mut self) -> Block {
        self.owned = false;
        self.block
    }
}

impl<H: Home> Drop for OwnedBlock<H> {
    fn drop(&mut self) {
        if self.owned {
            self.home.give_back(self.block, self.owner);
        }
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
pub(crate) mod tests;
