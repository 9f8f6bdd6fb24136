//! A second choice: what the first allocator cannot serve comes from another, and is counted.
//!
//! Promises upward: a request fails only when both fail; a block goes back to the allocator it came from; the switch
//! can be turned off.
//! Asks from below: the two allocators manage addresses of their own; regions below 2^31, tickets below 2^63.
//!
//! Region and ticket of a block, doubled, have the choice in their lowest bit: so tickets of the two never meet, and
//! fallbacks nest. Invariant: a name whose region is even came from the first.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::stats::Stats;

/// First `A`, then `B`: the device, then the host, say.
#[derive(Debug)]
pub struct Fallback<A, B> {
    first: A,
    second: B,
    /// Whether the second choice may be used.
    enabled: bool,
    /// Requests the second served.
    fallbacks: u64,
    /// Requests neither served.
    failed: u64,
    /// The most bytes ever live in both.
    peak_in_use: u64,
    /// The most blocks ever live in both.
    peak_live: u64,
    /// Bytes live in both.
    in_use: u64,
    /// Blocks live in both.
    live: u64,
}

impl<A: Allocator, B: Allocator> Fallback<A, B> {
    /// Joins two allocators nothing was taken from yet.
    ///
    /// # Example
    /// ```
    /// use terrace_core::layer::Fallback;
    /// use terrace_core::pool::{Buckets, SizeClasses};
    /// use terrace_core::sync::AtomicUsize;
    /// use terrace_core::{Allocator, Request};
    /// let words: Vec<_> = (0..2 * Buckets::words(&[1])).map(|_| AtomicUsize::new(0)).collect();
    /// let (near, far) = words.split_at(Buckets::words(&[1]));
    /// let steps = SizeClasses::new(64, 1)?;
    /// let mut both = Fallback::new(Buckets::new(steps, [1], 0, near)?, Buckets::new(steps, [1], 1 << 20, far)?);
    /// both.allocate(Request::new(64))?;
    /// assert_eq!(both.allocate(Request::new(64))?.address, 1 << 20);
    /// assert_eq!(both.stats().fallbacks, 1);
    /// # Ok::<(), terrace_core::AllocError>(())
    /// ```
    pub fn new(first: A, second: B) -> Self {
        let (fallbacks, failed, peak_in_use, peak_live, in_use, live) = (0, 0, 0, 0, 0, 0);
        Self { first, second, enabled: true, fallbacks, failed, peak_in_use, peak_live, in_use, live }
    }

    /// Turns the second choice on or off. Blocks it gave stay live.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// The two allocators, to look at.
    pub fn inner(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }

    /// Whether a block came from the second choice.
    pub fn is_fallback(block: &Block) -> bool {
        block.region & 1 == 1
    }

    fn choose(&mut self, request: Request) -> Result<Block, AllocError> {
        let error = match self.first.allocate(request) {
            Ok(block) => return name(&mut self.first, block, 0, request),
            Err(error) => error,
        };
        if !self.enabled || error.cause == Cause::BadRequest {
            return Err(error);
        }
        let second = self.second.allocate(request);
        let best = |other: AllocError| AllocError { largest_free: error.largest_free.max(other.largest_free), ..error };
        let block = name(&mut self.second, second.map_err(best)?, 1, request)?;
        self.fallbacks += 1;
        Ok(block)
    }
}

/// The block under its name outside: region and ticket doubled, plus the choice. What cannot be doubled has no name.
fn name(inner: &mut impl Allocator, block: Block, choice: u32, request: Request) -> Result<Block, AllocError> {
    outside(block, choice).ok_or_else(|| {
        // A free of a block just given is never refused.
        let _ = inner.free(block, request.owner);
        AllocError::new(Cause::OutOfSlots, request.bytes)
    })
}

fn outside(block: Block, choice: u32) -> Option<Block> {
    let region = block.region.checked_mul(2)? + choice;
    Some(Block { region, ticket: block.ticket.checked_mul(2)? + u64::from(choice), ..block })
}

/// The block under its name inside; `None` when region and ticket disagree about the choice.
fn inside(block: Block) -> Option<Block> {
    let agree = block.ticket & 1 == u64::from(block.region & 1);
    agree.then_some(Block { region: block.region / 2, ticket: block.ticket / 2, ..block })
}

impl<A: Allocator, B: Allocator> Allocator for Fallback<A, B> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let block = self.choose(request).inspect_err(|_| self.failed += 1)?;
        self.in_use += block.bytes;
        self.live += 1;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.peak_live = self.peak_live.max(self.live);
        Ok(block)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let name = inside(block).ok_or(FreeError::Foreign { address: block.address })?;
        match Self::is_fallback(&block) {
            false => self.first.free(name, owner)?,
            true => self.second.free(name, owner)?,
        }
        self.in_use = self.in_use.saturating_sub(block.bytes);
        self.live = self.live.saturating_sub(1);
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let name = inside(block).ok_or(AllocError::new(Cause::NotLive, bytes))?;
        let resized = match Self::is_fallback(&block) {
            false => self.first.resize(name, bytes)?,
            true => self.second.resize(name, bytes)?,
        };
        self.in_use = self.in_use.saturating_sub(block.bytes).saturating_add(resized.bytes);
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        // In place, so the region is the one the name had; the new ticket is below 2^63 for 2^63 resizes to come.
        let ticket = resized.ticket.wrapping_mul(2) + (block.ticket & 1);
        Ok(Block { region: block.region, ticket, ..resized })
    }

    fn trim(&mut self) -> u64 {
        self.first.trim() + self.second.trim()
    }

    /// Sums. `peak_reserved` is the sum of the two peaks, an upper bound of the joint one; the other peaks are exact.
    fn stats(&self) -> Stats {
        let sum = self.first.stats().plus(self.second.stats());
        let (peak_in_use, peak_live_blocks, failed) = (self.peak_in_use, self.peak_live, self.failed);
        Stats { peak_in_use, peak_live_blocks, failed, fallbacks: sum.fallbacks + self.fallbacks, ..sum }
    }

    fn check(&self) -> Result<(), Violation> {
        let stats = self.stats();
        ensure(stats.in_use == self.in_use, "fallback: in_use = the sum of both", self.in_use)?;
        ensure(stats.live_blocks == self.live, "fallback: live = the sum of both", self.live)?;
        self.first.check()?;
        self.second.check()
    }
}
