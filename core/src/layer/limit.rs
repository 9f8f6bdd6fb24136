//! A cap in bytes on any allocator.
//!
//! Promises upward: live blocks never exceed the cap, rounding included; a request that would exceed it is refused with
//! [`Cause::OverLimit`] before the call of the inner allocator (or after it, if only the rounding exceeds the cap).
//! Asks from below: `Block::bytes` is the size of the block, rounding included.
//!
//! Invariants: `used` = sum of the live blocks' bytes = the inner `in_use`; `used <= cap`, but for one case: a resize
//! in place that the inner allocator rounded past the cap cannot be undone (the old handle is stale), so it stands, and
//! every later request is refused until `used` is below the cap again.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::stats::Stats;

/// An allocator with a cap on the bytes of its live blocks; nothing else may use the inner allocator.
#[derive(Debug)]
pub struct Limit<A> {
    inner: A,
    cap: u64,
    /// Bytes of live blocks.
    used: u64,
    /// Number of requests that this layer refused.
    refused: u64,
}

impl<A: Allocator> Limit<A> {
    /// Caps an allocator.
    ///
    /// # Example
    /// ```
    /// use terrace_core::layer::Limit;
    /// use terrace_core::pool::{Buckets, SizeClasses};
    /// use terrace_core::sync::AtomicUsize;
    /// use terrace_core::{Allocator, Cause, Request};
    /// let words: Vec<_> = (0..Buckets::words(&[8])).map(|_| AtomicUsize::new(0)).collect();
    /// let mut limited = Limit::new(Buckets::new(SizeClasses::new(64, 1)?, [8], 0, &words)?, 150);
    /// limited.allocate(Request::new(64))?;
    /// limited.allocate(Request::new(64))?;
    /// let refused = limited.allocate(Request::new(64)).expect_err("192 > 150");
    /// assert_eq!((refused.cause, refused.largest_free), (Cause::OverLimit, 22));
    /// # Ok::<(), terrace_core::AllocError>(())
    /// ```
    pub fn new(inner: A, cap: u64) -> Self {
        let used = inner.stats().in_use;
        Self { inner, cap, used, refused: 0 }
    }

    /// The inner allocator.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Sets the cap. Above a lower cap, live blocks stay, and requests fail until enough is freed.
    pub fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// Counts a refusal; returns the error for it, whose `largest_free` is the bytes left below the cap.
    fn refuse(&mut self, asked: u64) -> AllocError {
        self.refused += 1;
        AllocError { cause: Cause::OverLimit, asked, largest_free: self.cap.saturating_sub(self.used) }
    }

    fn fits(&self, more: u64) -> bool {
        self.used.checked_add(more).is_some_and(|after| after <= self.cap)
    }
}

impl<A: Allocator> Allocator for Limit<A> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let request = request.validate().inspect_err(|_| self.refused += 1)?;
        if !self.fits(request.bytes) {
            return Err(self.refuse(request.bytes));
        }
        let block = self.inner.allocate(request)?;
        // The rounded block exceeds the cap, so it is freed again.
        if !self.fits(block.bytes) && self.inner.free(block, request.owner).is_ok() {
            return Err(self.refuse(request.bytes));
        }
        self.used += block.bytes;
        Ok(block)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.inner.free(block, owner)?;
        self.used = self.used.saturating_sub(block.bytes);
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        if bytes > block.bytes && !self.fits(bytes - block.bytes) {
            return Err(self.refuse(bytes));
        }
        let resized = self.inner.resize(block, bytes)?;
        self.used = self.used.saturating_sub(block.bytes).saturating_add(resized.bytes);
        Ok(resized)
    }

    fn trim(&mut self) -> u64 {
        self.inner.trim()
    }

    /// Statistics of the inner allocator; `capacity` is the cap if that is lower, `failed` includes what this layer
    /// refused.
    fn stats(&self) -> Stats {
        let inner = self.inner.stats();
        let capacity = if inner.capacity == 0 { self.cap } else { inner.capacity.min(self.cap) };
        let largest_free = inner.largest_free.min(self.cap.saturating_sub(self.used));
        Stats { capacity, largest_free, failed: inner.failed + self.refused, ..inner }
    }

    fn check(&self) -> Result<(), Violation> {
        ensure(self.used == self.inner.stats().in_use, "limit: used = the inner in_use", self.used)?;
        self.inner.check()
    }
}
