//! Chooses buffers to evict from a tier when room is needed.
//!
//! A search takes victims from the tier's policy, one by one, until enough bytes would leave; only then does anything
//! move. If too few can leave, nothing moves: a request that cannot be granted evicts nothing. How a victim leaves, the
//! first that applies:
//! - its copy is redundant: it is dropped
//! - the next lower tier that accepts it has room: it is copied there, then dropped
//! - room can be made in that tier: it is emptied first, in the same way, and the search is repeated afterwards, so
//!   that recently used buffers stay above others
//! - a tier further down has room: it is copied there, then dropped
//!
//! Buffers with the hint `keep`, and prefetched or promoted ones before their use, are skipped while others are enough. Only requests of the tenant itself evict below its
//! guaranteed bytes. Buffers that are in migration, deferred or leased are skipped.
//!
//! Cost: for each victim, one lease status for each member skipped, twice if all were used recently. A search that
//! failed is not repeated for as many bytes until an event may change its result; a lease released without notice
//! counts as such an event only for the next request at the head of the queue.

use super::account::Tenant;
use super::notice::Notice;
use super::table::{BufferRecord, Migration};
use super::types::{BufferId, LeaseStatus};
use super::{EventContext, EvictionCause, Ledger, Tier};
use crate::policy::Verdict;
use smallvec::SmallVec;
use terrace_core::residence::TIERS;

/// How a victim leaves a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Drop,
    Copy(Tier),
    /// Copied to this tier later, as the tier needs room first.
    Later(Tier),
}

/// The conditions of a search for victims.
#[derive(Clone, Copy)]
pub(super) struct VictimSearch {
    pub tier: Tier,
    /// Bytes to free.
    pub need: u64,
    /// The tenant that needs the room. `None`: maintenance.
    pub requester: Option<u16>,
    /// If true, victims go only to the next lower tier that accepts them, and may wait until it has room. If false,
    /// they go to any lower tier that has room now.
    pub next_tier_only: bool,
    /// Skip buffers with the hint `keep`, and those that are awaited.
    pub spare_kept: bool,
    /// Skip buffers that were granted and not used yet: their users will write them next.
    pub spare_unused: bool,
    /// Only accept a victim that is large enough alone: several victims chosen in order may find no room below where
    /// one larger buffer does.
    pub single: bool,
}

/// The victims that a search has chosen: taken out of the tier's policy and marked as `selected`.
#[derive(Default)]
pub(super) struct EvictionPlan {
    victims: Vec<(u32, Exit)>,
    pub bytes: u64,
    /// Bytes that the plan copies to each tier: `down` now, `later` once that tier has room.
    down: [u64; TIERS as usize],
    later: [u64; TIERS as usize],
    /// Bytes that leave the tier, by tenant.
    by_tenant: Vec<(u16, u64)>,
}

impl EvictionPlan {
    fn bytes_of(&self, tenant: u16) -> u64 {
        self.by_tenant.iter().find(|(one, _)| *one == tenant).map_or(0, |(_, bytes)| *bytes)
    }

    /// The lower tiers that need room before victims can go there, best first.
    fn waits_for(&self) -> impl Iterator<Item = Tier> {
        (0..TIERS).filter(|to| self.later[usize::from(*to)] > 0)
    }

    /// Adds a victim. `leaves` is its footprint in the tier that it leaves, `comes` that in the tier to which it goes.
    fn add(&mut self, index: u32, buffer: &BufferRecord, exit: Exit, [leaves, comes]: [u64; 2]) {
        self.victims.push((index, exit));
        self.bytes += leaves;
        match exit {
            Exit::Drop => {}
            Exit::Copy(to) if buffer.residence.present(to) => {}
            Exit::Copy(to) => self.down[usize::from(to)] += comes,
            Exit::Later(to) => self.later[usize::from(to)] += comes,
        }
        match self.by_tenant.iter_mut().find(|(one, _)| *one == buffer.tenant) {
            Some((_, bytes)) => *bytes += leaves,
            None => self.by_tenant.push((buffer.tenant, leaves)),
        }
    }
}

impl Ledger {
    /// Begins to evict buffers from a tier until `need` bytes leave, beyond those already leaving. Returns false if too
    /// few can leave: then none of the tier's buffers moves. For a prefetch, none leaves that is kept or was prefetched.
    pub(super) fn make_room(
        &mut self,
        tier: Tier,
        need: u64,
        by: (Option<u16>, EvictionCause),
        context: &mut EventContext<'_>,
    ) -> bool {
        self.find_room(tier, need, by, true, context)
    }

    /// As [`make_room`](Self::make_room); but unless `begins`, nothing moves where enough can leave.
    fn find_room(
        &mut self,
        tier: Tier,
        need: u64,
        (requester, cause): (Option<u16>, EvictionCause),
        begins: bool,
        context: &mut EventContext<'_>,
    ) -> bool {
        if need == 0 {
            return true;
        }
        if self.search_would_fail(tier, need, requester) {
            return false;
        }
        let (spared, prefetch) = (self.keeps + self.awaited > 0, cause == EvictionCause::Prefetch);
        for spare_kept in [true, false].into_iter().filter(|spare| if prefetch { *spare } else { spared || !*spare }) {
            for (next_tier_only, single) in [(true, false), (false, false), (false, true)] {
                let plan = self.select_victims(
                    VictimSearch { tier, need, requester, next_tier_only, spare_kept, spare_unused: false, single },
                    context.lease_status,
                );
                let found = plan.bytes >= need && self.make_room_below(&plan, (requester, cause), begins, context);
                match found && begins {
                    true => self.commit(tier, plan, cause, context),
                    false => self.abandon(tier, plan),
                }
                if found {
                    return true;
                }
            }
        }
        if !prefetch {
            self.tiers[usize::from(tier)].failed_search = Some((requester, need));
        }
        false
    }

    fn search_would_fail(&self, tier: Tier, need: u64, requester: Option<u16>) -> bool {
        self.tiers[usize::from(tier)]
            .failed_search
            .is_some_and(|(searched_for, bytes)| searched_for == requester && need >= bytes)
    }

    /// Begins to evict up to `need` bytes from a tier for maintenance, as far as buffers can leave. `most` is a further
    /// limit, which one buffer alone may exceed. Returns the bytes that began to leave.
    pub(super) fn vacate(&mut self, tier: Tier, need: u64, most: Option<u64>, context: &mut EventContext<'_>) -> u64 {
        if self.search_would_fail(tier, need, None) {
            return 0;
        }
        let need = most.map_or(need, |most| need.min(most));
        let search = VictimSearch {
            tier,
            need,
            requester: None,
            next_tier_only: false,
            spare_kept: most.is_some(),
            spare_unused: false,
            single: false,
        };
        let mut plan = self.select_victims(search, context.lease_status);
        let last = plan.victims.last().map_or(0, |(index, _)| self.footprint(tier, self.buffers[*index].bytes));
        if most.is_some_and(|most| plan.bytes > most) && plan.victims.len() > 1 {
            let surplus =
                EvictionPlan { victims: plan.victims.split_off(plan.victims.len() - 1), ..EvictionPlan::default() };
            plan.bytes -= last;
            self.abandon(tier, surplus);
        }
        let (began, cause) =
            (plan.bytes, if most.is_some() { EvictionCause::Maintenance } else { EvictionCause::Resize });
        self.commit(tier, plan, cause, context);
        if began < need && most.is_none() {
            // The remaining bytes can leave only after room is made in lower tiers.
            let rest = need - began;
            let plan =
                self.select_victims(VictimSearch { need: rest, next_tier_only: true, ..search }, context.lease_status);
            // Each lower tier that can make room does: what is left over leaves later.
            for to in plan.waits_for() {
                self.make_room(to, self.shortfall_of(&plan, to), (None, cause), context);
            }
            self.abandon(tier, plan);
            self.tiers[usize::from(tier)].failed_search = Some((None, rest));
        }
        began
    }

    /// Makes room in lower tiers for the victims that go there later; returns false if a tier cannot make it. Where several
    /// must, each is searched by itself first, so that no tier is emptied in vain where another can make no room at all.
    fn make_room_below(
        &mut self,
        plan: &EvictionPlan,
        by: (Option<u16>, EvictionCause),
        begins: bool,
        context: &mut EventContext<'_>,
    ) -> bool {
        let rehearses = begins && plan.waits_for().count() > 1;
        let mut all = |begins: bool| {
            plan.waits_for().all(|to| self.find_room(to, self.shortfall_of(plan, to), by, begins, context))
        };
        (!rehearses || all(false)) && all(begins)
    }

    /// Bytes that must leave a lower tier before all victims of a plan that go there fit.
    fn shortfall_of(&self, plan: &EvictionPlan, to: Tier) -> u64 {
        let at = usize::from(to);
        self.tiers[at].shortfall(plan.down[at] + plan.later[at])
    }

    /// Takes victims out of a tier's policy until they have `search.need` bytes together or no more can leave.
    pub(super) fn select_victims(
        &mut self,
        search: VictimSearch,
        lease_status: &mut dyn FnMut(BufferId) -> LeaseStatus,
    ) -> EvictionPlan {
        let mut plan = EvictionPlan::default();
        let mut again = true;
        while plan.bytes < search.need {
            let mut marks = false;
            let mut used: SmallVec<[u32; 8]> = SmallVec::new();
            let mut watch = |id: BufferId| {
                let seen = lease_status(id);
                marks |= matches!(seen, LeaseStatus::RecentlyUsed(_));
                used.extend((seen != LeaseStatus::Idle).then_some(id.index));
                seen
            };
            // The policies are moved out, so that the closure can borrow the rest of the ledger.
            let mut policies = std::mem::take(&mut self.policies);
            let policy = &mut policies[usize::from(search.tier)];
            let victim = policy.victim(&mut |index| self.judge(&self.buffers[index], search, &plan, &mut watch));
            self.policies = policies;
            used.into_iter().for_each(|index| self.set_used(index));
            if victim.is_none() && marks && std::mem::take(&mut again) {
                // No candidate was idle, but some were recently used and are not leased. Their status was reset by the
                // query, so search once more: the least used ones are idle now.
                continue;
            }
            let Some(index) = victim else { break };
            let Some(exit) = self.exit_of(&self.buffers[index], search, &plan) else { break };
            let buffer = &self.buffers[index];
            let comes = match exit {
                Exit::Drop => 0,
                Exit::Copy(to) | Exit::Later(to) => self.footprint(to, buffer.bytes),
            };
            plan.add(index, buffer, exit, [self.footprint(search.tier, buffer.bytes), comes]);
            self.buffers[index].selected = true;
        }
        plan
    }

    /// Decides whether a member of the tier's policy may be a victim.
    fn judge(
        &self,
        buffer: &BufferRecord,
        search: VictimSearch,
        plan: &EvictionPlan,
        lease_status: &mut dyn FnMut(BufferId) -> LeaseStatus,
    ) -> Verdict {
        let busy = buffer.migration.is_some() || buffer.deferred || buffer.selected;
        let spared = (search.spare_kept && buffer.hint.keep)
            || (search.spare_unused && buffer.ticket.is_some())
            || (search.single && self.footprint(search.tier, buffer.bytes) < search.need);
        if busy || spared || self.is_guaranteed(buffer, search, plan) || self.exit_of(buffer, search, plan).is_none() {
            return Verdict::Skip;
        }
        match lease_status(buffer.id) {
            LeaseStatus::Idle if search.spare_kept && buffer.awaited.is_some() => Verdict::Skip,
            LeaseStatus::Idle => Verdict::Evict,
            LeaseStatus::RecentlyUsed(uses) => Verdict::Referenced(uses),
            LeaseStatus::Leased => Verdict::Referenced(1),
        }
    }

    /// Whether evicting a buffer for another tenant, or for maintenance, would leave the buffer's tenant fewer bytes in
    /// the tier than it is guaranteed.
    fn is_guaranteed(&self, buffer: &BufferRecord, search: VictimSearch, plan: &EvictionPlan) -> bool {
        let Tenant { quota, held, leaving, .. } = &self.tenants[usize::from(buffer.tenant)];
        let at = usize::from(search.tier);
        let goes = leaving[at] + plan.bytes_of(buffer.tenant) + self.footprint(search.tier, buffer.bytes);
        search.requester != Some(buffer.tenant) && held[at] < quota.guaranteed[at].saturating_add(goes)
    }

    /// Returns how a buffer's copy would leave the searched tier; `None` if it cannot.
    fn exit_of(&self, buffer: &BufferRecord, search: VictimSearch, plan: &EvictionPlan) -> Option<Exit> {
        if buffer.is_redundant(search.tier) {
            return Some(Exit::Drop);
        }
        if buffer.synced.is_some_and(|(tier, _)| tier == search.tier) {
            return None;
        }
        let mut below = (search.tier + 1..self.all_tiers().end).filter(|tier| self.accepts(*tier, buffer));
        let fits = |tier: &Tier| self.fits(buffer, *tier, plan.down[usize::from(*tier)]);
        match below.clone().next()? {
            next if search.next_tier_only => Some(if fits(&next) { Exit::Copy(next) } else { Exit::Later(next) }),
            _ => below.find(fits).map(Exit::Copy),
        }
    }

    /// Begins the migrations of a plan's victims. Victims that are to be copied later stay in the tier, and in its
    /// policy.
    pub(super) fn commit(
        &mut self,
        tier: Tier,
        plan: EvictionPlan,
        cause: EvictionCause,
        context: &mut EventContext<'_>,
    ) {
        let mut later = EvictionPlan::default();
        for (index, exit) in plan.victims {
            let bytes = self.buffers[index].bytes;
            let leaves = match exit {
                Exit::Drop => true,
                Exit::Copy(to) => self.fits(&self.buffers[index], to, 0),
                Exit::Later(_) => false,
            };
            if leaves {
                self.evictions.count(cause, bytes);
                let (id, to) = (self.buffers[index].id, if let Exit::Copy(to) = exit { Some(to) } else { None });
                self.notices.add(Notice::Evicted { id, from: tier, to, bytes, cause });
            }
            match exit {
                Exit::Drop => self.begin_drop(index, tier, context),
                // An earlier victim of the plan may have taken the room below that this one needs.
                Exit::Copy(to) if leaves => self.begin_copy(index, tier, to, true, context),
                _ => later.victims.push((index, exit)),
            }
            self.buffers[index].selected = false;
        }
        self.abandon(tier, later);
    }

    /// Puts a plan's victims back into the tier's policy, so that its first victim is the first candidate again.
    fn abandon(&mut self, tier: Tier, plan: EvictionPlan) {
        for (index, _) in plan.victims.into_iter().rev() {
            self.buffers[index].selected = false;
            self.policies[usize::from(tier)].restore(index, self.buffers[index].bytes);
        }
    }

    /// After a change to a buffer: inserts it into the policy of each tier where it is a candidate for eviction, and
    /// removes it from all others.
    pub(super) fn update_policies(&mut self, index: u32) {
        for tier in self.all_tiers() {
            let (listed, bytes) = (self.is_candidate(&self.buffers[index], tier), self.buffers[index].bytes);
            let policy = &mut self.policies[usize::from(tier)];
            match listed {
                true => policy.insert(index, bytes),
                false if policy.contains(index) => policy.remove(index),
                false => {}
            }
        }
    }

    /// Whether a buffer's copy in a tier is a candidate for eviction: it is present, not leaving and not freed; in the
    /// last tier, which has no lower tier to copy to, it must also be redundant.
    pub(super) fn is_candidate(&self, buffer: &BufferRecord, tier: Tier) -> bool {
        let leaves = match buffer.migration {
            Some(Migration::Copy { from, evict_source, .. }) => evict_source && from == tier,
            Some(Migration::Drop { tier: going }) => going == tier,
            None => false,
        };
        let last = tier + 1 == self.all_tiers().end;
        buffer.residence.present(tier) && !leaves && !buffer.freed && (!last || buffer.is_redundant(tier))
    }
}
