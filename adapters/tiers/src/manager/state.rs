//! What the manager knows, under its one lock, and how it does what the ledger says.
//!
//! Promises upward: an event is taken in, and all that can be done at once is done, before the lock is let go; what
//! takes time is a task, which says how it ended.
//! Asks from below: the ledger; lease words.
//!
//! Invariant: `busy` holds the buffers whose bytes or copies are under way by other means than a motion: being made, or
//! written in files. The ledger is told that they are leased.

use super::Shared;
use super::body::{Body, Copied};
use super::durable::{Ghosts, NAME};
use super::error::Error;
use super::resting::Refused;
use super::returns::Returns;
use super::words::Moves;
use crate::ledger::{Action, Event, Id, Ledger, Look, Outcome, Rejected, TierKind};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;

/// Who waits for a wish.
type Waiter = oneshot::Sender<Result<bool, Error>>;

/// Who asked for a buffer.
pub(super) struct Asker {
    pub name: Option<(String, u64)>,
    pub chunk: usize,
    /// Bytes that describe the buffer.
    pub description: u64,
    /// Told with the buffer.
    pub told: oneshot::Sender<Result<Arc<Body>, Error>>,
}

/// Under the manager's lock.
pub(super) struct State {
    pub ledger: Ledger,
    pub bodies: BTreeMap<Id, Arc<Body>>,
    pub busy: BTreeSet<Id>,
    /// Mapped files, and some that are unmapped.
    pub mapped: Vec<Weak<Body>>,
    pub askers: HashMap<u64, Asker>,
    pub next_ticket: u64,
    pub ticks: u64,
    /// What is wanted of a buffer, and who waits until it is so, or will not be.
    pub waiters: HashMap<Id, (Event, Vec<Waiter>)>,
    /// Buffers of which the ledger has a wish that it will answer.
    wished: BTreeSet<Id>,
    /// The ledger's next answer for it is to a wish that nobody waits for any more.
    stale: Option<Id>,
    /// Names in use; a buffer that is being made has no id yet.
    pub names: BTreeMap<String, Option<Id>>,
    pub next_object: u64,
    pub ghosts: Ghosts,
    /// Bytes of buffers whose words are counted.
    pub pinned: u64,
    /// Levels that callbacks are told of when the lock is free.
    pub levels: Vec<(Tier, Level)>,
    pub returns: Returns,
    pub moves: Moves,
    /// Bytes that each tier may have at most.
    pub most: Vec<u64>,
    /// Why tiers rest that do.
    pub refused: BTreeMap<Tier, Refused>,
    /// The time of the last tick.
    pub now: u64,
    /// Bytes that describe all buffers, and those that were asked for.
    pub descriptions: u64,
    /// What the capacity of memory is smaller by for that.
    pub described: u64,
    /// What lies unused between buffers in memory, as far as its capacity follows that; and whether that is to be
    /// looked at.
    pub unused: u64,
    pub crowded: bool,
}

impl State {
    pub(super) fn new(ledger: Ledger, most: Vec<u64>) -> Self {
        Self {
            ledger,
            bodies: BTreeMap::new(),
            busy: BTreeSet::new(),
            mapped: Vec::new(),
            askers: HashMap::new(),
            next_ticket: 0,
            ticks: 0,
            waiters: HashMap::new(),
            wished: BTreeSet::new(),
            stale: None,
            names: BTreeMap::new(),
            next_object: 1,
            ghosts: Ghosts::default(),
            pinned: 0,
            levels: Vec::new(),
            returns: Returns::default(),
            moves: Moves::default(),
            most,
            refused: BTreeMap::new(),
            now: 0,
            descriptions: 0,
            described: 0,
            unused: 0,
            crowded: false,
        }
    }

    /// Takes an event in.
    pub(super) fn handle(&mut self, shared: &Arc<Shared>, event: Event) -> Result<(), Rejected> {
        let mut events = VecDeque::from([event]);
        let mut first = None;
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            // What follows on a copy finds no lease of it.
            if let Event::Moved { id, .. } = event
                && self.bodies.get(&id).is_some_and(|body| body.end_beside())
            {
                shared.released(id);
            }
            let (bodies, busy, waiters, mut leased) = (&self.bodies, &self.busy, &self.waiters, Vec::new());
            let mut looked = |id| {
                let look = look(bodies, busy, id, is_saved(waiters, id));
                leased.extend((look == Look::Leased).then_some(id));
                look
            };
            let result = self.ledger.handle(event, &mut looked, &mut actions);
            first.get_or_insert(result);
            leased.into_iter().for_each(|id| self.refuse_waiters(id));
            for action in actions {
                events.extend(self.act(shared, action));
            }
            if let Event::Moved { id, .. } | Event::Dropped { id, .. } = event {
                self.moves.count(&event, self.bodies.get(&id).map_or(0, |body| body.bytes));
                self.ended(shared, id);
                shared.moved.notify();
            }
            events.extend(self.describe(shared));
        }
        first.unwrap_or(Ok(()))
    }

    /// Does what the ledger says; what that means for it, if it is known at once.
    fn act(&mut self, shared: &Arc<Shared>, action: Action) -> Option<Event> {
        match action {
            Action::Grant { ticket, id, tier, .. } => self.grant(shared, ticket, id, tier),
            Action::Refuse { ticket, error } => {
                let asker = self.dismiss(ticket)?;
                let _ = asker.told.send(Err(self.none_has_room(shared, error)));
                None
            }
            Action::Copy { id, from, to } => self.begin_copy(shared, id, from, to),
            Action::Drop { id, tier } => {
                let done = self.drop_copy(id, tier);
                Some(Event::Dropped { id, tier, done })
            }
            Action::Forget { id } => {
                self.forget(id);
                None
            }
            Action::Settled { id, met, .. } => {
                if self.stale.take_if(|stale| *stale == id).is_none() {
                    self.wished.remove(&id);
                    self.settled(id, &self.ledger.view(id).map(|_| met).map_err(Into::into));
                }
                None
            }
            Action::Pressure { tier, level } => {
                self.levels.push((tier, level));
                None
            }
        }
    }

    fn grant(&mut self, shared: &Arc<Shared>, ticket: u64, id: Id, tier: Tier) -> Option<Event> {
        let bytes = self.ledger.view(id).map_or(0, |view| view.bytes);
        let Some(asker) = self.askers.remove(&ticket) else { return Some(Event::Free { id }) };
        let mut body = Body::new(id, bytes, asker.chunk, asker.name);
        body.description = asker.description;
        let body = Arc::new(body);
        if let Some(name) = body.name() {
            self.names.insert(name.into(), Some(id));
        }
        self.bodies.insert(id, Arc::clone(&body));
        match shared.kind(tier) {
            TierKind::File => {
                body.copies().put(tier, Copied::Pieces(vec![None; body.chunks(0, bytes).len()]));
                // Nobody waits any more: it is freed.
                asker.told.send(Ok(body)).err().map(|_| Event::Free { id })
            }
            TierKind::Memory | TierKind::Device => {
                self.busy.insert(id);
                shared.make(body, tier, asker.told);
                None
            }
        }
    }

    fn begin_copy(&mut self, shared: &Arc<Shared>, id: Id, from: Tier, to: Tier) -> Option<Event> {
        let busy = Event::Moved { id, from, to, outcome: Outcome::Busy };
        let Some(body) = self.bodies.get(&id).cloned() else { return Some(busy) };
        if self.busy.contains(&id) {
            return Some(busy);
        }
        // What somebody waits for who knows that it may be read is copied beside readers.
        if !(self.close(&body) || is_saved(&self.waiters, id) && body.begin_beside()) {
            return Some(busy);
        }
        shared.copy(body, from, to);
        None
    }

    /// Says a wish to the ledger.
    ///
    /// # Errors
    /// [`Error::Leased`] while a lease is held that it would wait for; [`Error::Freed`].
    pub(super) fn wish(&mut self, shared: &Arc<Shared>, body: &Body, event: Event) -> Result<(), Error> {
        if body.is_freed() {
            self.waiters.remove(&body.id);
            return Err(Error::Freed);
        }
        let looked = look(&self.bodies, &self.busy, body.id, is_saved(&self.waiters, body.id));
        if looked == Look::Leased && !self.busy.contains(&body.id) {
            self.waiters.remove(&body.id);
            return Err(Error::Leased);
        }
        // One that nobody waits for any more, since its copy failed, is answered first.
        let before = !self.wished.insert(body.id);
        self.stale = before.then_some(body.id);
        let wished = self.handle(shared, event);
        self.stale = None;
        wished.map_err(|rejected| {
            // Then what was wished before is as it was.
            if !before {
                self.wished.remove(&body.id);
            }
            self.waiters.remove(&body.id);
            rejected.into()
        })
    }

    /// Tells who waits for a buffer that a lease is in the way, which may be one of theirs. That of a call is waited
    /// for.
    fn refuse_waiters(&mut self, id: Id) {
        let leased = |body: &Arc<Body>| !body.was_called(body.ended()) && body.lease.is_held();
        if !self.busy.contains(&id) && self.bodies.get(&id).is_some_and(leased) {
            self.settled(id, &Err(Error::Leased));
        }
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// [`Rejected::Leased`]; it was freed already.
    pub(super) fn free(&mut self, shared: &Arc<Shared>, body: &Body) -> Result<(), Rejected> {
        let moving = self.ledger.view(body.id)?.moving;
        // Closed first: from now on nobody gets a lease. A motion has closed it, or reads it like others.
        if body.is_copied() || (!moving && !self.close(body)) {
            return Err(Rejected::Leased);
        }
        let freed = self.handle(shared, Event::Free { id: body.id });
        if freed.is_err() {
            self.ended(shared, body.id);
        }
        freed
    }

    /// Keeps users out of a buffer. False: one is in. True also where the bytes are in no memory.
    fn close(&mut self, body: &Body) -> bool {
        match body.lease.close() {
            Ok(counted) => {
                self.pinned -= if counted { body.weight() } else { 0 };
                true
            }
            Err(terrace_core::lease::LeaseError::Closed) => true,
            Err(_) => false,
        }
    }

    /// A motion has ended: lets users in again, unless another has begun.
    pub(super) fn ended(&mut self, shared: &Shared, id: Id) {
        let (Some(body), Ok(view)) = (self.bodies.get(&id), self.ledger.view(id)) else { return };
        if view.moving {
            return;
        }
        let newest = |kind| shared.newest(&view.residence, kind);
        body.open(newest(TierKind::Memory), newest(TierKind::Device));
        body.has_changed();
    }

    /// Gives up a copy. False: it is in use.
    fn drop_copy(&mut self, id: Id, tier: Tier) -> bool {
        let Some(body) = self.bodies.get(&id).cloned() else { return true };
        if self.busy.contains(&id) || !self.close(&body) {
            return false;
        }
        self.returns.add(body.copies().take(tier));
        body.best.store(std::ptr::null_mut(), Ordering::Relaxed);
        true
    }

    fn forget(&mut self, id: Id) {
        let Some(body) = self.bodies.remove(&id) else { return };
        // No lease is held: the ledger asked. From now on none is given.
        self.close(&body);
        body.freed.store(true, Ordering::Release);
        self.returns.add(body.copies().clear());
        self.busy.remove(&id);
        self.descriptions -= body.description;
        self.forget_name(body.name());
        self.settled(id, &Err(Error::Freed));
        body.has_changed();
    }

    /// Takes a name, and a number in the store for it.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadName`].
    pub(super) fn claim_name(&mut self, name: String) -> Result<(String, u64), Error> {
        if name.is_empty() || name.len() > NAME {
            return Err(Error::BadName { bytes: name.len(), most: NAME });
        }
        if self.names.contains_key(&name) {
            return Err(Error::NameTaken(name));
        }
        self.names.insert(name.clone(), None);
        self.next_object += 1;
        Ok((name, self.next_object - 1))
    }

    fn forget_name(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.names.remove(name);
        }
    }

    /// Tells all who wait for a buffer.
    pub(super) fn settled(&mut self, id: Id, outcome: &Result<bool, Error>) {
        let (_, waiters) = self.waiters.remove(&id).unwrap_or((Event::Prefetch { id }, Vec::new()));
        for waiter in waiters {
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Waits until what is wanted of a buffer is so. Whether nothing was wanted before.
    pub(super) fn wait_for(&mut self, id: Id, event: Event) -> (oneshot::Receiver<Result<bool, Error>>, bool) {
        let (told, outcome) = oneshot::channel();
        let first = !self.waiters.contains_key(&id);
        self.waiters.entry(id).or_insert((event, Vec::new())).1.push(told);
        (outcome, first)
    }

    /// Whether this is what is wanted of a buffer.
    pub(super) fn waits_for(&self, id: Id, event: Event) -> bool {
        self.waiters.get(&id).is_some_and(|(wanted, _)| *wanted == event)
    }

    /// The number of a new request.
    pub(super) fn ticket(&mut self, asker: Asker) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.descriptions += asker.description;
        self.askers.insert(ticket, asker);
        ticket
    }

    /// A request gets no buffer: its name is free again.
    pub(super) fn dismiss(&mut self, ticket: u64) -> Option<Asker> {
        let asker = self.askers.remove(&ticket)?;
        self.descriptions -= asker.description;
        self.forget_name(asker.name.as_ref().map(|(name, _)| name.as_str()));
        Some(asker)
    }
}

/// Whether what is wanted of a buffer can be done while it is read.
fn is_saved(waiters: &HashMap<Id, (Event, Vec<Waiter>)>, id: Id) -> bool {
    waiters.get(&id).is_some_and(|(wanted, _)| matches!(wanted, Event::Save { .. }))
}

/// How a buffer is used at this moment. `read`: it does not matter that it is read.
fn look(bodies: &BTreeMap<Id, Arc<Body>>, busy: &BTreeSet<Id>, id: Id, read: bool) -> Look {
    match bodies.get(&id) {
        _ if busy.contains(&id) => Look::Leased,
        // Granted by the action that comes next.
        None => Look::Leased,
        Some(body) if read && body.lease.is_shared() => Look::Used,
        // Who gives the last one back says so. One that came since may only read.
        Some(body) if body.lease.set_wanted() && !(read && body.lease.is_shared()) => Look::Leased,
        Some(body) if body.lease.take_visits() > 0 => Look::Used,
        Some(_) => Look::Idle,
    }
}
