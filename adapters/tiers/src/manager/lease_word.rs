//! Acquires and releases the lease word for calls and leases.
//!
//! Promises upward: a held lease is counted as pinned, within the cap except for calls, which release theirs before
//! they end; releasing a lease that blocked a migration notifies the ledger.

use super::ManagerShared;
use super::buffer_state::BufferState;
use super::error::Error;
use super::move_request::MoveWaiter;
use super::state::State;
use crate::ledger::{BufferId, LeaseStatus, LedgerEvent, Medium, Rejected};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_core::lease::LeaseError;
use terrace_core::residence::Tier;

/// The shared lease of a call that reads on a device. Dropping it releases the lease.
pub(super) struct CallLease<'a> {
    shared: &'a ManagerShared,
    buffer: &'a BufferState,
}

impl Drop for CallLease<'_> {
    fn drop(&mut self) {
        self.shared.release_shared(self.buffer);
        self.shared.uncount_over_cap(self.buffer);
    }
}

impl State {
    /// Counts a buffer as pinned.
    ///
    /// # Errors
    /// [`Error::PinnedCap`] if the cap would be exceeded even after all buffers without leases are uncounted.
    fn pin(&mut self, buffer: &BufferState, cap: u64) -> Result<(), Error> {
        // Another thread may have counted the buffer meanwhile.
        if buffer.lease.is_counted() {
            return Ok(());
        }
        if self.pinned + buffer.weight() > cap {
            let idle = self.buffers.values().filter(|buffer| matches!(buffer.lease.clear_counted(), Ok(true)));
            self.pinned -= idle.map(|buffer| buffer.weight()).sum::<u64>();
        }
        if self.pinned + buffer.weight() > cap {
            return Err(Error::PinnedCap { asked: buffer.weight(), pinned: self.pinned, cap });
        }
        // If the lease word was closed meanwhile, nothing is counted, and the next attempt to acquire it fails.
        if buffer.lease.set_counted() == Ok(true) {
            self.pinned += buffer.weight();
        }
        Ok(())
    }
}

impl ManagerShared {
    /// Uncounts a call's buffer if more than the cap is pinned. Calls may pin above the cap, as they release their
    /// leases before they end.
    pub(super) fn uncount_over_cap(&self, buffer: &BufferState) {
        if !self.over_cap.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if state.pinned > self.pinned_cap && buffer.lease.clear_counted() == Ok(true) {
            state.pinned -= buffer.weight();
        }
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
    }

    /// Counts a buffer as pinned, within `cap`; calls pass `u64::MAX`, which is no limit.
    fn pin(&self, buffer: &BufferState, cap: u64) -> Result<(), Error> {
        let mut state = self.state();
        state.pin(buffer, cap)?;
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
        Ok(())
    }

    /// Acquires a shared lease of the bytes in memory; returns their address. `None` if memory does not have the newest
    /// bytes, or they are being moved.
    #[inline]
    pub(super) fn acquire_shared_memory(&self, buffer: &BufferState, cap: u64) -> Result<Option<*mut u8>, Error> {
        let start = self.acquire_shared(buffer, cap)?;
        if start.is_some_and(<*mut u8>::is_null) {
            self.release_shared(buffer);
            return Ok(None);
        }
        Ok(start)
    }

    /// Acquires a shared lease and counts the buffer as pinned, within `cap`. Returns the bytes' address in memory,
    /// null if only a device has them; `None` if only files have them, or they are being moved.
    #[inline]
    pub(super) fn acquire_shared(&self, buffer: &BufferState, cap: u64) -> Result<Option<*mut u8>, Error> {
        loop {
            match buffer.lease.acquire_shared() {
                Ok(()) => return Ok(Some(buffer.best.load(Ordering::Acquire))),
                Err(LeaseError::Uncounted) => self.pin(buffer, cap)?,
                Err(LeaseError::Closed) if buffer.is_freed() => return Err(Error::Freed),
                Err(LeaseError::Closed) => return Ok(None),
                Err(LeaseError::Busy | LeaseError::TooMany) => return Err(Error::Leased),
            }
        }
    }

    /// Releases a shared lease.
    pub(super) fn release_shared(&self, buffer: &BufferState) {
        if buffer.lease.release_shared() {
            self.notify_released(buffer.id);
        }
    }

    /// Acquires the exclusive lease of the bytes in memory. `None` as for
    /// [`acquire_shared_memory`](Self::acquire_shared_memory).
    pub(super) fn acquire_exclusive_memory(
        self: &Arc<Self>,
        buffer: &BufferState,
        range: (u64, u64),
        cap: u64,
    ) -> Result<Option<*mut u8>, Error> {
        // If memory has no newest bytes, acquiring the lease would be in vain.
        if buffer.best.load(Ordering::Relaxed).is_null() && !buffer.is_freed() {
            return buffer.check_unmapped().map(|()| None);
        }
        let tier = self.acquire_exclusive(buffer, range, cap, &|tier| self.medium(tier) == Medium::Memory)?;
        Ok(tier.map(|_| buffer.best.load(Ordering::Relaxed)))
    }

    /// Acquires the exclusive lease, and records a write to these bytes in the best tier that has the newest ones and
    /// that `those` accepts. `None` if there is no such tier, or the bytes are being moved.
    pub(super) fn acquire_exclusive(
        self: &Arc<Self>,
        buffer: &BufferState,
        (offset, bytes): (u64, u64),
        cap: u64,
        those: &dyn Fn(Tier) -> bool,
    ) -> Result<Option<Tier>, Error> {
        buffer.check_unmapped()?;
        loop {
            match buffer.lease.acquire_exclusive() {
                Ok(()) => break,
                Err(LeaseError::Uncounted) => self.pin(buffer, cap)?,
                Err(LeaseError::Closed) if buffer.is_freed() => return Err(Error::Freed),
                Err(LeaseError::Closed) => return Ok(None),
                Err(LeaseError::Busy | LeaseError::TooMany) => return Err(Error::Leased),
            }
        }
        let mut state = self.state();
        // The lease keeps migrations from the bytes.
        let view = state.ledger.view(buffer.id);
        let newest = view.map(|view| self.tiers().find(|tier| those(*tier) && view.residence.valid(*tier)));
        let wrote = newest.and_then(|tier| match tier {
            Some(tier) => state.handle(self, LedgerEvent::Wrote { id: buffer.id, tier }).map(|()| Some(tier)),
            None => Ok(None),
        });
        self.unlock(state);
        match wrote {
            Ok(Some(tier)) => {
                buffer.copies().wrote(buffer.chunks(offset, bytes));
                if self.medium(tier) == Medium::Device {
                    // The bytes will be written on the device: the copy in memory is stale now.
                    buffer.best.store(std::ptr::null_mut(), Ordering::Release);
                }
                Ok(Some(tier))
            }
            other => {
                self.release_exclusive(buffer);
                match other {
                    // A copy to files that has not begun lets leases be acquired, but is a migration already.
                    Err(Rejected::Moving) => Ok(None),
                    other => other.map_err(Into::into),
                }
            }
        }
    }

    /// Releases the exclusive lease.
    pub(super) fn release_exclusive(&self, buffer: &BufferState) {
        if buffer.lease.release_exclusive() {
            self.notify_released(buffer.id);
        }
    }

    /// Notifies the ledger that a lease that blocked a migration was released. A task does this, so that dropping a
    /// lease does not wait for the manager's lock.
    pub(super) fn notify_released(&self, id: BufferId) {
        if self.check_process().is_err() {
            return;
        }
        let Some(shared) = self.own.upgrade() else { return };
        let tasks = self.tasks.clone();
        drop(tasks.spawn(async move {
            let mut state = shared.state();
            let _ = state.handle(&shared, LedgerEvent::Released { id });
            shared.unlock(state);
        }));
    }

    /// Acquires a shared lease for a call that reads on a device. `None` as for
    /// [`acquire_shared`](Self::acquire_shared).
    pub(super) fn acquire_for_call<'a>(&'a self, buffer: &'a BufferState) -> Result<Option<CallLease<'a>>, Error> {
        Ok(self.acquire_shared(buffer, u64::MAX)?.map(|_| CallLease { shared: self, buffer }))
    }
}

/// Whether the requested move of a buffer is a replication, which can run while the buffer is read.
pub(super) fn is_replicating(waiters: &HashMap<BufferId, (LedgerEvent, Vec<MoveWaiter>)>, id: BufferId) -> bool {
    waiters.get(&id).is_some_and(|(wanted, _)| matches!(wanted, LedgerEvent::Replicate { .. }))
}

/// Returns the lease status of a buffer. If `read` is true, shared leases do not count, as the move only reads the
/// bytes.
pub(super) fn lease_status(
    buffers: &BTreeMap<BufferId, Arc<BufferState>>,
    busy: &BTreeSet<BufferId>,
    id: BufferId,
    read: bool,
) -> LeaseStatus {
    match buffers.get(&id) {
        _ if busy.contains(&id) => LeaseStatus::Leased,
        // The ledger has granted this buffer, but the manager performs that action next.
        None => LeaseStatus::Leased,
        Some(buffer) if read && buffer.lease.is_shared() => LeaseStatus::RecentlyUsed(1),
        // After `set_wanted`, the release of the last lease notifies the ledger. For a move that only reads, a lease
        // acquired meanwhile matters only if it is exclusive.
        Some(buffer) if buffer.lease.set_wanted() && !(read && buffer.lease.is_shared()) => LeaseStatus::Leased,
        Some(buffer) => match buffer.lease.take_visits() {
            0 => LeaseStatus::Idle,
            visits => LeaseStatus::RecentlyUsed(visits),
        },
    }
}
