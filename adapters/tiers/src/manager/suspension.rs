//! Suspended tiers: reports why, and retries them as soon as the cause is gone.
//!
//! The cause is measured by a number that rises when the cause goes away: bytes that a device or a store has left, or
//! whether a disk would accept a write. It is read when the tier fails and at each tick. A disk that would accept a
//! write right after it refused one gives no information (a quota, a limit on the size of files): its tier is suspended
//! for its full time.
//!
//! Asks from below: disks that report whether a write may succeed again; free bytes of devices and stores.

use super::ManagerShared;
use super::error::Error;
use super::state::State;
use crate::ledger::{LedgerEvent, Refusal, RefusalReason};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_device::DeviceError;
use terrace_file::StoreError;
use terrace_guard::catch_panic;

/// Why a tier is suspended.
#[derive(Clone, Debug)]
pub(super) struct Suspension {
    pub why: Error,
    /// The value of [`ManagerShared::room_after`] at which the tier is retried early.
    needs: u64,
}

impl State {
    /// The error to report for a tier without room: its suspension if it is suspended, else [`Error::NoRoom`].
    pub(super) fn no_room(&self, tier: Tier) -> Error {
        self.suspended(tier).unwrap_or(Error::NoRoom { tier })
    }

    /// Returns the causes of the current suspensions; forgets those that have ended.
    fn suspended_tiers(&mut self) -> BTreeMap<Tier, Suspension> {
        let Self { suspensions, ledger, .. } = self;
        suspensions.retain(|tier, _| ledger.tier(*tier).is_some_and(|view| view.suspended_until.is_some()));
        suspensions.clone()
    }

    /// The error to report for a suspended tier; `None` if the tier is not suspended.
    fn suspended(&self, tier: Tier) -> Option<Error> {
        let until = self.ledger.tier(tier)?.suspended_until?;
        let why = Box::new(self.suspensions.get(&tier)?.why.clone());
        Some(Error::Suspended { tier, left: until.saturating_sub(self.now), why })
    }

    /// The error to report for a refused request: a tier's suspension if one is suspended and the reason is lack of
    /// room, else the refusal.
    pub(super) fn none_has_room(&self, shared: &ManagerShared, refusal: Refusal) -> Error {
        let suspended = shared.tiers().find_map(|tier| self.suspended(tier));
        suspended.filter(|_| refusal.reason == RefusalReason::NoRoom).unwrap_or(Error::Refused(refusal))
    }
}

impl ManagerShared {
    /// Ends suspensions whose causes are gone. Queries disks without the manager's lock.
    pub(super) fn retry_suspended(self: &Arc<Self>) {
        let refused = self.state().suspended_tiers();
        let is_gone = |tier: Tier, refused: &Suspension| self.room_after(tier, &refused.why).0 >= refused.needs;
        for (tier, _) in refused.iter().filter(|(tier, refused)| is_gone(**tier, refused)) {
            let mut state = self.state();
            state.suspensions.remove(tier);
            state.has_memory_again(*tier);
            let _ = state.handle(self, LedgerEvent::TierRecovered { tier: *tier });
            self.unlock(state);
        }
    }

    /// Describes a suspension that begins now. Queries disks, so the caller must not hold the manager's lock.
    pub(super) fn suspension(&self, tier: Tier, why: Error) -> Suspension {
        let (room, more) = self.room_after(tier, &why);
        Suspension { why, needs: room.saturating_add(more).max(1) }
    }

    /// Returns a number that rises when the cause of a failure goes away, and by how much it must rise for a retry; (0,
    /// 1) if the cause cannot be measured.
    fn room_after(&self, tier: Tier, why: &Error) -> (u64, u64) {
        let room = match why {
            Error::Device(DeviceError::OutOfMemory(what)) => {
                let room = self.device_tier(tier).and_then(|gpu| gpu.room(self.medium(tier)).ok());
                room.map(|room| (room.bytes(), what.asked))
            }
            Error::Store(StoreError::Full { asked, .. }) => self.store(tier).ok().map(|store| {
                let stats = store.stats();
                (stats.cap.saturating_sub(stats.live), *asked)
            }),
            Error::Store(StoreError::Fault(fault)) => {
                let mut would = false;
                // The disk may be user code, which may panic.
                catch_panic(|| would = self.store(tier).is_ok_and(|store| store.has_recovered(fault)));
                Some((u64::from(would), 1))
            }
            _ => None,
        };
        room.unwrap_or((0, 1))
    }
}
