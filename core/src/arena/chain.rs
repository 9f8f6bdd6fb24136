//! What happens when the range has no gap: the out-of-memory chain, and frees that wait for fences.
//!
//! Promises upward: each step is tried before the next, dearer one; after every step that freed something, the range is
//! searched again, exactly (PyTorch's allocator does not search again after it released memory, and fails spuriously).
//! Asks from below: [`Fence`] tickets of one owner that become ready in order.

use super::Arena;
use super::store::{Store, Waiting};
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError};
use crate::fence::{Fence, FenceState};
use crate::source::Source;

impl<S: Source, F: Fence, M: Store> Arena<S, F, M> {
    /// Like [`Allocator::allocate`], with a last resort: `hook` is called with the arena and the bytes asked for when
    /// all else failed, and may free or trim; while it returns true the search is repeated.
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
    pub(super) fn search_on(&mut self, request: Request) -> Result<Block, AllocError> {
        let mut error = match self.search(request) {
            Ok(block) => return Ok(block),
            Err(error) => error,
        };
        let steps = [Self::poll_fences, Self::coalesce];
        for step in steps {
            // What is cached or waits holds slots as well as memory.
            if !matches!(error.cause, Cause::OutOfMemory | Cause::OutOfSlots) {
                return Err(error);
            }
            if step(self) {
                match self.search(request) {
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
            self.tally.misses += 1;
        }
        grown
    }

    fn grow(&mut self, request: Request) -> Result<Block, AllocError> {
        if self.space.is_none() {
            return self.grow_segments(request);
        }
        let grown = self.grow_pages(request);
        let Err(error @ AllocError { cause: Cause::OutOfMemory, .. }) = grown else { return grown };
        // Free pages between holes of the very vacancy it would go to cannot be moved there; given back, they can be had.
        let live: u64 = self.ranges.iter().map(|range| range.stats().in_use).sum();
        let (capacity, reserved) = (self.source.usage().capacity, self.reserved());
        if capacity == 0 || capacity.saturating_sub(live) >= request.bytes {
            self.trim_pages();
        }
        if self.reserved() < reserved { self.grow_pages(request).map_err(|_| error) } else { Err(error) }
    }

    /// Merges everything that is cached, as far as fences allow. True when something became free.
    pub fn coalesce(&mut self) -> bool {
        let (mut from, mut freed) = (0, false);
        let mut ticket = None;
        while let Some((at, owner, size, block)) = self.cache.take_any(from) {
            from = at;
            // One ticket covers all that an owner did: bins of one owner often follow each other.
            let covered = match ticket {
                Some((known, ticket)) if known == owner => ticket,
                _ => self.fence.record(owner),
            };
            ticket = Some((owner, covered));
            match self.settle(block, owner, covered) {
                Ok(()) => freed = true,
                // Nothing more can wait: it stays cached (or is waited for, if the cap fell), and so does its bin.
                Err(block) => {
                    let kept = self.cache.put(owner, size, block);
                    _ = kept.or_else(|block| self.give(block, owner));
                    from = at + 1;
                }
            }
        }
        freed
    }

    /// Gives a block that the cache does not take back to the range, behind its fence.
    #[cold]
    pub(super) fn give(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let ticket = self.fence.record(owner);
        let mut settled = self.settle(block, owner, ticket);
        // Refused only while its fence is pending and nothing more can wait: others are let go, or it is waited for.
        while let Err(block) = settled {
            if !self.poll_fences() && self.fence.wait(owner, ticket) == FenceState::Pending {
                core::hint::spin_loop();
            }
            settled = self.settle(block, owner, ticket);
        }
        Ok(())
    }

    /// Frees a block for all when its fence is ready, lets it wait when not. A failed fence quarantines it: it stays
    /// with the range under a name that nobody has.
    fn settle(&mut self, block: Block, owner: Owner, ticket: u64) -> Result<(), Block> {
        match self.fence.poll(owner, ticket) {
            FenceState::Ready => {
                // Never refused: it is live under a name that nobody else has.
                _ = self.ranges[self.area_of(&block)].free(block, owner);
                Ok(())
            }
            FenceState::Failed => {
                self.tally.quarantined += block.bytes;
                Ok(())
            }
            FenceState::Pending => {
                let slot = self.waiting.get_mut(self.waiting_count).ok_or(block)?;
                *slot = Waiting { entry: Some((block, owner, ticket)) };
                self.waiting_count += 1;
                Ok(())
            }
        }
    }

    /// Frees everything whose fence is ready. True when something became free. O(waiting).
    pub fn poll_fences(&mut self) -> bool {
        self.sweep(F::poll)
    }

    /// Waits for every fence and merges everything. True when something became free.
    pub(super) fn wait_for_fences(&mut self) -> bool {
        let mut freed = self.sweep(F::wait);
        // Again while something moved: fewer frees may wait than are cached.
        while self.coalesce() {
            freed |= self.sweep(F::wait);
        }
        freed | self.wait_for_cached()
    }

    /// Waits for what is cached and finds no place to wait in, up to the first fence that only time can open.
    fn wait_for_cached(&mut self) -> bool {
        let mut freed = false;
        while let Some((_, owner, size, block)) = self.cache.take_any(0) {
            let ticket = self.fence.record(owner);
            if self.fence.wait(owner, ticket) == FenceState::Pending {
                let kept = self.cache.put(owner, size, block);
                _ = kept.or_else(|block| self.give(block, owner));
                break;
            }
            freed |= self.settle(block, owner, ticket).is_ok();
        }
        freed
    }

    fn sweep(&mut self, state: impl Fn(&mut F, Owner, u64) -> FenceState) -> bool {
        let (mut at, mut freed) = (0, false);
        while at < self.waiting_count {
            let Some((block, owner, ticket)) = self.waiting[at].entry else { break };
            if state(&mut self.fence, owner, ticket) == FenceState::Pending {
                at += 1;
                continue;
            }
            self.waiting_count -= 1;
            self.waiting.swap(at, self.waiting_count);
            self.waiting[self.waiting_count] = Waiting::EMPTY;
            freed |= self.settle(block, owner, ticket).is_ok();
        }
        freed
    }
}
