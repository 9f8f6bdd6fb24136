//! Queues requests for buffers, and grants or refuses them.
//!
//! Order: first come, first served. No request is granted while an earlier one waits, with one exception: a tenant at
//! its cap waits for its own frees, and only its own requests wait behind it. (Adopting a dormant buffer is no
//! request.) Users' promotions go on while the first request waits for frees of other users, as these may need them
//! before they can free; it waits as long as those users keep the room.
//!
//! Placement: the tier of the hint, then the tiers in memory and on devices from the best on, then file tiers; the
//! first that has room or can make room. A request larger than every tier in memory and on devices is placed in a file
//! tier, where it is used in parts.
//!
//! Requests that do not wait for other users stay in the queue while room is made for them or for an earlier one, and
//! are refused as soon as an earlier one waits for other users.

use super::account::FreedBy;
use super::error::{Refusal, RefusalReason, Rejected};
use super::table::BufferRecord;
use super::types::{Action, Medium, PlacementHint};
use super::{EventContext, EvictionCause, Ledger, Tier};
use terrace_core::residence::Residence;

/// An allocation request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub ticket: u64,
    pub bytes: u64,
    pub tenant: u16,
    pub wait: bool,
    pub hint: PlacementHint,
}

/// What the requests in the queue wait for, apart from those of tenants at their caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    /// No request waits for room.
    Clear,
    /// The first request waits until other users free buffers or release leases.
    Blocked,
    /// Buffers are leaving this tier to make room for the first request.
    MakingRoom(Tier),
}

/// Where an allocation request can be placed now.
enum Placement {
    /// There is room in this tier.
    InTier(Tier),
    /// Buffers are leaving this tier to make room for the request.
    MakingRoom(Tier),
    /// No room can be made before users free buffers or release leases.
    Blocked,
}

impl Ledger {
    /// Queues a request, or refuses it at once if it can never be granted.
    pub(super) fn enqueue(&mut self, request: PendingRequest, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        self.check_request(&request)?;
        match self.permanent_refusal(&request) {
            Some(error) => context.actions.push(Action::Refuse { ticket: request.ticket, error }),
            None => {
                self.non_waiting += usize::from(!request.wait);
                self.queue.push_back(request);
            }
        }
        Ok(())
    }

    pub(super) fn check_request(&self, request: &PendingRequest) -> Result<(), Rejected> {
        if usize::from(request.tenant) >= self.tenants.len() {
            return Err(Rejected::NoSuchTenant);
        }
        let is_same = |waiting: &PendingRequest| waiting.ticket == request.ticket;
        if self.granted.contains_key(&request.ticket) || self.queue.iter().any(is_same) {
            return Err(Rejected::TicketInUse);
        }
        Ok(())
    }

    /// Returns why a buffer of this size can never be granted to a tenant; `None` if it can be.
    pub(crate) fn refusal(&self, bytes: u64, tenant: u16) -> Option<Refusal> {
        let request = PendingRequest { ticket: 0, bytes, tenant, wait: false, hint: PlacementHint::default() };
        self.tenants.get(usize::from(tenant)).and_then(|_| self.permanent_refusal(&request))
    }

    /// Returns why a request can never be granted; `None` if it can be.
    fn permanent_refusal(&self, request: &PendingRequest) -> Option<Refusal> {
        let tenant = &self.tenants[usize::from(request.tenant)];
        let largest = |tier: Tier| {
            let state = &self.tiers[usize::from(tier)];
            state.largest_copy(state.limit.min(tenant.quota.tier_caps[usize::from(tier)])).min(tenant.quota.cap)
        };
        let largest = self.all_tiers().map(largest).max().unwrap_or(0);
        let reason = match request.bytes {
            0 => RefusalReason::Empty,
            bytes if bytes > tenant.quota.cap => RefusalReason::OverCap,
            bytes if bytes > largest => RefusalReason::TooLarge,
            _ => return None,
        };
        Some(Refusal { reason, requested: request.bytes, largest })
    }

    /// Refuses the queued requests that can never be granted any more, after a tier shrank.
    pub(super) fn refuse_impossible(&mut self, context: &mut EventContext<'_>) {
        for at in (0..self.queue.len()).rev() {
            if let Some(error) = self.permanent_refusal(&self.queue[at]) {
                self.refuse(at, error, context);
            }
        }
    }

    /// Answers all requests that can be answered now; returns what the remaining ones wait for.
    pub(super) fn serve(&mut self, context: &mut EventContext<'_>) -> QueueState {
        let mut capped: Vec<u16> = Vec::new();
        let mut queue_state = QueueState::Clear;
        let mut at = 0;
        while let Some(&request) = self.queue.get(at) {
            if capped.contains(&request.tenant) || !self.within_cap(&request) {
                if request.wait {
                    capped.push(request.tenant);
                    at += 1;
                } else {
                    self.refuse(at, self.over_cap(&request), context);
                }
                continue;
            }
            let blocked = queue_state == QueueState::Blocked;
            match if blocked { Placement::Blocked } else { self.placement(&request, context) } {
                Placement::InTier(tier) => {
                    if let Some(request) = self.dequeue(at) {
                        self.grant(request, tier, context);
                    }
                }
                Placement::MakingRoom(tier) => return QueueState::MakingRoom(tier),
                Placement::Blocked if !request.wait => self.refuse(at, self.no_room(&request), context),
                // No later request may be granted before this one, and no later one has to be refused, as all of them
                // wait.
                Placement::Blocked if self.non_waiting == 0 => return QueueState::Blocked,
                Placement::Blocked => (queue_state, at) = (QueueState::Blocked, at + 1),
            }
        }
        queue_state
    }

    /// Whether the tenant stays within its cap if the request is granted.
    fn within_cap(&self, request: &PendingRequest) -> bool {
        let tenant = &self.tenants[usize::from(request.tenant)];
        request.bytes <= tenant.quota.cap.saturating_sub(tenant.bytes)
    }

    fn over_cap(&self, request: &PendingRequest) -> Refusal {
        let tenant = &self.tenants[usize::from(request.tenant)];
        Refusal {
            reason: RefusalReason::OverCap,
            requested: request.bytes,
            largest: tenant.quota.cap.saturating_sub(tenant.bytes),
        }
    }

    fn no_room(&self, request: &PendingRequest) -> Refusal {
        let room = |tier: Tier| {
            let state = &self.tiers[usize::from(tier)];
            state.largest_copy(state.room().min(self.cap_room(tier, request.tenant)))
        };
        let largest = self.all_tiers().filter(|tier| !self.is_suspended(*tier)).map(room).max().unwrap_or(0);
        // `largest` may exceed `requested`: free bytes may be reserved for earlier requests.
        Refusal { reason: RefusalReason::NoRoom, requested: request.bytes, largest }
    }

    fn is_suspended(&self, tier: Tier) -> bool {
        self.tiers[usize::from(tier)].suspended_until.is_some()
    }

    /// The tiers in which a request could be placed, in order of preference.
    fn candidates(&self, request: &PendingRequest) -> impl Iterator<Item = Tier> + use<> {
        let kind = |tier: &Tier| self.tiers[usize::from(*tier)].medium;
        let hinted = request.hint.tier.filter(|tier| usize::from(*tier) < self.tiers.len());
        let memory: Vec<Tier> = self.all_tiers().filter(|tier| kind(tier) != Medium::File).collect();
        let files: Vec<Tier> = self.all_tiers().filter(|tier| kind(tier) == Medium::File).collect();
        hinted.into_iter().chain(memory).chain(files)
    }

    fn placement(&mut self, request: &PendingRequest, context: &mut EventContext<'_>) -> Placement {
        for tier in self.candidates(request) {
            let state = &self.tiers[usize::from(tier)];
            let held = state.footprint(request.bytes);
            let closed = state.capacity < held || state.suspended_until.is_some();
            if closed || self.cap_room(tier, request.tenant) < held {
                continue;
            }
            if state.room() >= held {
                return Placement::InTier(tier);
            }
            let shortfall = state.shortfall(held);
            if self.make_room(tier, shortfall, (Some(request.tenant), EvictionCause::Allocation), context) {
                return Placement::MakingRoom(tier);
            }
        }
        Placement::Blocked
    }

    /// Grants a request its buffer.
    fn grant(&mut self, request: PendingRequest, tier: Tier, context: &mut EventContext<'_>) {
        // Tiers are numbered below 8.
        let Ok(residence) = Residence::new(tier) else { return };
        let PendingRequest { ticket, bytes, tenant, hint, .. } = request;
        if !self.buffers.has_room() {
            context.actions.push(Action::Refuse { ticket, error: self.no_room(&request) });
            return;
        }
        let zero = match self.tiers[usize::from(tier)].freed_by {
            FreedBy::None => false,
            FreedBy::One(other) => other != tenant,
            FreedBy::Many => true,
        };
        let id = self.buffers.insert(BufferRecord::new(bytes, tenant, hint, residence, ticket));
        self.reserve(tier, tenant, bytes);
        let held = self.footprint(tier, bytes);
        let demand = &mut self.tiers[usize::from(tier)].demand[0];
        *demand = demand.saturating_add(held);
        self.tenants[usize::from(tenant)].bytes += bytes;
        self.keeps += usize::from(hint.keep);
        self.granted.insert(ticket, id);
        self.update_policies(id.index);
        // A search for room may succeed now: the tier has one more candidate for eviction.
        self.tiers[usize::from(tier)].failed_search = None;
        context.actions.push(Action::Grant { ticket, id, tier, zero });
    }

    fn refuse(&mut self, at: usize, error: Refusal, context: &mut EventContext<'_>) {
        if let Some(request) = self.dequeue(at) {
            context.actions.push(Action::Refuse { ticket: request.ticket, error });
        }
    }

    fn dequeue(&mut self, at: usize) -> Option<PendingRequest> {
        let request = self.queue.remove(at)?;
        self.non_waiting -= usize::from(!request.wait);
        Some(request)
    }

    /// Cancels a request: removes it from the queue, or frees the buffer it was granted.
    pub(super) fn cancel(&mut self, ticket: u64, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        if let Some(id) = self.granted.get(&ticket).copied() {
            return self.free(id, context);
        }
        let at = self.queue.iter().position(|request| request.ticket == ticket).ok_or(Rejected::NoSuchTicket)?;
        let error = Refusal { reason: RefusalReason::Cancelled, requested: self.queue[at].bytes, largest: 0 };
        self.refuse(at, error, context);
        Ok(())
    }
}
