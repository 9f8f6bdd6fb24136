//! Counters that any thread may read while the allocator works.
//!
//! Promises upward: after each call the lent [`Counters`] say what the allocator says; readers take no lock.
//! Asks from below: `stats()` of the inner allocator, which is called before and after each call to see whether the
//! source was asked and what is reserved: as cheap as that is.
//!
//! Invariant at rest, checked: the counters' bytes in use, live blocks and reserved bytes are the inner allocator's.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::counters::Counters;
use crate::error::{AllocError, FreeError, Violation, ensure};
use crate::stats::Stats;

/// An allocator whose counters lie elsewhere, for all to read.
#[derive(Debug)]
pub struct Counted<'a, A> {
    inner: A,
    counters: &'a Counters,
    /// What the counters were told last.
    told: Stats,
}

impl<'a, A: Allocator> Counted<'a, A> {
    /// Counts an allocator nothing was taken from yet.
    ///
    /// # Example
    /// ```
    /// use terrace_core::layer::Counted;
    /// use terrace_core::pool::{Buckets, SizeClasses};
    /// use terrace_core::sync::AtomicUsize;
    /// use terrace_core::{Allocator, Counters, Request};
    /// static COUNTERS: Counters = Counters::new();
    /// let words: Vec<_> = (0..Buckets::words(&[8])).map(|_| AtomicUsize::new(0)).collect();
    /// let mut counted = Counted::new(Buckets::new(SizeClasses::new(64, 1)?, [8], 0, &words)?, &COUNTERS);
    /// counted.allocate(Request::new(50))?;
    /// let seen = std::thread::spawn(|| COUNTERS.snapshot().in_use).join().expect("no panic");
    /// assert_eq!(seen, 64);
    /// # Ok::<(), terrace_core::AllocError>(())
    /// ```
    pub fn new(inner: A, counters: &'a Counters) -> Self {
        let mut counted = Self { inner, counters, told: Stats::default() };
        counted.tell_source();
        counted
    }

    /// The allocator inside, to look at.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Tells what changed at the source since the last time.
    fn tell_source(&mut self) {
        let (now, told) = (self.inner.stats(), self.told);
        // One call of the inner allocator may give back and take: only the difference, and the calls, are seen.
        if now.reserved > told.reserved {
            self.counters.reserved(now.reserved - told.reserved);
        }
        for call in 0..now.returns.saturating_sub(told.returns) {
            let given = if call == 0 { told.reserved.saturating_sub(now.reserved) } else { 0 };
            self.counters.returned(given);
        }
        if now.pooled >= told.pooled {
            self.counters.pooled(now.pooled - told.pooled);
        } else {
            self.counters.unpooled(told.pooled - now.pooled);
        }
        for _ in told.fallbacks..now.fallbacks {
            self.counters.fell_back();
        }
        self.told = now;
    }
}

impl<A: Allocator> Allocator for Counted<'_, A> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let misses = self.told.misses;
        let result = self.inner.allocate(request);
        self.tell_source();
        match &result {
            Ok(block) => self.counters.allocated(block.bytes, misses == self.told.misses),
            Err(_) => self.counters.failed(),
        }
        result
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.inner.free(block, owner)?;
        self.counters.freed(block.bytes);
        self.tell_source();
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let resized = self.inner.resize(block, bytes)?;
        self.tell_source();
        self.counters.resized(block.bytes, resized.bytes);
        Ok(resized)
    }

    fn trim(&mut self) -> u64 {
        let given = self.inner.trim();
        self.tell_source();
        given
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn check(&self) -> Result<(), Violation> {
        self.counters.check()?;
        let (counted, inner) = (self.counters.snapshot(), self.inner.stats());
        ensure(counted.in_use == inner.in_use, "counted: in_use is the inner one", counted.in_use)?;
        ensure(counted.live_blocks == inner.live_blocks, "counted: live is the inner one", counted.live_blocks)?;
        ensure(counted.reserved == inner.reserved, "counted: reserved is the inner one", counted.reserved)?;
        self.inner.check()
    }
}
