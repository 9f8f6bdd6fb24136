//! What the manager of tiers decides: which buffer is where, who waits, what moves. Events go in, actions come out.
//!
//! Promises upward:
//! - the newest bytes of a buffer are never dropped, nor the copy that survives a power cut; a freed buffer is forgotten once
//! - copies in a tier, and those under way to it, never exceed its capacity; after [`LedgerEvent::Resize`] to less than is used, or
//!   [`LedgerEvent::Adopt`] of more than fits, nothing comes in and what can leave leaves, until they fit
//! - each request is answered once; first come, first served (see `queue` for what that means with several tenants)
//! - after the last event there are finitely many actions: a copy only ever makes room downwards, or was asked for; what failed
//!   or met a lease is not tried again before the next [`LedgerEvent::Tick`]
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
//! | `migration` | what the end of a copy or a drop means |
//! | `request` | promotion, demotion, saving |
//! | `upkeep` | ticks, resizes, pressure |
//! | `check` | every invariant |

mod account;
mod check;
mod error;
mod eviction;
mod maintenance;
mod migration;
mod move_request;
mod queue;
mod table;
mod types;

pub use error::{Refusal, RefusalReason, Rejected, SetupError};
pub use types::{
    Action, BufferId, BufferView, CopyOutcome, LeaseStatus, LedgerEvent, Medium, PlacementHint, Settings, TenantQuota,
    TierSpec, TierView,
};

use crate::policy::Policy;
use account::{Tenant, TierState};
use queue::PendingRequest;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use table::{BufferTable, MoveKind, MoveRequest, RECORD_BYTES};
use terrace_core::residence::{TIERS, Tier, Transition};

/// The state. What it promises stands at the top of this file.
///
/// # Example
/// ```
/// use terrace_tiers::ledger::{Action, LedgerEvent, PlacementHint, Ledger, LeaseStatus, Settings, Medium, TierSpec};
/// let memory = TierSpec { medium: Medium::Memory, capacity: 1000, unit: 1 };
/// let file = TierSpec { medium: Medium::File, capacity: 5000, unit: 1 };
/// let mut ledger = Ledger::new(Settings::new(vec![memory, file]))?;
/// let mut actions = Vec::new();
/// let ask = |ticket| LedgerEvent::Allocate { ticket, bytes: 600, tenant: 0, wait: true, hint: PlacementHint::default() };
/// ledger.handle(ask(1), &mut |_| LeaseStatus::Idle, &mut actions)?;
/// let Action::Grant { id, tier: 0, .. } = actions[0] else { panic!("there was room") };
/// // The second needs the room of the first, which is copied down for it.
/// ledger.handle(ask(2), &mut |_| LeaseStatus::Idle, &mut actions)?;
/// assert!(actions.contains(&Action::Copy { id, from: 0, to: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ledger {
    /// At most 8. One for each of `policies`.
    tiers: Vec<TierState>,
    /// Members: see `listed` in `room`.
    policies: Vec<Box<dyn Policy>>,
    tenants: Vec<Tenant>,
    buffers: BufferTable,
    /// Live buffers whose hint says `keep`.
    keeps: usize,
    /// Requests without an answer, in order.
    queue: VecDeque<PendingRequest>,
    /// Of those, how many do not wait for others.
    non_waiting: usize,
    /// Requests with a buffer that was not used yet.
    granted: BTreeMap<u64, BufferId>,
    /// Wishes to be looked at: those that lead down, those that lead up. Freed buffers may stand here.
    move_queues: [VecDeque<BufferId>; 2],
    /// Buffers that are left alone until the next tick. Freed ones may stand here.
    deferred: Vec<BufferId>,
    now: u64,
    touch_window: u64,
    maintenance_budget: u64,
    backoff: u64,
}

/// Bytes that a ledger has for each buffer: in its table and in the tables of two policies, mostly.
pub(crate) const DESCRIPTION: usize = RECORD_BYTES + 2 * crate::policy::NODE_BYTES;

/// What one call of [`Ledger::handle`] has at hand.
struct EventContext<'a> {
    lease_status: &'a mut dyn FnMut(BufferId) -> LeaseStatus,
    actions: &'a mut Vec<Action>,
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
        account::validate(&tiers, &settings.tenants)?;
        Ok(Self {
            policies: tiers.iter().map(|_| settings.policy.build()).collect(),
            tiers,
            tenants: settings.tenants.into_iter().map(Tenant::new).collect(),
            buffers: BufferTable::default(),
            keeps: 0,
            queue: VecDeque::new(),
            non_waiting: 0,
            granted: BTreeMap::new(),
            move_queues: [VecDeque::new(), VecDeque::new()],
            deferred: Vec::new(),
            now: 0,
            touch_window: settings.touch_window,
            maintenance_budget: settings.maintenance_budget,
            backoff: settings.backoff,
        })
    }

    /// Takes an event in and adds what is to be done to `out`.
    ///
    /// `lease_status` says how a buffer is leased at this moment; it is asked only about live buffers that are not under way.
    /// O(1) where nothing has to move; a search for room costs one look at each member of a tier at worst, for each
    /// buffer that leaves.
    ///
    /// # Errors
    /// The event cannot be; nothing was changed, nothing is to be done. Requests are refused by [`Action::Refuse`]
    /// instead.
    pub fn handle(
        &mut self,
        event: LedgerEvent,
        lease_status: &mut dyn FnMut(BufferId) -> LeaseStatus,
        actions: &mut Vec<Action>,
    ) -> Result<(), Rejected> {
        // More may leave than could before. Touches change nothing in that; what frees may change is seen to where they
        // do; a request that has to wait behind others is none of this.
        let same = match event {
            LedgerEvent::Allocate { .. } => !self.queue.is_empty(),
            LedgerEvent::Touch { .. } | LedgerEvent::Free { .. } | LedgerEvent::Cancel { .. } => true,
            _ => false,
        };
        self.tiers.iter_mut().filter(|_| !same).for_each(|tier| tier.failed_search = None);
        let mut context = EventContext { lease_status, actions };
        self.apply(event, &mut context)?;
        self.shrink_to_capacity(&mut context);
        let queue_state = self.serve(&mut context);
        self.serve_moves(queue_state, &mut context);
        self.report_pressure(&mut context);
        Ok(())
    }

    /// The event's own effect.
    fn apply(&mut self, event: LedgerEvent, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        match event {
            LedgerEvent::Allocate { ticket, bytes, tenant, wait, hint } => {
                self.enqueue(PendingRequest { ticket, bytes, tenant, wait, hint }, context)
            }
            LedgerEvent::Adopt { ticket, bytes, tenant, tier } => self.adopt(
                PendingRequest { ticket, bytes, tenant, wait: false, hint: PlacementHint::default() },
                tier,
                context,
            ),
            LedgerEvent::Cancel { ticket } => self.cancel(ticket, context),
            LedgerEvent::Free { id } => self.free(id, context),
            LedgerEvent::Touch { id } => self.touch(id),
            LedgerEvent::Wrote { id, tier } => self.wrote(id, tier),
            LedgerEvent::Promote { id, to } => {
                self.request_move(id, MoveRequest { to, kind: MoveKind::Promote }, context)
            }
            LedgerEvent::Demote { id, to } => {
                self.request_move(id, MoveRequest { to, kind: MoveKind::Demote }, context)
            }
            LedgerEvent::Replicate { id, to } => {
                self.request_move(id, MoveRequest { to, kind: MoveKind::Replicate }, context)
            }
            LedgerEvent::Prefetch { id } => self.prefetch(id),
            LedgerEvent::Released { id } => self.released(id),
            LedgerEvent::CopyEnded { id, from, to, outcome } => self.copy_ended(id, from, to, outcome, context),
            LedgerEvent::DropEnded { id, tier, done } => self.drop_ended(id, tier, done, context),
            LedgerEvent::Synced { id, tier } => self.synced(id, tier),
            LedgerEvent::TierRefused { tier } => self.tier_refused(tier),
            LedgerEvent::TierRecovered { tier } => self.tier_recovered(tier),
            LedgerEvent::Resize { tier, capacity } => self.resize(tier, capacity, context),
            LedgerEvent::Tick { now } => {
                self.tick(now, context);
                Ok(())
            }
        }
    }

    /// The user's end of a buffer.
    fn free(&mut self, id: BufferId, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.buffers[index].migration.is_none() && (context.lease_status)(id) == LeaseStatus::Leased {
            return Err(Rejected::Leased);
        }
        self.consume_ticket(index);
        self.finish_move(index, false, context);
        if self.buffers[index].migration.is_some() {
            self.buffers[index].freed = true;
            self.update_policies(index);
        } else {
            self.forget(index, context);
        }
        Ok(())
    }

    /// Its request is done with: it cannot be cancelled any more.
    fn consume_ticket(&mut self, index: u32) {
        if let Some(ticket) = self.buffers[index].ticket.take() {
            self.granted.remove(&ticket);
        }
    }

    fn wrote(&mut self, id: BufferId, tier: Tier) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.buffers[index].migration.is_some() {
            return Err(Rejected::Moving);
        }
        let buffer = &mut self.buffers[index];
        buffer.residence.apply(Transition::Update(tier))?;
        buffer.version += 1;
        self.consume_ticket(index);
        self.update_policies(index);
        Ok(())
    }

    fn synced(&mut self, id: BufferId, tier: Tier) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        let buffer = &mut self.buffers[index];
        if matches!(buffer.migration, Some(table::Migration::Drop { tier: going }) if going == tier) {
            return Err(Rejected::Moving);
        }
        let mut residence = buffer.residence;
        residence.apply(Transition::Read(tier))?;
        buffer.synced = Some((tier, buffer.version));
        self.consume_ticket(index);
        self.update_policies(index);
        Ok(())
    }

    /// What is known of a buffer.
    ///
    /// # Errors
    /// [`Rejected::Stale`].
    pub fn view(&self, id: BufferId) -> Result<BufferView, Rejected> {
        let buffer = &self.buffers[self.buffers.find(id)?];
        let &table::BufferRecord { bytes, tenant, residence, version, synced, deferred, .. } = buffer;
        Ok(BufferView { bytes, tenant, residence, version, synced, moving: buffer.migration.is_some(), deferred })
    }

    /// The live buffers, by number.
    pub fn ids(&self) -> impl Iterator<Item = BufferId> {
        self.buffers.iter().filter(|buffer| !buffer.freed).map(|buffer| buffer.id)
    }

    /// What is known of a tier.
    pub fn tier(&self, tier: Tier) -> Option<TierView> {
        let state = self.tiers.get(usize::from(tier))?;
        let &TierState { medium, capacity, used, leaving, reported: level, suspended_until, .. } = state;
        Some(TierView { medium, capacity, used, leaving, level, suspended_until })
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
    fn all_tiers(&self) -> std::ops::Range<Tier> {
        0..(self.tiers.len() as u8).min(TIERS)
    }
}
