//! The lease word, as calls and leases take it and give it back.
//!
//! Promises upward: a lease that is held is counted as pinned, within the cap but for calls, which give theirs back at
//! once; who gives back one that stood in somebody's way says so.

use super::Shared;
use super::body::Body;
use super::error::Error;
use super::state::State;
use crate::ledger::{Event, Id, TierKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_core::lease::LeaseError;
use terrace_core::residence::Tier;

/// A lease of a call that reads on a device, in its turn. Dropped, it is given back.
pub(super) struct Held<'a> {
    shared: &'a Shared,
    body: &'a Body,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.unshare(self.body);
        self.shared.uncount(self.body);
    }
}

impl State {
    /// Counts a buffer as leased.
    ///
    /// # Errors
    /// [`Error::PinnedCap`], after all that are not leased any more were taken off.
    fn pin(&mut self, body: &Body, cap: u64) -> Result<(), Error> {
        // Another has counted it since it was found uncounted.
        if body.lease.is_counted() {
            return Ok(());
        }
        if self.pinned + body.weight() > cap {
            let idle = self.bodies.values().filter(|body| matches!(body.lease.clear_counted(), Ok(true)));
            self.pinned -= idle.map(|body| body.weight()).sum::<u64>();
        }
        if self.pinned + body.weight() > cap {
            return Err(Error::PinnedCap { asked: body.weight(), pinned: self.pinned, cap });
        }
        // Closed meanwhile: the next try finds out.
        if body.lease.set_counted() == Ok(true) {
            self.pinned += body.weight();
        }
        Ok(())
    }
}

impl Shared {
    /// A call is not refused for the cap of leases, as it gives its own back at once: what it counted above the cap is
    /// taken off again.
    pub(super) fn uncount(&self, body: &Body) {
        if !self.over_cap.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if state.pinned > self.pinned_cap && body.lease.clear_counted() == Ok(true) {
            state.pinned -= body.weight();
        }
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
    }

    /// Counts a buffer as leased; `cap` is no limit for calls.
    fn pin(&self, body: &Body, cap: u64) -> Result<(), Error> {
        let mut state = self.state();
        state.pin(body, cap)?;
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a shared lease for the address in memory. `None`: the bytes are not there, or are being moved.
    #[inline]
    pub(super) fn share_memory(&self, body: &Body, cap: u64) -> Result<Option<*mut u8>, Error> {
        let start = self.share(body, cap)?;
        if start.is_some_and(<*mut u8>::is_null) {
            self.unshare(body);
            return Ok(None);
        }
        Ok(start)
    }

    /// Takes a shared lease, counted as long as the cap allows: the address in memory, null where only a device has
    /// one. `None`: the bytes are in files only, or are being moved.
    #[inline]
    pub(super) fn share(&self, body: &Body, cap: u64) -> Result<Option<*mut u8>, Error> {
        loop {
            match body.lease.acquire_shared() {
                Ok(()) => return Ok(Some(body.best.load(Ordering::Acquire))),
                Err(LeaseError::Uncounted) => self.pin(body, cap)?,
                Err(LeaseError::Closed) if body.is_freed() => return Err(Error::Freed),
                Err(LeaseError::Closed) => return Ok(None),
                Err(LeaseError::Busy | LeaseError::TooMany) => return Err(Error::Leased),
            }
        }
    }

    /// Gives a shared lease back.
    pub(super) fn unshare(&self, body: &Body) {
        if body.lease.release_shared() {
            self.released(body.id);
        }
    }

    /// Takes the exclusive lease of memory. `None` as for [`share_memory`](Self::share_memory).
    pub(super) fn exclude_memory(
        self: &Arc<Self>,
        body: &Body,
        range: (u64, u64),
        cap: u64,
    ) -> Result<Option<*mut u8>, Error> {
        // Looked at first: the word is not taken for nothing.
        if body.best.load(Ordering::Relaxed).is_null() && !body.is_freed() {
            return body.is_own().map(|()| None);
        }
        let tier = self.exclude(body, range, cap, &|tier| self.kind(tier) == TierKind::Memory)?;
        Ok(tier.map(|_| body.best.load(Ordering::Relaxed)))
    }

    /// Takes the exclusive lease, and says that these bytes will be others in the best tier that has them and is one of
    /// those. `None`: none is, or they are being moved.
    pub(super) fn exclude(
        self: &Arc<Self>,
        body: &Body,
        (offset, bytes): (u64, u64),
        cap: u64,
        those: &dyn Fn(Tier) -> bool,
    ) -> Result<Option<Tier>, Error> {
        body.is_own()?;
        loop {
            match body.lease.acquire_exclusive() {
                Ok(()) => break,
                Err(LeaseError::Uncounted) => self.pin(body, cap)?,
                Err(LeaseError::Closed) if body.is_freed() => return Err(Error::Freed),
                Err(LeaseError::Closed) => return Ok(None),
                Err(LeaseError::Busy | LeaseError::TooMany) => return Err(Error::Leased),
            }
        }
        let mut state = self.state();
        // The lease keeps motions away.
        let view = state.ledger.view(body.id);
        let newest = view.map(|view| self.tiers().find(|tier| those(*tier) && view.residence.valid(*tier)));
        let wrote = newest.and_then(|tier| match tier {
            Some(tier) => state.handle(self, Event::Wrote { id: body.id, tier }).map(|()| Some(tier)),
            None => Ok(None),
        });
        self.unlock(state);
        match wrote {
            Ok(Some(tier)) => {
                body.copies().wrote(body.chunks(offset, bytes));
                if self.kind(tier) == TierKind::Device {
                    // What memory has is old now.
                    body.best.store(std::ptr::null_mut(), Ordering::Release);
                }
                Ok(Some(tier))
            }
            other => {
                self.include(body);
                other.map_err(Into::into)
            }
        }
    }

    /// Gives the exclusive lease back.
    pub(super) fn include(&self, body: &Body) {
        if body.lease.release_exclusive() {
            self.released(body.id);
        }
    }

    /// A lease that stood in the way is given back: the ledger goes on, on a task, since who drops a lease should not
    /// wait.
    pub(super) fn released(&self, id: Id) {
        if self.is_here().is_err() {
            return;
        }
        let Some(shared) = self.own.upgrade() else { return };
        let tasks = self.tasks.clone();
        drop(tasks.spawn(async move {
            let mut state = shared.state();
            let _ = state.handle(&shared, Event::Released { id });
            shared.unlock(state);
        }));
    }

    /// A lease for a call that takes time. `None` as for [`share`](Self::share).
    pub(super) fn hold<'a>(&'a self, body: &'a Body) -> Result<Option<Held<'a>>, Error> {
        Ok(self.share(body, u64::MAX)?.map(|_| Held { shared: self, body }))
    }
}
