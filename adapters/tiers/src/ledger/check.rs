//! Checks every invariant of the ledger, for tests and debugging.

use super::table::{BufferRecord, Migration};
use super::{Ledger, Tier};
use std::collections::BTreeSet;
use terrace_core::Violation;
use terrace_core::error::ensure;

/// Whether a buffer's bytes count as used in a tier.
fn counts(buffer: &BufferRecord, tier: Tier) -> bool {
    let incoming = matches!(buffer.migration, Some(Migration::Copy { to, reserved: true, .. }) if to == tier);
    incoming || buffer.residence.present(tier)
}

/// Whether a buffer's migration will free its bytes in a tier.
fn leaves(buffer: &BufferRecord, tier: Tier) -> bool {
    match buffer.migration {
        Some(Migration::Copy { from, evict_source, .. }) => evict_source && from == tier,
        Some(Migration::Drop { tier: going }) => going == tier,
        None => false,
    }
}

impl Ledger {
    /// Checks every invariant. O(buffers * tiers).
    ///
    /// # Errors
    /// The first invariant that is broken, and the index of the buffer, tier, tenant or request.
    pub fn check(&self) -> Result<(), Violation> {
        self.all_tiers().try_for_each(|tier| self.check_tier(tier))?;
        (0..self.tenants.len()).try_for_each(|tenant| self.check_tenant(tenant))?;
        let awaited = self.buffers.iter().filter(|buffer| buffer.awaited.is_some()).count();
        ensure(self.awaited == awaited, "ledger: awaited = buffers that came and were not used", awaited)?;
        self.buffers.iter().try_for_each(|buffer| self.check_buffer(buffer))?;
        self.check_queues()
    }

    /// Sum of the footprints in a tier of the buffers that `of` accepts.
    fn sum(&self, tier: Tier, of: impl Fn(&BufferRecord) -> bool) -> u64 {
        self.buffers.iter().filter(|buffer| of(buffer)).map(|buffer| self.footprint(tier, buffer.bytes)).sum()
    }

    fn check_tier(&self, tier: Tier) -> Result<(), Violation> {
        let at = usize::from(tier);
        let state = &self.tiers[at];
        let dormant: u64 = self.tenants.iter().map(|tenant| tenant.dormant_held[at]).sum();
        let used = self.sum(tier, |buffer| counts(buffer, tier)) + dormant;
        ensure(state.used == used, "ledger: used = copies here and in progress to here, and dormant ones", at)?;
        let leaving = self.sum(tier, |buffer| leaves(buffer, tier));
        ensure(state.leaving == leaving, "ledger: leaving = copies whose migration frees them here", at)?;
        let comes = |buffer: &&BufferRecord| matches!(buffer.migration, Some(Migration::Copy { to, .. }) if to == tier);
        ensure(
            state.incoming == self.buffers.iter().filter(comes).count(),
            "ledger: incoming = copies in progress to here",
            at,
        )?;
        ensure(state.capacity == state.limit.min(state.budget), "ledger: capacity = min(limit, budget)", tier)?;
        ensure(
            state.over_limit == (used > state.capacity),
            "ledger: used <= capacity, but for a resize and what was recovered",
            at,
        )?;
        let listed = self.buffers.iter().filter(|buffer| self.is_candidate(buffer, tier)).count();
        ensure(
            self.policies[at].totals().0 == listed,
            "ledger: a policy knows the copies that may leave, no others",
            at,
        )
    }

    fn check_tenant(&self, at: usize) -> Result<(), Violation> {
        let tenant = &self.tenants[at];
        let own = |buffer: &BufferRecord| usize::from(buffer.tenant) == at;
        let bytes: u64 = self.buffers.iter().filter(|buffer| own(buffer)).map(|buffer| buffer.bytes).sum();
        ensure(tenant.bytes == bytes + tenant.dormant, "ledger: a tenant's bytes = its buffers, each once", at)?;
        ensure(
            tenant.over_limit == tenant.exceeds_caps(),
            "ledger: no tenant is above its caps, but for what was recovered",
            at,
        )?;
        self.all_tiers().try_for_each(|tier| {
            let held = tenant.held[usize::from(tier)];
            let copies = self.sum(tier, |buffer| own(buffer) && counts(buffer, tier));
            ensure(
                held == copies + tenant.dormant_held[usize::from(tier)],
                "ledger: held = the tenant's copies in a tier",
                at,
            )?;
            let leaving = self.sum(tier, |buffer| own(buffer) && leaves(buffer, tier));
            let known = tenant.leaving[usize::from(tier)];
            ensure(known == leaving, "ledger: leaving = the tenant's copies about to leave a tier", at)
        })
    }

    fn check_buffer(&self, buffer: &BufferRecord) -> Result<(), Violation> {
        let at = buffer.id.index();
        let residence = buffer.residence;
        residence.check()?;
        let sound = match buffer.migration {
            Some(Migration::Copy { from, to, reserved, .. }) => {
                from != to && residence.valid(from) && reserved != residence.present(to) && !residence.valid(to)
            }
            Some(Migration::Drop { tier }) => residence.present(tier) && buffer.is_redundant(tier),
            None => !buffer.freed,
        };
        ensure(sound, "ledger: a migration is possible, and a freed buffer has one", at)?;
        ensure(!buffer.selected, "ledger: a buffer is selected only while a plan is made", at)?;
        let kept = buffer.synced.is_none_or(|(tier, _)| residence.present(tier));
        ensure(kept, "ledger: the copy that survives a power cut is there", at)?;
        for tier in self.all_tiers().filter(|tier| self.is_candidate(buffer, *tier)) {
            ensure(
                self.policies[usize::from(tier)].contains(buffer.id.index),
                "ledger: a policy knows the copies that may leave",
                at,
            )?;
        }
        let watched = buffer.migration.is_some() || buffer.deferred;
        let queued =
            buffer.pending_move.is_none_or(|request| watched || buffer.queued[usize::from(request.is_promotion())]);
        ensure(queued, "ledger: a pending move is in its queue, or will be when something ends", at)?;
        let granted = buffer.ticket.is_none_or(|ticket| self.granted.get(&ticket) == Some(&buffer.id));
        ensure(granted, "ledger: a buffer not used yet is known by its ticket", at)
    }

    fn check_queues(&self) -> Result<(), Violation> {
        let tickets: BTreeSet<u64> = self.queue.iter().map(|request| request.ticket).collect();
        let once = tickets.len() == self.queue.len() && tickets.iter().all(|ticket| !self.granted.contains_key(ticket));
        ensure(once, "ledger: a ticket waits once, or is granted", 0)?;
        let non_waiting = self.queue.iter().filter(|request| !request.wait).count();
        ensure(
            self.non_waiting == non_waiting,
            "ledger: non_waiting = queued requests that do not wait for others",
            0,
        )?;
        let keeps = self.buffers.iter().filter(|buffer| buffer.hint.keep).count();
        ensure(self.keeps == keeps, "ledger: keeps = buffers that users want kept", 0)?;
        let unused = self.buffers.iter().filter(|buffer| buffer.ticket.is_some()).count();
        ensure(self.granted.len() == unused, "ledger: granted = requests whose buffer was not used", 0)?;
        let mut deferred = self.buffers.iter().filter(|buffer| buffer.deferred);
        let listed = deferred.all(|buffer| buffer.in_deferred_list && self.deferred.contains(&buffer.id));
        ensure(listed, "ledger: a deferred buffer is in the list of those", 0)?;
        for (queue, move_queues) in self.move_queues.iter().enumerate() {
            let mut known = self.buffers.iter().filter(|buffer| buffer.queued[queue] && !buffer.freed);
            let all = known.all(|buffer| move_queues.contains(&buffer.id));
            ensure(all, "ledger: a queued move is in its queue", queue)?;
        }
        Ok(())
    }
}
