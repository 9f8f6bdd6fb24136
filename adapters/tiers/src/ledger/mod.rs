//! What the manager of tiers decides: which buffer is where, who waits, what moves. Events go in, actions come out.
//!
//! Promises upward:
//! - the newest bytes of a buffer are never dropped, nor the copy that survives a power cut; a freed buffer is forgotten once
//! - copies in a tier, and those under way to it, never exceed its capacity; after [`Event::Resize`] to less than is used, or
//!   [`Event::Adopt`] of more than fits, nothing comes in and what can leave leaves, until they fit
//! - each request is answered once; first come, first served (see `queue` for what that means with several tenants)
//! - after the last event there are finitely many actions: a copy only ever makes room downwards, or was asked for; what failed
//!   or met a lease is not tried again before the next [`Event::Tick`]
//! - the same events give the same actions: there is no clock, no thread, no I/O and no hash here
//!
//! Asks from below: the core's tables of residence and pressure; a policy for each tier; a caller that does the actions
//! in order and tells how each copy and drop ended. Leases are outside: the caller is asked about them, and since the
//! answer may be outdated when the action is done, it may find a lease then and say so.
//!
//! | word | means |
//! | --- | --- |
//! | tier | a number: 0 is the best, higher ones are below |
//! | copy | memory in a tier for a buffer; valid if its bytes are the newest |
//! | redundant | a copy whose loss loses nothing: evicting it is a drop, without any copying |
//! | clean copy | a valid copy below another: promotion leaves them, so that demotion is such a drop |
//! | motion | a copy or a drop under way: one at a time for each buffer |
//! | leaving | bytes whose motion will free them in a tier |
//! | wish | what a user, or a second touch, wants of a buffer |
//! | resting | a buffer that met a lease or a failure, until the next tick; a tier that a copy failed into, for a time |
//!
//! | file | what it decides |
//! | --- | --- |
//! | `table`, `account` | what is known: buffers; tiers and tenants, in bytes |
//! | `queue` | who gets memory, where, and who waits |
//! | `room` | who leaves a tier |
//! | `motion` | what the end of a copy or a drop means |
//! | `wish` | promotion, demotion, saving |
//! | `upkeep` | ticks, resizes, pressure |
//! | `check` | every invariant |

mod account;
mod check;
mod error;
mod motion;
mod queue;
mod room;
mod table;
mod upkeep;
mod wish;
mod words;

pub use error::{Refusal, Rejected, SetupError, Why};
pub use words::{Action, Event, Hint, Id, Look, Outcome, Settings, Share, TierKind, TierSpec, TierView, View};

use crate::policy::Policy;
use account::{Tenant, TierState};
use queue::Waiting;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use table::{ENTRY, Table, What, Wish};
use terrace_core::residence::{TIERS, Tier, Transition};

/// The state. What it promises stands at the top of this file.
///
/// # Example
/// ```
/// use terrace_tiers::ledger::{Action, Event, Hint, Ledger, Look, Settings, TierKind, TierSpec};
/// let memory = TierSpec { kind: TierKind::Memory, capacity: 1000, unit: 1 };
/// let file = TierSpec { kind: TierKind::File, capacity: 5000, unit: 1 };
/// let mut ledger = Ledger::new(Settings::new(vec![memory, file]))?;
/// let mut actions = Vec::new();
/// let ask = |ticket| Event::Allocate { ticket, bytes: 600, tenant: 0, wait: true, hint: Hint::default() };
/// ledger.handle(ask(1), &mut |_| Look::Idle, &mut actions)?;
/// let Action::Grant { id, tier: 0, .. } = actions[0] else { panic!("there was room") };
/// // The second needs the room of the first, which is copied down for it.
/// ledger.handle(ask(2), &mut |_| Look::Idle, &mut actions)?;
/// assert!(actions.contains(&Action::Copy { id, from: 0, to: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ledger {
    /// At most 8. One for each of `policies`.
    tiers: Vec<TierState>,
    /// Members: see `listed` in `room`.
    policies: Vec<Box<dyn Policy>>,
    tenants: Vec<Tenant>,
    buffers: Table,
    /// Live buffers whose hint says `keep`.
    keeps: usize,
    /// Requests without an answer, in order.
    queue: VecDeque<Waiting>,
    /// Of those, how many do not wait for others.
    impatient: usize,
    /// Requests with a buffer that was not used yet.
    granted: BTreeMap<u64, Id>,
    /// Wishes to be looked at: those that lead down, those that lead up. Freed buffers may stand here.
    wishes: [VecDeque<Id>; 2],
    /// Buffers that are left alone until the next tick. Freed ones may stand here.
    resting: Vec<Id>,
    now: u64,
    window: u64,
    budget: u64,
    rest: u64,
}

/// Bytes that a ledger has for each buffer: in its table and in the tables of two policies, mostly.
pub(crate) const DESCRIPTION: usize = ENTRY + 2 * crate::policy::NODE;

/// What one call of [`Ledger::handle`] has at hand.
struct Turn<'a> {
    look: &'a mut dyn FnMut(Id) -> Look,
    out: &'a mut Vec<Action>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (buffers, waiting) = (self.buffers.len(), self.queue.len());
        f.debug_struct("Ledger").field("buffers", &buffers).field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Ledger {
    /// An empty one.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let tiers: Vec<TierState> = settings.tiers.iter().map(TierState::new).collect();
        account::examine(&tiers, &settings.tenants)?;
        Ok(Self {
            policies: tiers.iter().map(|_| settings.policy.build()).collect(),
            tiers,
            tenants: settings.tenants.into_iter().map(Tenant::new).collect(),
            buffers: Table::default(),
            keeps: 0,
            queue: VecDeque::new(),
            impatient: 0,
            granted: BTreeMap::new(),
            wishes: [VecDeque::new(), VecDeque::new()],
            resting: Vec::new(),
            now: 0,
            window: settings.window,
            budget: settings.budget,
            rest: settings.rest,
        })
    }

    /// Takes an event in and adds what is to be done to `out`.
    ///
    /// `look` says how a buffer is leased at this moment; it is asked only about live buffers that are not under way.
    /// O(1) where nothing has to move; a search for room costs one look at each member of a tier at worst, for each
    /// buffer that leaves.
    ///
    /// # Errors
    /// The event cannot be; nothing was changed, nothing is to be done. Requests are refused by [`Action::Refuse`]
    /// instead.
    pub fn handle(
        &mut self,
        event: Event,
        look: &mut dyn FnMut(Id) -> Look,
        out: &mut Vec<Action>,
    ) -> Result<(), Rejected> {
        // More may leave than could before. Touches change nothing in that; what frees may change is seen to where they
        // do; a request that has to wait behind others is none of this.
        let same = match event {
            Event::Allocate { .. } => !self.queue.is_empty(),
            Event::Touch { .. } | Event::Free { .. } | Event::Cancel { .. } => true,
            _ => false,
        };
        self.tiers.iter_mut().filter(|_| !same).for_each(|tier| tier.dry = None);
        let mut turn = Turn { look, out };
        self.take(event, &mut turn)?;
        self.fit(&mut turn);
        let waits = self.serve(&mut turn);
        self.grant_wishes(waits, &mut turn);
        self.tell_pressure(&mut turn);
        Ok(())
    }

    /// The event's own effect.
    fn take(&mut self, event: Event, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        match event {
            Event::Allocate { ticket, bytes, tenant, wait, hint } => {
                self.enqueue(Waiting { ticket, bytes, tenant, wait, hint }, turn)
            }
            Event::Adopt { ticket, bytes, tenant, tier } => {
                self.adopt(Waiting { ticket, bytes, tenant, wait: false, hint: Hint::default() }, tier, turn)
            }
            Event::Cancel { ticket } => self.cancel(ticket, turn),
            Event::Free { id } => self.free(id, turn),
            Event::Touch { id } => self.touch(id),
            Event::Wrote { id, tier } => self.wrote(id, tier),
            Event::Promote { id, to } => self.wish(id, Wish { to, what: What::Promote }, turn),
            Event::Demote { id, to } => self.wish(id, Wish { to, what: What::Demote }, turn),
            Event::Save { id, to } => self.wish(id, Wish { to, what: What::Save }, turn),
            Event::Prefetch { id } => self.prefetch(id),
            Event::Released { id } => self.released(id),
            Event::Moved { id, from, to, outcome } => self.moved(id, from, to, outcome, turn),
            Event::Dropped { id, tier, done } => self.dropped(id, tier, done, turn),
            Event::Synced { id, tier } => self.synced(id, tier),
            Event::Refused { tier } => self.refused(tier),
            Event::Recovered { tier } => self.recovered(tier),
            Event::Resize { tier, capacity } => self.resize(tier, capacity, turn),
            Event::Tick { now } => {
                self.tick(now, turn);
                Ok(())
            }
        }
    }

    /// The user's end of a buffer.
    fn free(&mut self, id: Id, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.buffers[index].motion.is_none() && (turn.look)(id) == Look::Leased {
            return Err(Rejected::Leased);
        }
        self.used(index);
        self.settle(index, false, turn);
        if self.buffers[index].motion.is_some() {
            self.buffers[index].doomed = true;
            self.relist(index);
        } else {
            self.forget(index, turn);
        }
        Ok(())
    }

    /// Its request is done with: it cannot be cancelled any more.
    fn used(&mut self, index: u32) {
        if let Some(ticket) = self.buffers[index].ticket.take() {
            self.granted.remove(&ticket);
        }
    }

    fn wrote(&mut self, id: Id, tier: Tier) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.buffers[index].motion.is_some() {
            return Err(Rejected::Moving);
        }
        let buffer = &mut self.buffers[index];
        buffer.residence.apply(Transition::Update(tier))?;
        buffer.version += 1;
        self.used(index);
        self.relist(index);
        Ok(())
    }

    fn synced(&mut self, id: Id, tier: Tier) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        let buffer = &mut self.buffers[index];
        if matches!(buffer.motion, Some(table::Motion::Drop { tier: going }) if going == tier) {
            return Err(Rejected::Moving);
        }
        let mut residence = buffer.residence;
        residence.apply(Transition::Read(tier))?;
        buffer.synced = Some((tier, buffer.version));
        self.used(index);
        self.relist(index);
        Ok(())
    }

    /// What is known of a buffer.
    ///
    /// # Errors
    /// [`Rejected::Stale`].
    pub fn view(&self, id: Id) -> Result<View, Rejected> {
        let buffer = &self.buffers[self.buffers.find(id)?];
        let &table::Buffer { bytes, tenant, residence, version, synced, resting, .. } = buffer;
        Ok(View { bytes, tenant, residence, version, synced, moving: buffer.motion.is_some(), resting })
    }

    /// The live buffers, by number.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.buffers.iter().filter(|buffer| !buffer.doomed).map(|buffer| buffer.id)
    }

    /// What is known of a tier.
    pub fn tier(&self, tier: Tier) -> Option<TierView> {
        let state = self.tiers.get(usize::from(tier))?;
        let &TierState { kind, capacity, used, leaving, told: level, rests_until, .. } = state;
        Some(TierView { kind, capacity, used, leaving, level, rests_until })
    }

    /// Bytes of a tenant's buffers, each counted once.
    pub fn tenant_bytes(&self, tenant: u16) -> Option<u64> {
        self.tenants.get(usize::from(tenant)).map(|tenant| tenant.bytes)
    }

    /// Requests without an answer.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// All tiers, best first.
    fn all(&self) -> std::ops::Range<Tier> {
        0..(self.tiers.len() as u8).min(TIERS)
    }
}
