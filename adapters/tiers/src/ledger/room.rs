//! Who leaves a tier, so that others find room.
//!
//! A search asks the tier's policy for victims, one by one, until enough would leave; only then does anything move, and
//! if there is not enough, nothing does: a request that cannot be met evicts nobody. What a victim's leaving costs, the
//! first that holds:
//! - its copy is redundant: a drop
//! - the next lower tier that may take it has room: a copy there, and then a drop
//! - that tier can be made to have room: nothing yet; it is emptied first, in the same way, and the search is done again when
//!   it is. So what was used lately stays above what was not
//! - a tier further down has room: a copy there, and then a drop
//!
//! Buffers that users want kept are passed over while others are enough. A tenant's promised share of a tier is touched
//! by its own requests alone. What is under way, rests or is leased is passed over.
//!
//! Cost: one look at each member passed over, for each victim, twice if all were used lately. A tier from where so much
//! could not leave is not searched again for as much, until an event that may change that: a lease given back silently
//! is such an event only for the next request that comes first.

use super::account::Tenant;
use super::table::{Buffer, Motion};
use super::words::{Id, Look};
use super::{Ledger, Tier, Turn};
use crate::policy::Answer;
use terrace_core::residence::TIERS;

/// How a victim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Drop,
    Copy(Tier),
    /// Later: that tier needs room first.
    Later(Tier),
}

/// What a search may do.
#[derive(Clone, Copy)]
struct Search {
    tier: Tier,
    /// Bytes to free.
    need: u64,
    /// For whom. `None`: maintenance.
    who: Option<u16>,
    /// Victims go to the next lower tier, and may wait until it has room. Otherwise to any lower tier that has room.
    defer: bool,
    /// Users' favourites are passed over.
    mercy: bool,
    /// Only who is enough alone: several that were picked in order may not fit together where one larger does.
    alone: bool,
}

/// Victims, taken out of the policy and marked.
#[derive(Default)]
struct Plan {
    victims: Vec<(u32, Way)>,
    bytes: u64,
    /// Bytes that the plan brings to each tier now, and those that are to come later.
    down: [u64; TIERS as usize],
    later: [u64; TIERS as usize],
    /// Bytes that leave the tier, by tenant.
    by_tenant: Vec<(u16, u64)>,
}

impl Plan {
    fn taken(&self, tenant: u16) -> u64 {
        self.by_tenant.iter().find(|(one, _)| *one == tenant).map_or(0, |(_, bytes)| *bytes)
    }

    /// `leaves`, `comes`: what it takes in the tier that it leaves, and in the one it goes to.
    fn add(&mut self, index: u32, buffer: &Buffer, way: Way, [leaves, comes]: [u64; 2]) {
        self.victims.push((index, way));
        self.bytes += leaves;
        match way {
            Way::Drop => {}
            Way::Copy(to) if buffer.residence.present(to) => {}
            Way::Copy(to) => self.down[usize::from(to)] += comes,
            Way::Later(to) => self.later[usize::from(to)] += comes,
        }
        match self.by_tenant.iter_mut().find(|(one, _)| *one == buffer.tenant) {
            Some((_, bytes)) => *bytes += leaves,
            None => self.by_tenant.push((buffer.tenant, leaves)),
        }
    }
}

impl Ledger {
    /// Sees to it that `need` bytes more than those that are leaving a tier will leave it. `false`: they cannot, and
    /// nobody leaves for it.
    pub(super) fn make_room(&mut self, tier: Tier, need: u64, who: Option<u16>, turn: &mut Turn<'_>) -> bool {
        if need == 0 {
            return true;
        }
        if self.is_dry(tier, need, who) {
            return false;
        }
        for mercy in [true, false].into_iter().skip(usize::from(self.keeps == 0)) {
            for (defer, alone) in [(true, false), (false, false), (false, true)] {
                let plan = self.search(Search { tier, need, who, defer, mercy, alone }, turn.look);
                if plan.bytes >= need && self.make_way(tier, &plan, who, turn) {
                    self.commit(tier, plan, turn);
                    return true;
                }
                self.give_up(tier, plan);
            }
        }
        self.tiers[usize::from(tier)].dry = Some((who, need));
        false
    }

    fn is_dry(&self, tier: Tier, need: u64, who: Option<u16>) -> bool {
        self.tiers[usize::from(tier)].dry.is_some_and(|(whom, bytes)| whom == who && need >= bytes)
    }

    /// As much of `need` bytes as can leave, for maintenance. With `most`, no more than that unless it is one buffer.
    /// Returns the bytes that began to leave.
    pub(super) fn vacate(&mut self, tier: Tier, need: u64, most: Option<u64>, turn: &mut Turn<'_>) -> u64 {
        if self.is_dry(tier, need, None) {
            return 0;
        }
        let need = most.map_or(need, |most| need.min(most));
        let search = Search { tier, need, who: None, defer: false, mercy: most.is_some(), alone: false };
        let mut plan = self.search(search, turn.look);
        let last = plan.victims.last().map_or(0, |(index, _)| self.held(tier, self.buffers[*index].bytes));
        if most.is_some_and(|most| plan.bytes > most) && plan.victims.len() > 1 {
            let surplus = Plan { victims: plan.victims.split_off(plan.victims.len() - 1), ..Plan::default() };
            plan.bytes -= last;
            self.give_up(tier, surplus);
        }
        let began = plan.bytes;
        self.commit(tier, plan, turn);
        if began < need && most.is_none() {
            // What stays must stay, unless something below makes way for it.
            let rest = need - began;
            let plan = self.search(Search { need: rest, defer: true, ..search }, turn.look);
            self.make_way(tier, &plan, None, turn);
            self.give_up(tier, plan);
            self.tiers[usize::from(tier)].dry = Some((None, rest));
        }
        began
    }

    /// Empties lower tiers for victims that go there later.
    fn make_way(&mut self, tier: Tier, plan: &Plan, who: Option<u16>, turn: &mut Turn<'_>) -> bool {
        (tier + 1..self.all().end).all(|to| {
            let at = usize::from(to);
            let lacks = self.tiers[at].lacks(plan.down[at] + plan.later[at]);
            plan.later[at] == 0 || self.make_room(to, lacks, who, turn)
        })
    }

    /// Takes victims out of a tier's policy until they are enough, or there are no more.
    fn search(&mut self, search: Search, look: &mut dyn FnMut(Id) -> Look) -> Plan {
        let mut plan = Plan::default();
        let mut again = true;
        while plan.bytes < search.need {
            let mut marks = false;
            let mut watch = |id: Id| {
                let seen = look(id);
                marks |= seen == Look::Used;
                seen
            };
            // Set aside, so that the rest of the ledger can be looked at meanwhile.
            let mut policies = std::mem::take(&mut self.policies);
            let policy = &mut policies[usize::from(search.tier)];
            let victim = policy.victim(&mut |index| self.judge(&self.buffers[index], search, &plan, &mut watch));
            self.policies = policies;
            if victim.is_none() && marks && std::mem::take(&mut again) {
                // All were used since they were looked at last, and are not in use now: the least used must do.
                continue;
            }
            let Some(index) = victim else { break };
            let Some(way) = self.way_out(&self.buffers[index], search, &plan) else { break };
            let buffer = &self.buffers[index];
            let comes = match way {
                Way::Drop => 0,
                Way::Copy(to) | Way::Later(to) => self.held(to, buffer.bytes),
            };
            plan.add(index, buffer, way, [self.held(search.tier, buffer.bytes), comes]);
            self.buffers[index].picked = true;
        }
        plan
    }

    /// Whether a member may be a victim.
    fn judge(&self, buffer: &Buffer, search: Search, plan: &Plan, look: &mut dyn FnMut(Id) -> Look) -> Answer {
        let busy = buffer.motion.is_some() || buffer.resting || buffer.picked;
        let spared =
            (search.mercy && buffer.hint.keep) || (search.alone && self.held(search.tier, buffer.bytes) < search.need);
        if busy || spared || self.is_promised(buffer, search, plan) || self.way_out(buffer, search, plan).is_none() {
            return Answer::Pass;
        }
        match look(buffer.id) {
            Look::Idle => Answer::Take,
            Look::Used | Look::Leased => Answer::Used,
        }
    }

    /// Whether its tenant would be left with less than it was promised, by another.
    fn is_promised(&self, buffer: &Buffer, search: Search, plan: &Plan) -> bool {
        let Tenant { share, held, leaving, .. } = &self.tenants[usize::from(buffer.tenant)];
        let at = usize::from(search.tier);
        let goes = leaving[at] + plan.taken(buffer.tenant) + self.held(search.tier, buffer.bytes);
        search.who != Some(buffer.tenant) && held[at] < share.promised[at].saturating_add(goes)
    }

    /// How a copy would leave a tier.
    fn way_out(&self, buffer: &Buffer, search: Search, plan: &Plan) -> Option<Way> {
        if buffer.is_redundant(search.tier) {
            return Some(Way::Drop);
        }
        if buffer.synced.is_some_and(|(tier, _)| tier == search.tier) {
            return None;
        }
        let mut below = (search.tier + 1..self.all().end).filter(|tier| self.is_open(*tier, buffer));
        let fits = |tier: &Tier| self.fits(buffer, *tier, plan.down[usize::from(*tier)]);
        match below.clone().next()? {
            next if search.defer => Some(if fits(&next) { Way::Copy(next) } else { Way::Later(next) }),
            _ => below.find(fits).map(Way::Copy),
        }
    }

    /// Sets a plan's victims in motion. Those for later stay as they were.
    fn commit(&mut self, tier: Tier, plan: Plan, turn: &mut Turn<'_>) {
        let mut later = Plan::default();
        for (index, way) in plan.victims {
            let buffer = &self.buffers[index];
            match way {
                Way::Drop => self.begin_drop(index, tier, turn),
                // What made way in between may have gone where this one wanted to.
                Way::Copy(to) if self.fits(buffer, to, 0) => self.begin_copy(index, tier, to, true, turn),
                _ => later.victims.push((index, way)),
            }
            self.buffers[index].picked = false;
        }
        self.give_up(tier, later);
    }

    /// Puts victims back, the first one to be asked about first again.
    fn give_up(&mut self, tier: Tier, plan: Plan) {
        for (index, _) in plan.victims.into_iter().rev() {
            self.buffers[index].picked = false;
            self.policies[usize::from(tier)].restore(index, self.buffers[index].bytes);
        }
    }

    /// Makes policies know the copies that may leave, after a change to a buffer.
    pub(super) fn relist(&mut self, index: u32) {
        for tier in self.all() {
            let (listed, bytes) = (self.is_listed(&self.buffers[index], tier), self.buffers[index].bytes);
            let policy = &mut self.policies[usize::from(tier)];
            match listed {
                true => policy.insert(index, bytes),
                false if policy.contains(index) => policy.remove(index),
                false => {}
            }
        }
    }

    /// Whether a policy should know a copy: it is there and does not leave already; in the last tier, from where
    /// nothing can be copied down, if it is redundant.
    pub(super) fn is_listed(&self, buffer: &Buffer, tier: Tier) -> bool {
        let leaves = match buffer.motion {
            Some(Motion::Copy { from, leave, .. }) => leave && from == tier,
            Some(Motion::Drop { tier: going }) => going == tier,
            None => false,
        };
        let last = tier + 1 == self.all().end;
        buffer.residence.present(tier) && !leaves && !buffer.doomed && (!last || buffer.is_redundant(tier))
    }
}
