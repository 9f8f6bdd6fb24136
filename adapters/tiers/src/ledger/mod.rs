//! Decides where buffers are: grants, evictions, moves and pressure. Events go in, actions come out.
//!
//! Promises upward:
//! - the newest bytes of a buffer are never dropped, nor the copy that survives a power cut; each freed buffer is
//!   forgotten once
//! - copies in a tier, and those in progress to it, never exceed its capacity; after [`LedgerEvent::Resize`] to less
//!   than is used, or [`Ledger::recover`] of more than fits, nothing enters, and what can leave leaves until the rest
//!   fits
//! - each request is answered once, first come, first served (`queue` states what that means with several tenants)
//! - after the last event there are finitely many actions: a copy is made only downwards to make room, or on request;
//!   what failed or met a lease is not tried again before the next [`LedgerEvent::Tick`]
//! - equal events give equal actions: there is no clock, no thread, no I/O and no hashing here
//!
//! Asks from below: the core's residence and pressure; a policy for each tier; a caller that performs the actions in
//! order and reports how each copy and drop ended. Leases are outside: the ledger asks the caller for each lease
//! status. As a status may be outdated when an action is performed, the caller may find a lease then, and reports it.
//!
//! | term | meaning |
//! | --- | --- |
//! | tier | a number: 0 is the best tier, a greater number is a lower tier |
//! | copy | memory of a buffer in a tier; valid if it has the newest bytes |
//! | redundant | a copy that can be dropped without losing bytes |
//! | clean copy | a valid copy in a lower tier than another: promotion keeps it, so that demotion is a drop |
//! | migration | a copy or a drop in progress: one at a time for each buffer |
//! | leaving | bytes that a migration in progress will free in a tier |
//! | move request | a pending promotion, demotion or replication, of a user or of a second touch: one for each buffer |
//! | dormant | a durable buffer of an earlier run that no user has opened: it has no record, and counts in sums |
//! | deferred | a buffer that met a lease or a failure: not moved until the next tick |
//! | suspended | a tier that a copy failed into: takes no copies until its backoff has passed |
//!
//! | file | content |
//! | --- | --- |
//! | `table`, `account` | state of buffers; of tiers and tenants, in bytes |
//! | `dormant` | buffers that count in sums until they are opened |
//! | `queue` | requests for buffers: order, placement, refusal |
//! | `eviction` | which buffers leave a tier |
//! | `ahead` | room for all that waits at once, and ahead of demand |
//! | `migration` | begins copies and drops, and records how they ended |
//! | `move_request` | promotion, demotion, replication |
//! | `maintenance` | ticks, resizes, pressure |
//! | `check` | checks every invariant |

mod account;
mod ahead;
mod check;
mod dormant;
mod error;
mod eviction;
mod maintenance;
mod migration;
mod move_request;
mod notice;
mod queue;
mod table;
mod types;
mod views;

pub use error::{Refusal, RefusalReason, Rejected, SetupError};
#[cfg(feature = "tracing")]
pub(crate) use notice::Notice;
pub use types::{
    Action, BufferId, CopyOutcome, LeaseStatus, LedgerEvent, Medium, PlacementHint, Settings, TenantQuota, TierSpec,
};
pub use views::{BufferView, EvictionCause, EvictionStats, PrefetchStats, TierView};

use crate::policy::Policy;
use account::{Tenant, TierState};
use notice::Notices;
use queue::PendingRequest;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use table::{BufferTable, MoveKind, MoveRequest, RECORD_BYTES};
use terrace_core::residence::{TIERS, Tier, Transition};

/// Decides which tiers hold each buffer; its promises stand at the top of this module.
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
    /// At most 8.
    tiers: Vec<TierState>,
    /// The eviction policy of each tier. Its members are the buffers for which `is_candidate` is true.
    policies: Vec<Box<dyn Policy>>,
    tenants: Vec<Tenant>,
    buffers: BufferTable,
    /// Number of buffers whose placement hint says `keep`, and of those that are awaited.
    keeps: usize,
    awaited: usize,
    prefetches: PrefetchStats,
    evictions: EvictionStats,
    /// Allocation requests that are not answered yet, in order of arrival.
    queue: VecDeque<PendingRequest>,
    /// Number of requests in `queue` that do not wait for other users to free buffers.
    non_waiting: usize,
    /// Granted requests by ticket, until the user first uses the buffer; until then a request can be cancelled.
    granted: BTreeMap<u64, BufferId>,
    /// Two queues of buffers with a pending move: demotions and replications, then promotions. Some ids may be of freed
    /// buffers.
    move_queues: [VecDeque<BufferId>; 2],
    /// Buffers that are not moved until the next tick. Some ids may be of freed buffers.
    deferred: Vec<BufferId>,
    now: u64,
    touch_window: u64,
    maintenance_budget: u64,
    ahead_from: u64,
    backoff: u64,
    pub(crate) notices: Notices,
}

/// Bytes of metadata that a ledger keeps for each buffer, mostly its record and a node in the tables of two policies.
pub(crate) const DESCRIPTION: usize = RECORD_BYTES + 2 * crate::policy::NODE_BYTES;

/// Arguments of one call of [`Ledger::handle`].
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
    /// Builds a ledger without buffers.
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
            awaited: 0,
            prefetches: PrefetchStats::default(),
            evictions: EvictionStats::default(),
            queue: VecDeque::new(),
            non_waiting: 0,
            granted: BTreeMap::new(),
            move_queues: [VecDeque::new(), VecDeque::new()],
            deferred: Vec::new(),
            now: 0,
            touch_window: settings.touch_window,
            maintenance_budget: settings.maintenance_budget,
            ahead_from: settings.ahead_from,
            backoff: settings.backoff,
            notices: Notices::default(),
        })
    }

    /// Handles an event; appends the actions to perform to `actions`.
    ///
    /// `lease_status` must report how a buffer is leased at this moment; it is called only for live buffers without a
    /// migration. The call is O(1) where no buffer has to move. For each buffer that leaves a tier, a search for room
    /// calls `lease_status` a few times at most for each member of that tier.
    ///
    /// # Errors
    /// [`Rejected`] if the event is invalid: then nothing has changed, and no action is added. The refusal of a request
    /// is no error but the action [`Action::Refuse`].
    pub fn handle(
        &mut self,
        event: LedgerEvent,
        lease_status: &mut dyn FnMut(BufferId) -> LeaseStatus,
        actions: &mut Vec<Action>,
    ) -> Result<(), Rejected> {
        // After most events, a search for room that failed before may succeed: its result is forgotten. It is kept
        // after touches and after requests that queue behind others; frees reset the results that they change.
        let same = match event {
            LedgerEvent::Allocate { .. } => !self.queue.is_empty(),
            LedgerEvent::Touch { .. } | LedgerEvent::Free { .. } | LedgerEvent::Cancel { .. } => true,
            _ => false,
        };
        self.tiers.iter_mut().filter(|_| !same).for_each(TierState::reset_searches);
        let mut context = EventContext { lease_status, actions };
        self.apply(event, &mut context)?;
        self.shrink_to_capacity(&mut context);
        let queue_state = self.serve(&mut context);
        self.serve_moves(queue_state, &mut context);
        self.evict_ahead(queue_state, &mut context);
        self.report_pressure(&mut context);
        Ok(())
    }

    /// Applies the direct effect of an event; `handle` then serves the queues.
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
            LedgerEvent::Prefetch { id } => self.prefetch(id, context),
            LedgerEvent::Used { id } => self.used(id),
            LedgerEvent::Released { id } => self.released(id),
            LedgerEvent::CopyEnded { id, from, to, outcome } => self.copy_ended(id, from, to, outcome, context),
            LedgerEvent::DropEnded { id, tier, done } => self.drop_ended(id, tier, done, context),
            LedgerEvent::Synced { id, tier } => self.synced(id, tier),
            LedgerEvent::TierRefused { tier } => self.tier_refused(tier),
            LedgerEvent::TierRecovered { tier } => self.tier_recovered(tier),
            LedgerEvent::Resize { tier, capacity } => self.resize(tier, capacity, context),
            LedgerEvent::Budget { tier, bytes } => self.set_budget(tier, bytes),
            LedgerEvent::Tick { now } => {
                self.tick(now, context);
                Ok(())
            }
        }
    }

    /// Frees a buffer; if a migration of it is in progress, the buffer is forgotten when that ends.
    fn free(&mut self, id: BufferId, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.buffers[index].migration.is_none() && (context.lease_status)(id) == LeaseStatus::Leased {
            return Err(Rejected::Leased);
        }
        self.consume_ticket(index);
        self.report_move(index, false, context);
        if self.buffers[index].migration.is_some() {
            self.buffers[index].freed = true;
            self.update_policies(index);
        } else {
            self.forget(index, context);
        }
        Ok(())
    }

    /// Consumes the ticket of a buffer's request: the request can no longer be cancelled.
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
        self.set_used(index);
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

    /// Reports the state of a buffer.
    ///
    /// # Errors
    /// [`Rejected::Stale`].
    pub fn view(&self, id: BufferId) -> Result<BufferView, Rejected> {
        let buffer = &self.buffers[self.buffers.find(id)?];
        let &table::BufferRecord { bytes, tenant, residence, version, synced, deferred, .. } = buffer;
        Ok(BufferView { bytes, tenant, residence, version, synced, moving: buffer.migration.is_some(), deferred })
    }

    /// The ids of all live buffers, in the order of their indices.
    pub fn ids(&self) -> impl Iterator<Item = BufferId> {
        self.buffers.iter().filter(|buffer| !buffer.freed).map(|buffer| buffer.id)
    }

    /// Reports the state of a tier.
    pub fn tier(&self, tier: Tier) -> Option<TierView> {
        let state = self.tiers.get(usize::from(tier))?;
        let &TierState { medium, capacity, limit, used, leaving, reported: level, suspended_until, .. } = state;
        Some(TierView { medium, capacity, limit, used, leaving, level, suspended_until })
    }

    /// Bytes of a tenant's buffers, each buffer counted once; `None` if there is no such tenant.
    pub fn tenant_bytes(&self, tenant: u16) -> Option<u64> {
        self.tenants.get(usize::from(tenant)).map(|tenant| tenant.bytes)
    }

    /// Bytes of all dormant buffers.
    pub fn dormant_bytes(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.dormant).sum()
    }

    /// The tier to which a buffer is being prefetched, if it is.
    pub fn prefetching(&self, id: BufferId) -> Option<Tier> {
        let request = self.buffers[self.buffers.find(id).ok()?].pending_move?;
        (request.kind == MoveKind::Prefetch).then_some(request.to)
    }

    /// What became of prefetches so far.
    pub fn prefetches(&self) -> PrefetchStats {
        self.prefetches
    }

    /// Evictions so far, by cause.
    pub fn evictions(&self) -> EvictionStats {
        self.evictions
    }

    /// Number of allocation requests that are not answered yet.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// All tiers, best first.
    fn all_tiers(&self) -> std::ops::Range<Tier> {
        0..(self.tiers.len() as u8).min(TIERS)
    }
}
