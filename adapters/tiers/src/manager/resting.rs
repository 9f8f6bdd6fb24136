//! Tiers that rest: what made them refuse is said while they do, and they are tried again as soon as it is gone.
//!
//! Whether it is gone is a number that rises: bytes that a device or a store has left, or whether a disk would take an
//! order. It is read when the tier refuses and in each tick. A disk that would take an order right after it refused one
//! cannot tell (a quota, a limit on the size of files): its tier rests for its time.
//!
//! Asks from below: disks that can tell whether an order may succeed again; what devices and stores have left.

use super::Shared;
use super::error::Error;
use super::state::State;
use crate::ledger::{Event, Refusal, Why};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_device::DeviceError;
use terrace_file::StoreError;
use terrace_guard::catch_panic;

/// Why a tier rests.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub why: Error,
    /// What [`Shared::room_after`] must reach for the tier to be tried before its time.
    needs: u64,
}

impl State {
    /// A tier has no room: that is why, unless it rests.
    pub(super) fn no_room(&self, tier: Tier) -> Error {
        self.resting(tier).unwrap_or(Error::NoRoom { tier })
    }

    /// What made tiers refuse that rest still.
    fn still_refused(&mut self) -> BTreeMap<Tier, Refused> {
        let Self { refused, ledger, .. } = self;
        refused.retain(|tier, _| ledger.tier(*tier).is_some_and(|view| view.rests_until.is_some()));
        refused.clone()
    }

    /// Why a tier takes nothing for a while, if it does not.
    fn resting(&self, tier: Tier) -> Option<Error> {
        let until = self.ledger.tier(tier)?.rests_until?;
        let why = Box::new(self.refused.get(&tier)?.why.clone());
        Some(Error::Resting { tier, left: until.saturating_sub(self.now), why })
    }

    /// No tier has room: that is why, unless one rests.
    pub(super) fn none_has_room(&self, shared: &Shared, refusal: Refusal) -> Error {
        let rests = shared.tiers().find_map(|tier| self.resting(tier));
        rests.filter(|_| refusal.why == Why::NoRoom).unwrap_or(Error::Refused(refusal))
    }
}

impl Shared {
    /// Tiers of which what made them refuse is gone take copies again. Disks are asked without the lock.
    pub(super) fn try_again(self: &Arc<Self>) {
        let refused = self.state().still_refused();
        let is_gone = |tier: Tier, refused: &Refused| self.room_after(tier, &refused.why).0 >= refused.needs;
        for (tier, _) in refused.iter().filter(|(tier, refused)| is_gone(**tier, refused)) {
            let mut state = self.state();
            state.refused.remove(tier);
            let _ = state.handle(self, Event::Recovered { tier: *tier });
            self.unlock(state);
        }
    }

    /// A tier refused just now. Disks are asked: without the lock.
    pub(super) fn refused(&self, tier: Tier, why: Error) -> Refused {
        let (room, more) = self.room_after(tier, &why);
        Refused { why, needs: room.saturating_add(more).max(1) }
    }

    /// A number that rises when what made a tier refuse goes, and by how much it must. 0 where nothing tells.
    fn room_after(&self, tier: Tier, why: &Error) -> (u64, u64) {
        let room = match why {
            Error::Device(DeviceError::OutOfMemory(what)) => {
                let room = self.gpu(tier).and_then(|gpu| gpu.room(self.kind(tier)).ok());
                room.map(|room| (room.bytes(), what.asked))
            }
            Error::Store(StoreError::Full { asked, .. }) => self.store(tier).ok().map(|store| {
                let stats = store.stats();
                (stats.cap.saturating_sub(stats.live), *asked)
            }),
            Error::Store(StoreError::Fault(fault)) => {
                let mut would = false;
                // The disk may be a user's.
                catch_panic(|| would = self.store(tier).is_ok_and(|store| store.has_recovered(fault)));
                Some((u64::from(would), 1))
            }
            _ => None,
        };
        room.unwrap_or((0, 1))
    }
}
