//! Dormant buffers: durable ones of an earlier run that no user has opened yet. They count in sums and have no record.
//!
//! Promises upward: a dormant buffer takes its room in its tier and of its tenant's caps, as one with a record does.
//! Asks from below: a caller that has all of them, and names each that is opened.
//!
//! The ledger may know sums alone because it has nothing to decide about such a buffer:
//! - its only copy survives a power cut. That copy is neither redundant nor has an exit (`eviction`): no request, resize,
//!   budget, maintenance or room ahead takes it out of its tier, however full that is
//! - moves and frees name a buffer by its id, which a dormant one gets when it is adopted; it is not leased before
//! - a suspended tier takes no copies, and keeps those that it has; the same goes for a disk that fails

use super::account::MAX_CAPACITY;
use super::error::{Refusal, RefusalReason, Rejected};
use super::queue::PendingRequest;
use super::table::BufferRecord;
use super::types::Action;
use super::{EventContext, Ledger, Tier};
use terrace_core::residence::Residence;

impl Ledger {
    /// Counts a durable buffer of an earlier run, which stays dormant.
    ///
    /// It has no record until [`LedgerEvent::Adopt`](super::LedgerEvent::Adopt):
    /// the ledger knows sums of such buffers and moves none. Its copy in the tier must survive a power cut.
    ///
    /// It counts even beyond capacity and caps: a tier or tenant above its limits takes no further bytes until enough have
    /// left. The ledger acts on that, and reports the pressure, with the next event.
    ///
    /// # Errors
    /// [`RefusalReason::Empty`], or [`RefusalReason::TooLarge`] where a sum would overflow: then nothing has changed.
    ///
    /// # Panics
    /// If there is no such tenant or tier.
    pub fn recover(&mut self, bytes: u64, tenant: u16, tier: Tier) -> Result<(), Refusal> {
        let (at, state) = (usize::from(tier), &mut self.tiers[usize::from(tier)]);
        let largest = state.largest_copy(MAX_CAPACITY.saturating_sub(state.used));
        if bytes == 0 || bytes > largest {
            let reason = if bytes == 0 { RefusalReason::Empty } else { RefusalReason::TooLarge };
            return Err(Refusal { reason, requested: bytes, largest });
        }
        let (held, tenant) = (state.footprint(bytes), &mut self.tenants[usize::from(tenant)]);
        for sum in [&mut state.used, &mut tenant.held[at], &mut tenant.dormant_held[at]] {
            *sum += held;
        }
        (tenant.bytes, tenant.dormant) = (tenant.bytes + bytes, tenant.dormant + bytes);
        state.over_limit = state.used > state.capacity;
        tenant.over_limit = tenant.exceeds_caps();
        Ok(())
    }

    /// Gives a dormant buffer a record: its bytes count already.
    pub(super) fn adopt(
        &mut self,
        request: PendingRequest,
        tier: Tier,
        context: &mut EventContext<'_>,
    ) -> Result<(), Rejected> {
        self.check_request(&request)?;
        let (PendingRequest { ticket, bytes, tenant, hint, .. }, at) = (request, usize::from(tier));
        let held = self.tiers.get(at).ok_or(Rejected::NoSuchTier)?.footprint(bytes);
        let whose = &mut self.tenants[usize::from(tenant)];
        if bytes == 0 || bytes > whose.dormant || held > whose.dormant_held[at] {
            return Err(Rejected::Stale);
        }
        if !self.buffers.has_room() {
            return Err(Rejected::Buffers);
        }
        let new = BufferRecord::new(bytes, tenant, hint, Residence::new(tier)?, ticket);
        (whose.dormant, whose.dormant_held[at]) = (whose.dormant - bytes, whose.dormant_held[at] - held);
        let id = self.buffers.insert(BufferRecord { synced: Some((tier, 0)), ticket: None, ..new });
        self.update_policies(id.index);
        context.actions.push(Action::Grant { ticket, id, tier, zero: false });
        Ok(())
    }
}
