//! Acquires and releases the lease word for calls and leases.
//!
//! Promises upward: a held lease is counted as pinned, within the cap; calls hold brief leases, which count for nothing
//! and end before the call does; releasing a lease that blocked a migration notifies the ledger.

use super::ManagerShared;
use super::buffer_state::BufferState;
use super::error::Error;
use super::move_request::MoveWaiter;
use super::raw_bytes::RawBytes;
use super::state::State;
use crate::ledger::{BufferId, LeaseStatus, LedgerEvent, Medium, Rejected};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_core::lease::LeaseError;
use terrace_core::residence::Tier;

/// The outcome of an attempt to use a buffer's bytes, which does not wait.
pub(super) enum Attempt<T> {
    Taken(T),
    /// The bytes are not where they were asked for, or are being moved.
    Elsewhere,
    /// Only brief leases stand in the way: [`BufferState::brief_leases_end`].
    Brief,
}

impl<T> Attempt<T> {
    #[inline]
    pub(super) fn map<U>(self, taken: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Taken(value) => Attempt::Taken(taken(value)),
            Self::Elsewhere => Attempt::Elsewhere,
            Self::Brief => Attempt::Brief,
        }
    }

    #[inline]
    pub(super) fn and_then<U>(self, taken: impl FnOnce(T) -> Result<Attempt<U>, Error>) -> Result<Attempt<U>, Error> {
        match self {
            Self::Taken(value) => taken(value),
            Self::Elsewhere => Ok(Attempt::Elsewhere),
            Self::Brief => Ok(Attempt::Brief),
        }
    }

    /// The outcome for a caller that never waits.
    ///
    /// # Errors
    /// [`Error::Leased`] for brief leases.
    #[inline]
    pub(super) fn now(self) -> Result<Option<T>, Error> {
        match self {
            Self::Taken(value) => Ok(Some(value)),
            Self::Elsewhere => Ok(None),
            Self::Brief => Err(Error::Leased),
        }
    }
}

/// What a lease is acquired for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// A user's lease, which counts as pinned.
    Lease,
    /// A call, which releases its brief lease before it ends.
    Call,
}

/// The lease of a call. Dropping it releases the lease.
pub(super) struct CallLease<'a> {
    shared: &'a ManagerShared,
    buffer: &'a BufferState,
    /// The bytes in memory; `None` if only a device has them.
    pub memory: Option<RawBytes>,
}

impl Drop for CallLease<'_> {
    fn drop(&mut self) {
        self.shared.release_shared(self.buffer, Purpose::Call);
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
    /// Acquires a shared lease of the bytes in memory; returns their address.
    #[inline]
    pub(super) fn acquire_shared_memory(&self, buffer: &BufferState) -> Result<Attempt<*mut u8>, Error> {
        self.acquire_shared(buffer, Purpose::Lease)?.and_then(|start| {
            if !start.is_null() {
                return Ok(Attempt::Taken(start));
            }
            self.release_shared(buffer, Purpose::Lease);
            Ok(Attempt::Elsewhere)
        })
    }

    /// Acquires a shared lease. Returns the bytes' address in memory, null if only a device has them.
    #[inline]
    pub(super) fn acquire_shared(&self, buffer: &BufferState, purpose: Purpose) -> Result<Attempt<*mut u8>, Error> {
        loop {
            let acquired = match purpose {
                Purpose::Lease => buffer.lease.acquire_shared(),
                // Where a copy lasts, as it does beside readers, they need not yield to those that wait for its end.
                Purpose::Call => buffer.lease.acquire_brief(!buffer.phase.get().is_moving()),
            };
            match acquired {
                Ok(()) => return Ok(Attempt::Taken(buffer.best.load(Ordering::Acquire))),
                Err(refused) if self.again(buffer, refused)? => {}
                Err(LeaseError::Brief) => return Ok(Attempt::Brief),
                Err(_) => return Ok(Attempt::Elsewhere),
            }
        }
    }

    /// After an attempt that was refused: counts the buffer as pinned and returns true, if the attempt needs that.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Leased`], [`Error::PinnedCap`].
    fn again(&self, buffer: &BufferState, refused: LeaseError) -> Result<bool, Error> {
        match refused {
            LeaseError::Uncounted => self.state().pin(buffer, self.pinned_cap.load(Ordering::Relaxed)).map(|()| true),
            LeaseError::Closed if buffer.is_freed() => Err(Error::Freed),
            LeaseError::Closed | LeaseError::Brief => Ok(false),
            LeaseError::Busy | LeaseError::TooMany => Err(Error::Leased),
        }
    }

    /// Acquires a shared lease for a call.
    pub(super) fn acquire_for_call<'a>(&'a self, buffer: &'a BufferState) -> Result<Attempt<CallLease<'a>>, Error> {
        Ok(self.acquire_shared(buffer, Purpose::Call)?.map(|start| {
            let memory = (!start.is_null()).then(|| RawBytes::new(start, buffer.bytes as usize));
            CallLease { shared: self, buffer, memory }
        }))
    }

    /// Releases a lease that is not exclusive, or a call's that is.
    pub(super) fn release_shared(&self, buffer: &BufferState, purpose: Purpose) {
        let wanted = match purpose {
            Purpose::Lease => buffer.lease.release_shared(),
            Purpose::Call => buffer.lease.release_brief(),
        };
        if wanted {
            self.notify_released(buffer);
        }
    }

    /// Acquires the exclusive lease of the bytes in memory; returns their address.
    pub(super) fn acquire_exclusive_memory(
        self: &Arc<Self>,
        buffer: &BufferState,
        range: (u64, u64),
        purpose: Purpose,
    ) -> Result<Attempt<*mut u8>, Error> {
        // If memory has no newest bytes, acquiring the lease would be in vain.
        if buffer.best.load(Ordering::Relaxed).is_null() && !buffer.is_freed() {
            return buffer.check_unmapped().map(|()| Attempt::Elsewhere);
        }
        // Looked at again once the lease is held: what was there may have been dropped, and be blank memory now.
        let there = |tier| self.medium(tier) == Medium::Memory && !buffer.best.load(Ordering::Relaxed).is_null();
        let taken = self.acquire_exclusive(buffer, range, purpose, &there)?;
        Ok(taken.map(|_| buffer.best.load(Ordering::Relaxed)))
    }

    /// Acquires the exclusive lease, and records a write to these bytes in the best tier that has the newest ones and
    /// that `those` accepts.
    pub(super) fn acquire_exclusive(
        self: &Arc<Self>,
        buffer: &BufferState,
        (offset, bytes): (u64, u64),
        purpose: Purpose,
        those: &dyn Fn(Tier) -> bool,
    ) -> Result<Attempt<Tier>, Error> {
        buffer.check_unmapped()?;
        loop {
            let acquired = match purpose {
                Purpose::Lease => buffer.lease.acquire_exclusive(),
                Purpose::Call => buffer.lease.acquire_brief_exclusive(),
            };
            match acquired {
                Ok(()) => break,
                Err(refused) if self.again(buffer, refused)? => {}
                Err(LeaseError::Brief) => return Ok(Attempt::Brief),
                Err(_) => return Ok(Attempt::Elsewhere),
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
                Ok(Attempt::Taken(tier))
            }
            other => {
                self.release_exclusive(buffer, purpose);
                match other {
                    // A copy to files that has not begun lets leases be acquired, but is a migration already.
                    Ok(_) | Err(Rejected::Moving) => Ok(Attempt::Elsewhere),
                    Err(rejected) => Err(rejected.into()),
                }
            }
        }
    }

    /// Releases the exclusive lease.
    pub(super) fn release_exclusive(&self, buffer: &BufferState, purpose: Purpose) {
        match purpose {
            Purpose::Lease if buffer.lease.release_exclusive() => self.notify_released(buffer),
            Purpose::Lease => {}
            Purpose::Call => self.release_shared(buffer, purpose),
        }
    }

    /// Notifies callers that wait for brief leases, and the ledger, of the release of a lease that they want. A task
    /// notifies the ledger, so that dropping a lease does not wait for the manager's lock.
    pub(super) fn notify_released(&self, buffer: &BufferState) {
        if self.check_process().is_err() {
            return;
        }
        buffer.notify_changed();
        let (Some(shared), id) = (self.own.upgrade(), buffer.id) else { return };
        let tasks = self.tasks.clone();
        drop(tasks.spawn(async move {
            let mut state = shared.state();
            let _ = state.handle(&shared, LedgerEvent::Released { id });
            shared.unlock(state);
        }));
    }
}

/// Whether the requested move of a buffer is a replication, which can run while the buffer is read.
pub(super) fn is_replicating(waiters: &HashMap<BufferId, (LedgerEvent, Vec<MoveWaiter>)>, id: BufferId) -> bool {
    waiters.get(&id).is_some_and(|(wanted, _)| matches!(wanted, LedgerEvent::Replicate { .. }))
}

/// Returns the lease status of a buffer. If `read` is true, shared leases do not count, as the move only reads the
/// bytes.
pub(super) fn lease_status(buffers: &BTreeMap<BufferId, Arc<BufferState>>, id: BufferId, read: bool) -> LeaseStatus {
    match buffers.get(&id) {
        // The ledger has granted this buffer, but the manager performs that action next.
        None => LeaseStatus::Leased,
        Some(buffer) if buffer.phase.get().is_claimed() => LeaseStatus::Leased,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manager;

    #[test]
    fn a_shared_lease_is_a_use_to_a_move_that_reads_and_a_lease_to_others() {
        let manager = Manager::builder().memory(4 << 20).build().expect("it is built");
        let buffer = manager.allocate(1 << 20).expect("room");
        buffer.write(0, &[7]).expect("written");
        let status = |read| lease_status(&manager.shared.state().buffers, buffer.handle.buffer.id, read);
        let lease = buffer.lease_best().expect("leased");
        let seen = [true, true, true, false].map(status);
        let used = LeaseStatus::RecentlyUsed(1);
        assert_eq!(seen, [used, used, used, LeaseStatus::Leased], "however often it is looked at");
        drop(lease);
        assert_ne!(status(false), LeaseStatus::Leased);
    }
}
