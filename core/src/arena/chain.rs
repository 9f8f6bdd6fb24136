//! What happens when the range has no gap: the out-of-memory chain, and frees that wait for fences.
//!
//! Promises upward: each step is tried before the next, dearer one; after every step that freed something, the range is
//! searched again, exactly (PyTorch's allocator does not search again after it released memory, and fails spuriously).
//! Asks from below: [`Fence`] tickets of one owner that become ready in order.

use super::store::{Store, Waiting};
use super::{Arena, Coalesce};
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
            if error.cause != Cause::OutOfMemory {
                return Err(error);
            }
            if step(self) {
                match self.search(request) {
                    Ok(block) => return Ok(block),
                    Err(next) => error = next,
                }
            }
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
        if self.space.is_some() { self.grow_pages(request) } else { self.grow_segments(request) }
    }

    /// Merges everything that is cached, as far as fences allow. True when something became free.
    pub fn coalesce(&mut self) -> bool {
        let (mut from, mut freed) = (0, false);
        let mut ticket = None;
        while let Some((at, owner, _, block)) = self.cache.take_any(from) {
            from = at;
            // One ticket covers all that an owner did: bins of one owner often follow each other.
            let covered = match ticket {
                Some((known, ticket)) if known == owner => ticket,
                _ => self.fence.record(owner),
            };
            ticket = Some((owner, covered));
            freed |= self.settle(block, owner, covered).is_ok();
        }
        freed
    }

    /// Gives a block that the cache does not take back to the range, behind its fence.
    #[cold]
    pub(super) fn give(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let ticket = self.fence.record(owner);
        // Refused only when its fence is pending and nothing more can wait: then it is waited for.
        if let Err(block) = self.settle(block, owner, ticket) {
            while self.fence.wait(owner, ticket) == FenceState::Pending {
                core::hint::spin_loop();
            }
            let area = self.area_of(&block);
            self.ranges[area].free(block, owner)?;
        }
        Ok(())
    }

    /// Frees a block for all when its fence is ready, lets it wait when not. A failed fence quarantines it: it stays
    /// with the range under a name that nobody has.
    fn settle(&mut self, block: Block, owner: Owner, ticket: u64) -> Result<(), Block> {
        match self.fence.poll(owner, ticket) {
            FenceState::Ready => self.ranges[self.area_of(&block)].free(block, owner).map_err(|_| block),
            FenceState::Failed => Ok(()),
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

    /// Waits for every fence. True when something became free.
    pub(super) fn wait_for_fences(&mut self) -> bool {
        self.sweep(F::wait)
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

    /// Whether frees are cached at all.
    pub fn is_lazy(&self) -> bool {
        self.settings.coalesce != Coalesce::AtOnce
    }
}
