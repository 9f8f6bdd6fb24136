//! What happens when the range has no gap: the out-of-memory chain, and frees that wait for fences.
//!
//! Promises upward: each step is tried before the next, dearer one; after every step that freed something, the range is
//! searched again, exactly (PyTorch's allocator does not search again after it released memory, and fails spuriously).
//! Asks from below: [`Fence`] tickets of one owner that become ready in order.

use super::storage::ArenaStorage;
use super::{Arena, LARGE, SMALL};
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, Violation};
use crate::fence::{Fence, FenceState};
use crate::source::Source;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Allocates, and calls `hook` when all else failed.
    ///
    /// `hook` is called with the arena and the bytes asked for, and may free or trim; while it returns true the search
    /// is repeated.
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

    /// The chain behind a search that found nothing.
    #[cold]
    pub(super) fn reclaim_and_search(&mut self, request: Request) -> Result<Block, AllocError> {
        let mut error = match self.search_own(request) {
            Ok(block) => return Ok(block),
            Err(error) => error,
        };
        for step in [Self::poll_fences, Self::merge_cached] {
            // What is cached or waits holds slots as well as memory.
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

    /// The range, exactly; then what waits for the owner's own fence.
    fn search_own(&mut self, request: Request) -> Result<Block, AllocError> {
        self.search(request).or_else(|error| self.reuse(request).ok_or(error))
    }

    /// Empties the cache. True when something that was in it may serve now.
    fn merge_cached(&mut self) -> bool {
        let cached = self.cache.count() > 0;
        self.coalesce();
        cached
    }

    /// The range, exactly.
    pub(super) fn search(&mut self, request: Request) -> Result<Block, AllocError> {
        let area = self.area(request.bytes);
        self.ranges[area].allocate_exact(request).map(|block| self.locate(block, area))
    }

    /// Grows; when the source gives no more, waits for fences and searches and grows once more.
    fn grow_or_wait(&mut self, request: Request) -> Result<Block, AllocError> {
        let calls = self.source.usage().calls;
        let mut grown = self.grow(request);
        if grown.is_err() && self.wait_for_fences() {
            grown = self.search(request).or_else(|_| self.grow(request));
        }
        if grown.is_ok() && self.source.usage().calls != calls {
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
        // Free pages between holes of the very vacancy it would go to cannot be moved there; given back, they can be
        // had.
        let live: u64 = self.ranges.iter().map(|range| range.stats().in_use).sum();
        let (capacity, reserved) = (self.source.usage().capacity, self.reserved());
        if capacity == 0 || capacity.saturating_sub(live) >= request.bytes {
            self.trim_pages();
        }
        if self.reserved() < reserved { self.grow_pages(request).map_err(|_| error) } else { Err(error) }
    }

    /// Merges everything that is cached, as far as fences allow: what they do not allow waits.
    ///
    /// True when something became free. O(bins + blocks in the cache).
    pub fn coalesce(&mut self) -> bool {
        let (mut from, mut freed) = (0, false);
        let mut known = None;
        while let Some((at, owner, _, block)) = self.cache.take_any(from) {
            from = at;
            // One ticket covers all that an owner did: bins of one owner often follow each other.
            let ticket = match known {
                Some((of, ticket)) if of == owner => ticket,
                _ => self.fence.record(owner),
            };
            known = Some((owner, ticket));
            freed |= self.free_when_ready(self.area_of(&block), block, owner, ticket);
        }
        freed
    }

    /// Gives a block that the cache does not take back to the range, behind its fence.
    #[cold]
    pub(super) fn free_uncached(&mut self, block: Block, owner: Owner) {
        let ticket = self.fence.record(owner);
        self.free_when_ready(self.area_of(&block), block, owner, ticket);
    }

    /// Frees a block for all when its fence is ready (true), lets it wait when not. A failed fence quarantines it: it
    /// stays with the range under a handle that no caller has.
    fn free_when_ready(&mut self, area: usize, block: Block, owner: Owner, ticket: u64) -> bool {
        match self.fence.peek(owner, ticket) {
            // Never refused: it is live under a handle that no caller has.
            FenceState::Ready => self.ranges[area].free(block, owner).is_ok(),
            FenceState::Failed => {
                self.counters.quarantined += block.bytes;
                false
            }
            FenceState::Pending => {
                self.pending[area].push(block.slot, owner, ticket);
                false
            }
        }
    }

    /// Frees everything whose fence is ready. True when something became free. O(waiting).
    pub fn poll_fences(&mut self) -> bool {
        self.sweep(F::poll)
    }

    /// Waits for every fence and merges everything. True when something became free.
    pub(super) fn wait_for_fences(&mut self) -> bool {
        self.coalesce() | self.sweep(F::wait)
    }

    fn sweep(&mut self, state: impl Fn(&mut F, Owner, u64) -> FenceState) -> bool {
        let mut freed = false;
        for area in [SMALL, LARGE] {
            // Tickets of one owner become ready in order: behind one that is pending all are.
            let mut pending = None;
            let mut next = self.pending[area].first();
            while let Some(slot) = next {
                next = self.pending[area].after(slot);
                let Some((owner, ticket)) = self.pending[area].get(slot) else { break };
                if pending == Some(owner) || state(&mut self.fence, owner, ticket) == FenceState::Pending {
                    pending = Some(owner);
                    continue;
                }
                self.pending[area].take(slot);
                if let Some(block) = self.ranges[area].block_at(slot) {
                    freed |= self.free_when_ready(area, block, owner, ticket);
                }
            }
        }
        freed
    }

    /// Bytes that wait. O(slots).
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
