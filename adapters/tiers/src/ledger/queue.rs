//! Who gets memory, where, and who waits.
//!
//! The order: first come, first served. Nobody is granted anything while somebody who came before waits, but for one
//! reason: a tenant that is at its cap waits for its own frees, and only its own requests wait behind it. (What is
//! adopted at a start is no request.) Promotions that users want go on while only others can help the first who waits:
//! it waits as long as those keep the room.
//!
//! The place: the tier of the hint, then memory from the best on, then files; the first where there is room or where
//! room can be made. A request for more than every memory tier holds goes to a file tier, to be used by parts.
//!
//! Requests that do not wait for others stay in the queue while room is being made for them or for one before them, and
//! are refused as soon as somebody before them waits for others.

use super::account::{Left, MOST};
use super::error::{Refusal, Rejected, Why};
use super::table::Buffer;
use super::words::{Action, Hint, TierKind};
use super::{Ledger, Tier, Turn};
use terrace_core::residence::Residence;

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub ticket: u64,
    pub bytes: u64,
    pub tenant: u16,
    pub wait: bool,
    pub hint: Hint,
}

/// Who waits for room, and not for its own tenant's frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Nobody,
    /// Somebody whom only others can help.
    Stuck,
    /// Somebody for whom room is being made.
    Coming,
}

/// What can be done for a request.
enum Place {
    /// There is room.
    Here(Tier),
    /// Room is being made.
    Coming,
    /// Only what others do can help.
    Nowhere,
}

impl Ledger {
    /// Takes a request in. Those that nothing can help are refused at once.
    pub(super) fn enqueue(&mut self, request: Waiting, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        self.admit(&request)?;
        match self.hopeless(&request) {
            Some(error) => turn.out.push(Action::Refuse { ticket: request.ticket, error }),
            None => {
                self.impatient += usize::from(!request.wait);
                self.queue.push_back(request);
            }
        }
        Ok(())
    }

    fn admit(&self, request: &Waiting) -> Result<(), Rejected> {
        if usize::from(request.tenant) >= self.tenants.len() {
            return Err(Rejected::NoSuchTenant);
        }
        let waits = |waiting: &Waiting| waiting.ticket == request.ticket;
        if self.granted.contains_key(&request.ticket) || self.queue.iter().any(waits) {
            return Err(Rejected::TicketInUse);
        }
        Ok(())
    }

    /// Grants what is there already, whatever capacity and caps say.
    pub(super) fn adopt(&mut self, request: Waiting, tier: Tier, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        self.admit(&request)?;
        let state = self.tiers.get(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        let largest = state.largest(MOST.saturating_sub(state.used));
        if request.bytes == 0 || request.bytes > largest {
            let why = if request.bytes == 0 { Why::Empty } else { Why::TooLarge };
            let error = Refusal { why, asked: request.bytes, largest };
            turn.out.push(Action::Refuse { ticket: request.ticket, error });
            return Ok(());
        }
        self.grant(request, tier, turn);
        let (state, tenant) = (&mut self.tiers[usize::from(tier)], &mut self.tenants[usize::from(request.tenant)]);
        state.over = state.used > state.capacity;
        tenant.over = tenant.is_above();
        Ok(())
    }

    /// Why so many bytes can never be granted to a tenant, if they cannot.
    pub(crate) fn refusal(&self, bytes: u64, tenant: u16) -> Option<Refusal> {
        let request = Waiting { ticket: 0, bytes, tenant, wait: false, hint: Hint::default() };
        self.tenants.get(usize::from(tenant)).and_then(|_| self.hopeless(&request))
    }

    /// Why a request can never be granted.
    fn hopeless(&self, request: &Waiting) -> Option<Refusal> {
        let tenant = &self.tenants[usize::from(request.tenant)];
        let largest = |tier: Tier| {
            let state = &self.tiers[usize::from(tier)];
            state.largest(state.capacity.min(tenant.share.caps[usize::from(tier)])).min(tenant.share.cap)
        };
        let largest = self.all().map(largest).max().unwrap_or(0);
        let why = match request.bytes {
            0 => Why::Empty,
            bytes if bytes > tenant.share.cap => Why::OverCap,
            bytes if bytes > largest => Why::TooLarge,
            _ => return None,
        };
        Some(Refusal { why, asked: request.bytes, largest })
    }

    /// Refuses those whom a smaller tier left without hope.
    pub(super) fn dismiss(&mut self, turn: &mut Turn<'_>) {
        for at in (0..self.queue.len()).rev() {
            if let Some(error) = self.hopeless(&self.queue[at]) {
                self.refuse(at, error, turn);
            }
        }
    }

    /// Answers all that can be answered now. Who is left.
    pub(super) fn serve(&mut self, turn: &mut Turn<'_>) -> Waits {
        let mut capped: Vec<u16> = Vec::new();
        let mut waits = Waits::Nobody;
        let mut at = 0;
        while let Some(&request) = self.queue.get(at) {
            if capped.contains(&request.tenant) || !self.has_share(&request) {
                if request.wait {
                    capped.push(request.tenant);
                    at += 1;
                } else {
                    self.refuse(at, self.over_cap(&request), turn);
                }
                continue;
            }
            match if waits == Waits::Stuck { Place::Nowhere } else { self.place(&request, turn) } {
                Place::Here(tier) => {
                    if let Some(request) = self.unqueue(at) {
                        self.grant(request, tier, turn);
                    }
                }
                Place::Coming => return Waits::Coming,
                Place::Nowhere if !request.wait => self.refuse(at, self.no_room(&request), turn),
                // Nobody behind it is granted anything, and only the impatient are answered.
                Place::Nowhere if self.impatient == 0 => return Waits::Stuck,
                Place::Nowhere => (waits, at) = (Waits::Stuck, at + 1),
            }
        }
        waits
    }

    /// Whether a request stays within its tenant's cap.
    fn has_share(&self, request: &Waiting) -> bool {
        let tenant = &self.tenants[usize::from(request.tenant)];
        request.bytes <= tenant.share.cap.saturating_sub(tenant.bytes)
    }

    fn over_cap(&self, request: &Waiting) -> Refusal {
        let tenant = &self.tenants[usize::from(request.tenant)];
        Refusal { why: Why::OverCap, asked: request.bytes, largest: tenant.share.cap.saturating_sub(tenant.bytes) }
    }

    fn no_room(&self, request: &Waiting) -> Refusal {
        let room = |tier: Tier| {
            let state = &self.tiers[usize::from(tier)];
            state.largest(state.room().min(self.cap_room(tier, request.tenant)))
        };
        let largest = self.all().filter(|tier| !self.rests(*tier)).map(room).max().unwrap_or(0);
        // More than was asked may be free, for whoever came before.
        Refusal { why: Why::NoRoom, asked: request.bytes, largest }
    }

    fn rests(&self, tier: Tier) -> bool {
        self.tiers[usize::from(tier)].rests_until.is_some()
    }

    /// Where a request would go, in order of preference.
    fn candidates(&self, request: &Waiting) -> impl Iterator<Item = Tier> + use<> {
        let kind = |tier: &Tier| self.tiers[usize::from(*tier)].kind;
        let hinted = request.hint.tier.filter(|tier| usize::from(*tier) < self.tiers.len());
        let memory: Vec<Tier> = self.all().filter(|tier| kind(tier) != TierKind::File).collect();
        let files: Vec<Tier> = self.all().filter(|tier| kind(tier) == TierKind::File).collect();
        hinted.into_iter().chain(memory).chain(files)
    }

    fn place(&mut self, request: &Waiting, turn: &mut Turn<'_>) -> Place {
        for tier in self.candidates(request) {
            let state = &self.tiers[usize::from(tier)];
            let held = state.held(request.bytes);
            let closed = state.capacity < held || state.rests_until.is_some();
            if closed || self.cap_room(tier, request.tenant) < held {
                continue;
            }
            if state.room() >= held {
                return Place::Here(tier);
            }
            let lacks = state.lacks(held);
            if self.make_room(tier, lacks, Some(request.tenant), turn) {
                return Place::Coming;
            }
        }
        Place::Nowhere
    }

    /// Gives a request its buffer.
    fn grant(&mut self, request: Waiting, tier: Tier, turn: &mut Turn<'_>) {
        // The tier is one of at most eight.
        let Ok(residence) = Residence::new(tier) else { return };
        let Waiting { ticket, bytes, tenant, hint, .. } = request;
        if !self.buffers.has_room() {
            turn.out.push(Action::Refuse { ticket, error: self.no_room(&request) });
            return;
        }
        let zero = match self.tiers[usize::from(tier)].left {
            Left::Nobody => false,
            Left::One(other) => other != tenant,
            Left::Many => true,
        };
        let id = self.buffers.insert(Buffer::new(bytes, tenant, hint, residence, ticket));
        self.reserve(tier, tenant, bytes);
        self.tenants[usize::from(tenant)].bytes += bytes;
        self.keeps += usize::from(hint.keep);
        self.granted.insert(ticket, id);
        self.relist(id.index);
        // One more that may leave.
        self.tiers[usize::from(tier)].dry = None;
        turn.out.push(Action::Grant { ticket, id, tier, zero });
    }

    fn refuse(&mut self, at: usize, error: Refusal, turn: &mut Turn<'_>) {
        if let Some(request) = self.unqueue(at) {
            turn.out.push(Action::Refuse { ticket: request.ticket, error });
        }
    }

    fn unqueue(&mut self, at: usize) -> Option<Waiting> {
        let request = self.queue.remove(at)?;
        self.impatient -= usize::from(!request.wait);
        Some(request)
    }

    /// The asker is gone: out of the queue, or its buffer back.
    pub(super) fn cancel(&mut self, ticket: u64, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        if let Some(id) = self.granted.get(&ticket).copied() {
            return self.free(id, turn);
        }
        let at = self.queue.iter().position(|request| request.ticket == ticket).ok_or(Rejected::NoSuchTicket)?;
        let error = Refusal { why: Why::Cancelled, asked: self.queue[at].bytes, largest: 0 };
        self.refuse(at, error, turn);
        Ok(())
    }
}
