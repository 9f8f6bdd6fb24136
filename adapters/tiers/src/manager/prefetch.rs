//! Announced uses: buffers that are fetched before they are asked for.
//!
//! Promises upward: a prefetch that could not be met says so; a lessee that asks for a buffer which is being prefetched
//! takes the prefetch over.
//! Asks from below: the ledger, which protects prefetched buffers until they are used.

use super::buffer_state::BufferState;
use super::error::Error;
use super::state::State;
use super::{Buffer, Manager, ManagerShared};
use crate::ledger::{LedgerEvent, PrefetchStats};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::JoinHandle;

impl ManagerShared {
    /// Fetches a buffer that will be used soon.
    pub(super) async fn prefetch(self: &Arc<Self>, buffer: &Arc<BufferState>) -> Result<(), Error> {
        if buffer.read_ahead()? {
            return Ok(());
        }
        let tier = self.memory().unwrap_or_default();
        self.request_move(buffer, LedgerEvent::Prefetch { id: buffer.id }, tier).await
    }

    /// Marks a buffer as used, and as the first to leave its tier.
    pub(super) fn drop_behind(self: &Arc<Self>, buffer: &BufferState) {
        buffer.lease.take_visits();
        let mut state = self.state();
        let _ = state.handle(self, LedgerEvent::Used { id: buffer.id });
        self.unlock(state);
    }
}

impl State {
    /// Turns a pending prefetch of a buffer into a promotion that a user waits for; all its waiters get that one's end.
    pub(super) fn hasten(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState, to: Tier) {
        let (id, promotion) = (buffer.id, LedgerEvent::Promote { id: buffer.id, to });
        if self.ledger.prefetching(id) == Some(to)
            && let Some((event @ LedgerEvent::Prefetch { .. }, _)) = self.waiters.get_mut(&id)
        {
            *event = promotion;
            let _ = self.handle(shared, promotion);
        }
    }
}

impl Manager {
    /// Announces a use of a buffer: it is promoted, and stays until it is used.
    ///
    /// Its tier is that of its hint, or else memory. Others make way for it, but none that was prefetched and not used
    /// yet; an allocation that waits comes first. Does not wait; [`prefetch_async`](Self::prefetch_async) tells how it
    /// ended.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::OtherManager`].
    pub fn prefetch(&self, buffer: &Buffer) -> Result<(), Error> {
        self.shared.check_process()?;
        self.shared_of(buffer)?;
        if buffer.handle.buffer.is_freed() {
            return Err(Error::Freed);
        }
        drop(self.prefetch_async(buffer));
        Ok(())
    }

    /// As [`prefetch`](Self::prefetch), as a future that tells how it ended; begins at once.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if no room can be made; [`Error::Leased`] while any lease is held; [`Error::Freed`],
    /// [`Error::OtherManager`]; the error of a failed copy.
    pub fn prefetch_async(&self, buffer: &Buffer) -> JoinHandle<Result<(), Error>> {
        let (own, buffer) = (self.shared_of(buffer), buffer.clone());
        let fetched = self.shared.tasks.begin(async move { own?.prefetch(&buffer.handle.buffer).await });
        fetched.in_child(|| Err(Error::Forked))
    }

    /// What became of prefetches so far.
    pub fn prefetch_stats(&self) -> PrefetchStats {
        self.shared
            .check_process()
            .map_or_else(|_| PrefetchStats::default(), |()| self.shared.state().ledger.prefetches())
    }
}
