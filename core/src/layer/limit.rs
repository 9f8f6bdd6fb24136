//! A cap in bytes on any allocator.
//!
//! Promises upward: live blocks never hold more than the cap, rounding included; what would pass it is refused with
//! [`Cause::OverLimit`] before (and, where only the rounding passes it, after) the inner allocator was asked.
//! Asks from below: `Block::bytes` is what the block holds.
//!
//! Invariants: `used` = sum of the live blocks' bytes = the inner `in_use`; `used <= cap`, but for one case: a resize
//! in place that the inner allocator rounded past the cap cannot be undone (the old name is dead), so it is kept and
//! every later request refused until `used` is below the cap again.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::stats::Stats;

/// At most `cap` bytes of an allocator that is otherwise not in use.
#[derive(Debug)]
pub struct Limit<A> {
    inner: A,
    cap: u64,
    /// Bytes in live blocks.
    used: u64,
    /// Requests refused here.
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

    /// The allocator inside, to look at.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Changes the cap. What is live stays; below it, requests are refused until enough was freed.
    pub fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// Counts and makes the refusal; `largest_free` is what the cap leaves.
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
        // The request fits, its rounding does not: back it goes. A free of a block just given is never refused.
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

    /// The inner counters; `capacity` is the cap where that is lower, `failed` includes what was refused here.
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
