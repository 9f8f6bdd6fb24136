//! Performs the ledger's actions on a map of copies, and checks each step.
//!
//! The bytes of a copy are one number: the version last written when it was made.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use terrace_core::pressure::Level;
use terrace_tiers::ledger::{
    Action, BufferId, CopyOutcome, LeaseStatus, Ledger, LedgerEvent, Refusal, Rejected, Settings, TenantQuota,
};
use terrace_tiers::policy::PolicyKind;

/// A copy or a drop that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    Copy { id: BufferId, from: u8, to: u8 },
    Drop { id: BufferId, tier: u8 },
}

/// A live buffer, as the world knows it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub bytes: u64,
    pub tenant: u16,
    pub newest: u64,
    pub synced: Option<u8>,
    /// Freed by its user; gone when the ledger forgets it.
    pub freed: bool,
}

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ticket: u64,
    pub bytes: u64,
    pub tenant: u16,
    pub wait: bool,
}

pub struct World {
    pub ledger: Ledger,
    pub capacities: Vec<u64>,
    /// What others leave to each tier.
    budgets: Vec<u64>,
    units: Vec<u64>,
    shares: Vec<TenantQuota>,
    /// Version by buffer and tier; `None` while a copy is under way to new room.
    pub copies: BTreeMap<(BufferId, u8), Option<u64>>,
    pub buffers: BTreeMap<BufferId, Known>,
    /// Tier, tenant and bytes of each buffer that is dormant.
    pub dormant: Vec<(u8, u16, u64)>,
    pub pending: Vec<Pending>,
    pub leased: BTreeSet<BufferId>,
    pub used: BTreeSet<BufferId>,
    /// In order of arrival.
    pub asked: Vec<Asked>,
    pub granted: BTreeMap<u64, BufferId>,
    /// Granted, and not used yet.
    pub unused: BTreeSet<BufferId>,
    pub refused: BTreeMap<u64, Refusal>,
    /// Tenants that freed memory in each tier.
    left: BTreeSet<(u8, u16)>,
    pub levels: BTreeMap<u8, Level>,
    pub finished: Vec<(BufferId, u8, bool)>,
    /// The last event that was accepted.
    pub last: Option<LedgerEvent>,
    pub policy: PolicyKind,
    /// All actions so far.
    pub actions: Vec<Action>,
    /// Tenants of which more was recovered than their cap, and that still hold more.
    pub above: BTreeSet<u16>,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        Self {
            policy: settings.policy,
            capacities: settings.tiers.iter().map(|tier| tier.capacity).collect(),
            budgets: vec![u64::MAX; settings.tiers.len()],
            units: settings.tiers.iter().map(|tier| tier.unit).collect(),
            shares: settings.tenants.clone(),
            ledger: Ledger::new(settings).expect("sound settings"),
            copies: BTreeMap::new(),
            buffers: BTreeMap::new(),
            dormant: Vec::new(),
            pending: Vec::new(),
            leased: BTreeSet::new(),
            used: BTreeSet::new(),
            asked: Vec::new(),
            granted: BTreeMap::new(),
            unused: BTreeSet::new(),
            refused: BTreeMap::new(),
            left: BTreeSet::new(),
            levels: BTreeMap::new(),
            finished: Vec::new(),
            last: None,
            actions: Vec::new(),
            above: BTreeSet::new(),
        }
    }

    /// Passes an event to the ledger, performs the actions, and checks everything. Returns the new actions.
    pub fn tell(&mut self, event: LedgerEvent) -> Result<Vec<Action>, Rejected> {
        let mut actions = Vec::new();
        let (leased, used, buffers) = (&self.leased, &mut self.used, &self.buffers);
        let mut look = |id: BufferId| {
            assert!(buffers.get(&id).is_none_or(|known| !known.freed), "{id} is asked about after it was freed");
            match leased.contains(&id) {
                true => LeaseStatus::Leased,
                false if used.remove(&id) => LeaseStatus::RecentlyUsed(1 + id.index() as u8 % 3),
                false => LeaseStatus::Idle,
            }
        };
        let taken = self.ledger.handle(event, &mut look, &mut actions);
        if let LedgerEvent::Resize { tier, capacity } = event {
            self.capacities[usize::from(tier)] = capacity;
        }
        if let LedgerEvent::Budget { tier, bytes } = event {
            self.budgets[usize::from(tier)] = bytes;
        }
        if taken.is_ok() {
            self.last = Some(event);
            self.used_or_freed(event);
        }
        assert!(taken.is_ok() || actions.is_empty(), "a rejected event does nothing");
        match (actions.first(), event) {
            (Some(&Action::Grant { ticket, id, tier, .. }), LedgerEvent::Adopt { bytes, tenant, .. }) => {
                let dormant = self.dormant.iter().position(|dormant| *dormant == (tier, tenant, bytes));
                self.dormant.remove(dormant.expect("it was dormant"));
                self.hand(ticket, id, tier);
                // It was used in an earlier run, and survives a power cut.
                self.unused.remove(&id);
                self.buffers.get_mut(&id).expect("it was just granted").synced = Some(tier);
                actions[1..].iter().for_each(|action| self.act(*action));
            }
            _ => actions.iter().for_each(|action| self.act(*action)),
        }
        self.check();
        self.actions.extend(&actions);
        taken.map(|()| actions)
    }

    /// Recovers a buffer. The ledger reports what follows from that with the next event.
    pub fn recover(&mut self, bytes: u64, tenant: u16, tier: u8) -> Result<(), Refusal> {
        self.ledger.recover(bytes, tenant, tier)?;
        self.dormant.push((tier, tenant, bytes));
        if self.bytes_of(tenant) > self.shares[usize::from(tenant)].cap {
            self.above.insert(tenant);
        }
        let capacity = self.capacities[usize::from(tier)];
        self.tell(LedgerEvent::Resize { tier, capacity }).map(drop).map_err(|rejected| panic!("a tier: {rejected}"))
    }

    /// Applies an accepted event to its buffer.
    fn used_or_freed(&mut self, event: LedgerEvent) {
        let freed = match event {
            LedgerEvent::Free { id } => Some(id),
            LedgerEvent::Cancel { ticket } => self.granted.get(&ticket).copied(),
            _ => None,
        };
        if let Some(known) = freed.and_then(|id| self.buffers.get_mut(&id)) {
            known.freed = true;
        }
        self.unused.retain(|id| Some(*id) != freed);
        match event {
            LedgerEvent::Touch { id } | LedgerEvent::Wrote { id, .. } | LedgerEvent::Promote { id, .. } => {
                self.unused.remove(&id)
            }
            LedgerEvent::Demote { id, .. }
            | LedgerEvent::Replicate { id, .. }
            | LedgerEvent::Prefetch { id }
            | LedgerEvent::Used { id }
            | LedgerEvent::Synced { id, .. } => self.unused.remove(&id),
            _ => false,
        };
    }

    /// Writes a buffer that is valid in a tier, and does not move.
    pub fn write(&mut self, id: BufferId, tier: u8) {
        let known = self.buffers.get_mut(&id).expect("live");
        known.newest += 1;
        let newest = known.newest;
        self.copies.insert((id, tier), Some(newest));
        self.tell(LedgerEvent::Wrote { id, tier }).expect("valid there, and not moving");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Grant { ticket, id, tier, zero } => self.granted(ticket, id, tier, zero),
            Action::Refuse { ticket, error } => {
                self.answered(ticket);
                assert!(self.refused.insert(ticket, error).is_none());
            }
            Action::Copy { id, from, to } => self.copying(id, from, to),
            Action::Drop { id, tier } => {
                assert!(self.copies.contains_key(&(id, tier)));
                self.begin(id, Pending::Drop { id, tier });
            }
            Action::Forget { id } => self.forgotten(id),
            Action::MoveFinished { id, to, satisfied } => {
                let there = self.copies.get(&(id, to)).copied().flatten();
                let above = (0..to).any(|tier| self.copies.contains_key(&(id, tier)));
                assert!(!satisfied || !above || there == Some(self.buffers[&id].newest), "what is said to be so is so");
                self.finished.push((id, to, satisfied));
            }
            Action::Pressure { tier, level } => {
                let before = self.levels.insert(tier, level).unwrap_or_default();
                assert_ne!(before, level, "told once for each change");
            }
        }
    }

    fn copying(&mut self, id: BufferId, from: u8, to: u8) {
        let newest = self.buffers[&id].newest;
        assert_eq!(self.copies.get(&(id, from)), Some(&Some(newest)), "the newest bytes are copied");
        let there = self.copies.get(&(id, to)).copied();
        assert_ne!(there, Some(Some(newest)), "a copy that is there already");
        if there.is_none() {
            self.copies.insert((id, to), None);
            self.fits(to);
        }
        self.begin(id, Pending::Copy { id, from, to });
    }

    fn forgotten(&mut self, id: BufferId) {
        let known = self.buffers.remove(&id).expect("forgotten once");
        assert!(known.freed, "{id} was not freed");
        let tiers = (0..8).filter(|tier| self.copies.contains_key(&(id, *tier)));
        self.left.extend(tiers.map(|tier| (tier, known.tenant)));
        self.copies.retain(|(one, _), _| *one != id);
        self.leased.remove(&id);
        self.unused.remove(&id);
        if self.bytes_of(known.tenant) <= self.shares[usize::from(known.tenant)].cap {
            self.above.remove(&known.tenant);
        }
    }

    fn begin(&mut self, id: BufferId, pending: Pending) {
        assert!(!self.buffers[&id].freed, "nothing begins with a freed buffer");
        assert!(!self.leased.contains(&id), "nothing begins with a leased buffer");
        let busy = self
            .pending
            .iter()
            .any(|p| matches!(p, Pending::Copy { id: one, .. } | Pending::Drop { id: one, .. } if *one == id));
        assert!(!busy, "one migration at a time");
        self.pending.push(pending);
    }

    fn answered(&mut self, ticket: u64) -> Asked {
        let at = self.asked.iter().position(|asked| asked.ticket == ticket).expect("answered once");
        self.asked.remove(at)
    }

    fn granted(&mut self, ticket: u64, id: BufferId, tier: u8, zero: bool) {
        self.first_come(ticket);
        let tenant = self.hand(ticket, id, tier);
        let foreign = self.left.iter().any(|(left, whose)| *left == tier && *whose != tenant);
        assert!(zero || !foreign, "another tenant's memory is zeroed");
        self.fits(tier);
    }

    /// Hands a granted buffer to its requester; returns the tenant.
    fn hand(&mut self, ticket: u64, id: BufferId, tier: u8) -> u16 {
        let asked = self.answered(ticket);
        assert!(self.granted.insert(ticket, id).is_none());
        self.unused.insert(id);
        let known = Known { bytes: asked.bytes, tenant: asked.tenant, newest: 0, synced: None, freed: false };
        assert!(self.buffers.insert(id, known).is_none(), "a name is new");
        self.copies.insert((id, tier), Some(0));
        if self.bytes_of(asked.tenant) > self.shares[usize::from(asked.tenant)].cap {
            self.above.insert(asked.tenant);
        }
        asked.tenant
    }

    /// What a tier may hold now.
    fn held_at_most(&self, tier: u8) -> u64 {
        self.capacities[usize::from(tier)].min(self.budgets[usize::from(tier)])
    }

    /// Every earlier request waits for its tenant's cap.
    fn first_come(&self, ticket: u64) {
        let mut capped = BTreeSet::new();
        for asked in &self.asked {
            let free = self.shares[usize::from(asked.tenant)].cap.saturating_sub(self.bytes_of(asked.tenant));
            let over = capped.contains(&asked.tenant) || asked.bytes > free;
            if asked.ticket == ticket {
                return assert!(!over, "within its cap, and behind no request of its tenant");
            }
            assert!(over, "{ticket} passes {asked:?}");
            capped.insert(asked.tenant);
        }
        panic!("{ticket} was not asked for, or was answered before");
    }

    fn bytes_of(&self, tenant: u16) -> u64 {
        let known = self.buffers.values().map(|known| (known.tenant, known.bytes));
        let all = known.chain(self.dormant.iter().map(|(_, tenant, bytes)| (*tenant, *bytes)));
        all.filter(|(whose, _)| *whose == tenant).map(|(_, bytes)| bytes).sum()
    }

    pub fn in_tier(&self, tier: u8) -> u64 {
        self.sum_in(tier, |_| true)
    }

    /// Footprints in a tier of copies of some tenants.
    fn sum_in(&self, tier: u8, of: impl Fn(u16) -> bool) -> u64 {
        let copies = self.copies.keys().map(|(id, at)| (*at, self.buffers[id].tenant, self.buffers[id].bytes));
        let all = copies.chain(self.dormant.iter().copied()).filter(|(at, tenant, _)| *at == tier && of(*tenant));
        all.map(|(.., bytes)| self.held(tier, bytes)).sum()
    }

    /// The footprint of a copy.
    fn held(&self, tier: u8, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.units[usize::from(tier)])
    }

    fn fits(&self, tier: u8) {
        let (used, capacity) = (self.in_tier(tier), self.held_at_most(tier));
        assert!(used <= capacity, "tier {tier}: {used} of {capacity} bytes");
    }

    /// Ends the copy or drop at `at` of `pending` with an outcome.
    pub fn end(&mut self, at: usize, outcome: CopyOutcome) {
        let done = outcome == CopyOutcome::Done;
        match self.pending.swap_remove(at) {
            Pending::Copy { id, from, to } => {
                let known = self.buffers[&id];
                if done {
                    let bytes = self.copies[&(id, from)];
                    assert_eq!(bytes, Some(known.newest), "what was copied is the newest still");
                    self.copies.insert((id, to), bytes);
                } else if self.copies[&(id, to)].is_none() {
                    self.copies.remove(&(id, to));
                    self.left.insert((to, known.tenant));
                }
                self.tell(LedgerEvent::CopyEnded { id, from, to, outcome }).expect("it was under way");
            }
            Pending::Drop { id, tier } => {
                let known = self.buffers[&id];
                if done {
                    self.copies.remove(&(id, tier));
                    self.left.insert((tier, known.tenant));
                    let newest = (0..8).any(|at| self.copies.get(&(id, at)) == Some(&Some(known.newest)));
                    assert!(newest || known.freed, "{id}: the newest bytes were dropped");
                    assert_ne!(known.synced, Some(tier), "{id}: what survives a power cut was dropped");
                }
                self.tell(LedgerEvent::DropEnded { id, tier, done }).expect("it was under way");
            }
        }
    }

    /// Ends copies and drops until none is pending, with the given outcomes. Returns how many that took.
    pub fn finish_all(&mut self, mut outcome: impl FnMut() -> CopyOutcome) -> usize {
        // Each copy of each buffer moves down one tier at a time and is dropped there; each may have one move request.
        let bound = (self.buffers.len() + self.asked.len()) * self.capacities.len() * 4 + 8;
        for ended in 0..=bound {
            if self.pending.is_empty() {
                return ended;
            }
            self.end(0, outcome());
        }
        panic!("no silence after {bound} copies and drops");
    }

    /// How many tenants there are.
    pub fn tenants(&self) -> u64 {
        self.shares.len() as u64
    }

    pub fn is_dropping(&self, id: BufferId, tier: u8) -> bool {
        self.pending.contains(&Pending::Drop { id, tier })
    }
}
