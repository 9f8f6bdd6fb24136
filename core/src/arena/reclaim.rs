//! Reclaiming memory when the range has no gap: the out-of-memory chain, and pending frees.
//!
//! Promises upward: tries the cheaper steps first; after each step that freed memory, searches the range again,
//! exactly: any gap that fits is found (PyTorch's allocator does not search again after releasing memory, and fails
//! spuriously).
//! Asks from below: [`Fence`] tickets of one owner that become ready in order.

use super::storage::ArenaStorage;
use super::{Arena, LARGE, SMALL};
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, Violation};
use crate::fence::{Fence, FenceState};
use crate::source::Source;

/// Owners whose pending tickets a sweep remembers at once; of two that share a place the last one counts, and the other is asked again.
const REMEMBERED: usize = 16;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Allocates; calls `hook` when all else has failed.
    ///
    /// `hook` gets the arena and the bytes requested, and may free or trim; while it returns true, the allocation is
    /// tried again.
    ///
    /// # Errors
    /// As for `allocate`, once the hook returns false.
    pub fn allocate_or(
        &mut self,
        request: Request,
        mut hook: impl FnMut(&mut Self, u64) -> bool,
    ) -> Result<Block, AllocError> {
        loop {
            match self.allocate(request) {
                Err(error) if matches!(error.cause, Cause::OutOfMemory | Cause::SourceFailed) => {
                    if !hook(self, request.bytes) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Reclaims memory step by step, after a search has failed, until the request fits.
    #[cold]
    pub(super) fn reclaim_and_search(&mut self, request: Request) -> Result<Block, AllocError> {
        let mut error = match self.search_own(request) {
            Ok(block) => return Ok(block),
            Err(error) => error,
        };
        for step in [Self::poll_fences, Self::merge_cached] {
            // Reclaiming helps only these: cached and pending blocks occupy memory and slots.
            if !matches!(error.cause, Cause::OutOfMemory | Cause::OutOfSlots) {
                return Err(error);
            }
            if step(self) {
                match self.search_own(request) {
                    Ok(block) => return Ok(block),
                    Err(next) => error = next,
                }
            }
        }
        if error.cause == Cause::OutOfSlots {
            return if self.wait_for_fences() { self.search(request) } else { Err(error) };
        }
        self.grow_or_wait(request)
    }

    /// Searches the range for any gap that fits; then the pending blocks of the request's own owner.
    fn search_own(&mut self, request: Request) -> Result<Block, AllocError> {
        self.search(request).or_else(|error| self.reuse(request).ok_or(error))
    }

    /// Empties the cache; returns whether it had any block.
    fn merge_cached(&mut self) -> bool {
        let cached = self.cache.count() > 0;
        self.coalesce();
        cached
    }

    /// Searches the range for any gap that fits, not only in the bins where every gap fits.
    pub(super) fn search(&mut self, request: Request) -> Result<Block, AllocError> {
        let area = self.area(request.bytes);
        self.ranges[area].allocate_exact(request).map(|block| self.locate(block, area))
    }

    /// Grows; if the source has no more memory, waits for fences, searches, and grows again.
    fn grow_or_wait(&mut self, request: Request) -> Result<Block, AllocError> {
        let calls = self.source.usage().calls;
        let mut grown = self.grow(request);
        if self.wants_segment() {
            return grown;
        }
        if grown.is_err() && self.wait_for_fences() {
            grown = self.search(request).or_else(|_| self.grow(request));
        }
        if grown.is_err() && self.space.is_some() {
            // The threshold between the ranges has moved with the peak and with what is reserved: the other range may have room.
            let other = SMALL + LARGE - self.area(request.bytes);
            let found = self.ranges[other].allocate_exact(request);
            grown = found.map(|block| self.locate(block, other)).or(grown);
        }
        // A growth counts when it is finished.
        if grown.is_ok() && !self.has_later() && self.source.usage().calls != calls {
            self.counters.misses += 1;
        }
        grown
    }

    fn grow(&mut self, request: Request) -> Result<Block, AllocError> {
        if self.space.is_none() {
            return self.grow_segments(request);
        }
        let grown = self.grow_pages(request);
        let Err(error @ AllocError { cause: Cause::OutOfMemory, .. }) = grown else { return grown };
        // Free pages in the plan's own vacancy cannot be moved to that vacancy's holes, but can be unmapped and then
        // mapped there.
        let live: u64 = self.ranges.iter().map(|range| range.stats().in_use).sum();
        let (capacity, reserved) = (self.source.usage().capacity, self.reserved());
        if capacity == 0 || capacity.saturating_sub(live) >= request.bytes {
            self.trim_pages(0);
        }
        if self.reserved() < reserved { self.grow_pages(request).map_err(|_| error) } else { Err(error) }
    }

    /// Frees all cached blocks to the range; those whose fence is not ready become pending.
    ///
    /// Returns whether a block became free. O(bins + blocks in the cache).
    pub fn coalesce(&mut self) -> bool {
        let (mut from, mut freed) = (0, false);
        let mut known = None;
        while let Some((at, owner, _, block)) = self.cache.take_any(from) {
            from = at;
            // A ticket covers all work of an owner so far, so that successive bins of one owner share it.
            let ticket = match known {
                Some((of, ticket)) if of == owner => ticket,
                _ => self.fence.record(owner),
            };
            known = Some((owner, ticket));
            freed |= self.free_when_ready(self.area_of(&block), block, owner, ticket);
        }
        freed
    }

    /// Frees a block that the cache has refused: at once or, if the owner's work is not done, once its fence is ready.
    #[cold]
    pub(super) fn free_uncached(&mut self, block: Block, owner: Owner) {
        let ticket = self.fence.record(owner);
        self.free_when_ready(self.area_of(&block), block, owner, ticket);
    }

    /// Frees a block to the range if its fence is ready (returns true), else makes it pending. A failed fence
    /// quarantines the block: it stays live in the range, under a handle that no caller has.
    pub(super) fn free_when_ready(&mut self, area: usize, block: Block, owner: Owner, ticket: u64) -> bool {
        match self.fence.peek(owner, ticket) {
            // The free is never refused: the block is live, and no caller has its handle.
            FenceState::Ready => self.ranges[area].free(block, owner).is_ok(),
            FenceState::Failed => {
                self.counters.quarantined += block.bytes;
                false
            }
            FenceState::Pending => {
                self.keep(area, block.slot, owner, ticket);
                false
            }
        }
    }

    /// Frees all pending blocks whose fence is ready; returns whether there was one. O(pending).
    pub fn poll_fences(&mut self) -> bool {
        self.sweep(F::poll)
    }

    /// Empties the cache and waits for all fences; returns whether a block became free.
    pub(super) fn wait_for_fences(&mut self) -> bool {
        self.coalesce() | self.sweep(F::wait)
    }

    fn sweep(&mut self, state: impl Fn(&mut F, Owner, u64) -> FenceState) -> bool {
        let mut freed = false;
        // The lowest ticket that was found pending of each of the last owners: the tickets of one owner become ready in order.
        let mut found: [Option<(Owner, u64)>; REMEMBERED] = [None; REMEMBERED];
        for area in [SMALL, LARGE] {
            self.pending[area].asked();
            let mut next = self.pending[area].first();
            while let Some(slot) = next {
                next = self.pending[area].after(slot);
                let Some((owner, ticket)) = self.pending[area].get(slot) else { break };
                let known = &mut found[owner.0 as usize % REMEMBERED];
                if known.is_some_and(|(of, first)| of == owner && first <= ticket) {
                    continue;
                }
                if state(&mut self.fence, owner, ticket) == FenceState::Pending {
                    *known = Some((owner, ticket));
                    continue;
                }
                self.pending[area].take(slot);
                if let Some(block) = self.ranges[area].block_at(slot) {
                    // Not pending again, which would change the list: a fence that was ready stays so.
                    freed |= self.free_when_ready(area, block, owner, ticket);
                }
            }
        }
        freed
    }

    /// Checks the pending queues; returns the bytes of their blocks. O(slots).
    pub(super) fn check_pending(&self) -> Result<u64, Violation> {
        let mut bytes = 0;
        for (queue, range) in self.pending.iter().zip(&self.ranges) {
            queue.check()?;
            for slot in queue.slots() {
                bytes += range
                    .block_at(slot)
                    .ok_or(Violation { clause: "what waits is live for the range", at: slot.into() })?
                    .bytes;
            }
        }
        Ok(bytes)
    }
}
