//! What must hold after each event: the ledger's figures are the world's.

use super::World;
use std::collections::BTreeSet;

impl World {
    /// The ledger's figures equal the world's.
    pub(super) fn check(&self) {
        self.ledger.check().expect("every invariant holds");
        for tier in 0..self.capacities.len() as u8 {
            let view = self.ledger.tier(tier).expect("a tier");
            assert_eq!((view.used, view.capacity), (self.in_tier(tier), self.held_at_most(tier)));
            assert_eq!(view.limit, self.capacities[usize::from(tier)]);
            assert_eq!(view.level, self.levels.get(&tier).copied().unwrap_or_default());
        }
        for (tenant, share) in (0u16..).zip(&self.shares) {
            assert_eq!(self.ledger.tenant_bytes(tenant), Some(self.bytes_of(tenant)));
            assert!(self.bytes_of(tenant) <= share.cap || self.above.contains(&tenant));
        }
        for (id, known) in self.buffers.iter().filter(|(_, known)| !known.freed) {
            let view = self.ledger.view(*id).expect("it is live");
            assert_eq!((view.bytes, view.tenant, view.version), (known.bytes, known.tenant, known.newest));
            for tier in 0..self.capacities.len() as u8 {
                let copy = self.copies.get(&(*id, tier)).copied().flatten();
                assert_eq!(view.residence.valid(tier), copy == Some(known.newest), "{id} in {tier}");
                assert_eq!(view.residence.present(tier), copy.is_some());
            }
        }
        assert_eq!(self.ledger.waiting(), self.asked.len());
        self.no_request_waits_in_vain();
        // A request that does not wait for other users is refused once nothing moves.
        assert!(
            !self.pending.is_empty() || self.asked.iter().all(|asked| asked.wait),
            "a request that does not wait for others is queued"
        );
    }

    /// The first request within its tenant's cap fits nowhere, unless tiers are suspended.
    fn no_request_waits_in_vain(&self) {
        let mut capped = BTreeSet::new();
        for asked in &self.asked {
            let free = self.shares[usize::from(asked.tenant)].cap.saturating_sub(self.bytes_of(asked.tenant));
            if capped.contains(&asked.tenant) || asked.bytes > free {
                capped.insert(asked.tenant);
                continue;
            }
            for tier in 0..self.capacities.len() as u8 {
                let view = self.ledger.tier(tier).expect("a tier");
                let cap = self.shares[usize::from(asked.tenant)].tier_caps[usize::from(tier)];
                let held = self.sum_in(tier, |tenant| tenant == asked.tenant);
                let more = self.held(tier, asked.bytes);
                let fits = view.used + more <= view.capacity && held + more <= cap && view.suspended_until.is_none();
                assert!(!fits || !self.pending.is_empty(), "{asked:?} waits while tier {tier} has room");
            }
            return;
        }
    }
}
