//! An allocator behind a lock, for threads to share, and guards that free their block.
//!
//! Promises upward: every call takes `&self`; a [`Guard`] frees its block once, on drop, and never panics (unless the
//! raw mutex does).
//! Asks from below: any [`lock_api::RawMutex`]: parking_lot's on hosts, a spin lock between cores, a critical section
//! in firmware. The lock is held for one call of the inner allocator only.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, FreeError, Violation};
use crate::stats::Stats;
use lock_api::{Mutex, RawMutex};

/// An allocator behind a mutex. Share it by reference, in a `static` or an `Arc`.
pub struct Locked<R, A> {
    inner: Mutex<R, A>,
}

impl<R: RawMutex, A> core::fmt::Debug for Locked<R, A> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Locked").finish_non_exhaustive()
    }
}

impl<R: RawMutex, A> Locked<R, A> {
    /// Wraps an allocator in a lock.
    pub const fn new(inner: A) -> Self {
        Self { inner: Mutex::new(inner) }
    }

    /// Returns the inner allocator.
    pub fn into_inner(self) -> A {
        self.inner.into_inner()
    }
}

impl<R: RawMutex, A: Allocator> Locked<R, A> {
    /// Calls `call` with the allocator while holding the lock, for several operations as one.
    pub fn with<T>(&self, call: impl FnOnce(&mut A) -> T) -> T {
        call(&mut self.inner.lock())
    }

    /// Allocates a block that is freed when the guard is dropped, by the owner that allocated it.
    ///
    /// # Errors
    /// As the inner [`Allocator::allocate`].
    pub fn guard(&self, request: Request) -> Result<Guard<'_, R, A>, AllocError> {
        let block = self.with(|inner| inner.allocate(request))?;
        Ok(Guard { home: self, block, owner: request.owner })
    }
}

/// Calls through a shared reference, of which each thread may have one: every call takes the lock.
impl<R: RawMutex, A: Allocator> Allocator for &Locked<R, A> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.with(|inner| inner.allocate(request))
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.with(|inner| inner.free(block, owner))
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.with(|inner| inner.resize(block, bytes))
    }

    fn trim(&mut self) -> u64 {
        self.with(A::trim)
    }

    fn stats(&self) -> Stats {
        self.with(|inner| inner.stats())
    }

    fn check(&self) -> Result<(), Violation> {
        self.with(|inner| inner.check())
    }
}

/// Calls by the exclusive owner: those that take `&mut self` take no lock.
impl<R: RawMutex, A: Allocator> Allocator for Locked<R, A> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.inner.get_mut().allocate(request)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.inner.get_mut().free(block, owner)
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.inner.get_mut().resize(block, bytes)
    }

    fn trim(&mut self) -> u64 {
        self.inner.get_mut().trim()
    }

    fn stats(&self) -> Stats {
        self.with(|inner| inner.stats())
    }

    fn check(&self) -> Result<(), Violation> {
        self.with(|inner| inner.check())
    }
}

/// A live block of a [`Locked`] allocator; freed when dropped.
#[derive(Debug)]
pub struct Guard<'l, R: RawMutex, A: Allocator> {
    home: &'l Locked<R, A>,
    block: Block,
    owner: Owner,
}

impl<R: RawMutex, A: Allocator> Guard<'_, R, A> {
    /// The handle of the block.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Resizes the block to `bytes` bytes in place.
    ///
    /// # Errors
    /// As the inner [`Allocator::resize`]; the block is unchanged.
    pub fn resize(&mut self, bytes: u64) -> Result<(), AllocError> {
        self.block = self.home.with(|inner| inner.resize(self.block, bytes))?;
        Ok(())
    }
}

impl<R: RawMutex, A: Allocator> Drop for Guard<'_, R, A> {
    fn drop(&mut self) {
        // The free is refused only if the caller has freed a copy of the handle: the block is free then, and drop must
        // not panic.
        let _ = self.home.with(|inner| inner.free(self.block, self.owner));
    }
}
