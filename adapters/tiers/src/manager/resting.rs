//! Tiers that rest: what made them refuse is said while they do, and they are tried again as soon as it is gone.
//!
//! Asks from below: disks that can tell whether an order may succeed again.

use super::Shared;
use super::error::Error;
use super::state::State;
use crate::ledger::{Event, Refusal, Why};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::StoreError;
use terrace_guard::calm;

impl State {
    /// A tier has no room: that is why, unless it rests.
    pub(super) fn no_room(&self, tier: Tier) -> Error {
        self.resting(tier).unwrap_or(Error::NoRoom { tier })
    }

    /// Why a tier takes nothing for a while, if it does not.
    fn resting(&self, tier: Tier) -> Option<Error> {
        let until = self.ledger.tier(tier)?.rests_until?;
        let why = Box::new(self.refused.get(&tier)?.clone());
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
        let refused = self.state().refused.clone();
        for (tier, _) in refused.iter().filter(|(tier, why)| self.has_recovered(**tier, why)) {
            let mut state = self.state();
            state.refused.remove(tier);
            let _ = state.handle(self, Event::Recovered { tier: *tier });
            self.unlock(state);
        }
    }

    /// Whether what made a tier of files refuse is gone.
    fn has_recovered(&self, tier: Tier, why: &Error) -> bool {
        let Error::Store(StoreError::Fault(fault)) = why else { return false };
        let mut recovered = false;
        // The disk may be a user's.
        calm(|| recovered = self.store(tier).is_ok_and(|store| store.has_recovered(fault)));
        recovered
    }
}
