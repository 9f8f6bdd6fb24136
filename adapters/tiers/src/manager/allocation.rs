//! Allocates buffers: requests and their answers, names, and memory for new buffers.
//!
//! Promises upward: a request is answered once; one whose future is dropped is cancelled; where memory is free, one lock
//! is taken once, and no task is needed.
//! Asks from below: the ledger, which grants requests in their order; the memory of the tiers.

use super::block::{BlankBlock, HostBlock};
use super::buffer_state::{BufferState, TierCopy};
use super::durable::MAX_NAME_BYTES;
use super::error::Error;
use super::migration::catch_copy_panic;
use super::phase::PhaseEvent;
use super::state::State;
use super::stats::Waited;
use super::tracking::BufferOrigin;
use super::{BufferOptions, ManagerShared, TierStorage};
use crate::ledger::{BufferId, LedgerEvent, Medium, Refusal, RefusalReason};
use futures_channel::oneshot;
use smallvec::smallvec;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;
use terrace_core::residence::Tier;
use terrace_file::store::MAX_PARTS;

/// A caller that waits for the answer to its allocation request.
pub(super) struct AllocationWaiter {
    pub name: Option<(Arc<str>, u64)>,
    pub chunk: usize,
    /// Bytes of the buffer's metadata.
    pub metadata_bytes: u64,
    /// For what, and from where, the caller asked; `None` for a buffer that a restart has recovered, which is not tracked.
    pub origin: Option<BufferOrigin>,
    /// Sends the buffer, or the reason why there is none, to the caller.
    pub sender: oneshot::Sender<Result<Arc<BufferState>, Error>>,
}

impl State {
    pub(super) fn grant(
        &mut self,
        shared: &Arc<ManagerShared>,
        ticket: u64,
        id: BufferId,
        tier: Tier,
    ) -> Option<LedgerEvent> {
        let bytes = self.ledger.view(id).map_or(0, |view| view.bytes);
        let Some(waiter) = self.allocations.remove(&ticket) else { return Some(LedgerEvent::Free { id }) };
        let mut buffer = BufferState::new(id, bytes, waiter.chunk, waiter.name);
        buffer.metadata_bytes = waiter.metadata_bytes;
        let stamp = waiter.origin.map(|origin| shared.tracking.allocated(origin, id, bytes, tier));
        buffer.stamp = stamp.unwrap_or_default();
        let buffer = Arc::new(buffer);
        if let Some(named) = &buffer.named {
            self.names.insert(Arc::clone(&named.name), Some(id));
        }
        self.buffers.insert(id, Arc::clone(&buffer));
        match shared.medium(tier) {
            Medium::File => {
                buffer.copies().put(tier, TierCopy::Pieces(smallvec![None; buffer.chunks(0, bytes).len()]));
                // If no caller waits any more, the buffer is freed.
                waiter.sender.send(Ok(buffer)).err().map(|_| LedgerEvent::Free { id })
            }
            Medium::Memory | Medium::Device => match shared.blank_copy(tier, bytes) {
                Some(copy) => {
                    buffer.copies().put(tier, copy);
                    waiter.sender.send(Ok(buffer)).err().map(|_| LedgerEvent::Free { id })
                }
                None => {
                    buffer.phase.advance(PhaseEvent::Claim);
                    shared.allocate_memory(buffer, tier, waiter.sender);
                    None
                }
            },
        }
    }

    /// Reserves a name and an object number in the store.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadName`].
    pub(super) fn claim_name(&mut self, shared: &ManagerShared, name: String) -> Result<(Arc<str>, u64), Error> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::BadName { bytes: name.len(), most: MAX_NAME_BYTES });
        }
        if self.names.contains_key(&*name) || self.dormant.has(shared, &name) {
            return Err(Error::NameTaken(name));
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), None);
        self.next_object += 1;
        Ok((name, self.next_object - 1))
    }

    pub(super) fn forget_name(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.names.remove(name);
        }
    }

    /// Registers an allocation request; returns its ticket.
    pub(super) fn ticket(&mut self, waiter: AllocationWaiter) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.metadata += waiter.metadata_bytes;
        self.allocations.insert(ticket, waiter);
        ticket
    }

    /// Removes an allocation request that gets no buffer; its name can be used again.
    pub(super) fn dismiss(&mut self, ticket: u64) -> Option<AllocationWaiter> {
        let waiter = self.allocations.remove(&ticket)?;
        self.metadata -= waiter.metadata_bytes;
        self.forget_name(waiter.name.as_ref().map(|(name, _)| &**name));
        Some(waiter)
    }
}

impl ManagerShared {
    /// Allocates a buffer.
    pub(super) async fn allocate(
        self: &Arc<Self>,
        bytes: u64,
        options: BufferOptions,
        origin: BufferOrigin,
    ) -> Result<Arc<BufferState>, Error> {
        let begun = Instant::now();
        let allocated = self.allocate_where_room_is(bytes, options, origin).await;
        self.stats.waited(Waited::Allocation, begun);
        allocated
    }

    /// If a tier has less memory than the ledger assumed, the tier is suspended or shrinks, and the request is repeated,
    /// which tries the next tier. Other threads may take the room in memory that each attempt finds in pieces: the last
    /// attempt asks for files, which need no room in one place.
    async fn allocate_where_room_is(
        self: &Arc<Self>,
        bytes: u64,
        mut options: BufferOptions,
        origin: BufferOrigin,
    ) -> Result<Arc<BufferState>, Error> {
        let (mut short, mut others) = (None, self.tiers().filter(|tier| self.medium(*tier) != Medium::File));
        let mut files = self.tiers().find(|tier| self.medium(*tier) == Medium::File);
        loop {
            let answered = self.allocate_once(bytes, options.clone(), origin).await;
            match answered {
                Err(Error::Device(_) | Error::Memory(_)) if others.next().is_some() => {}
                Err(error @ Error::NoRoom { .. }) if others.next().is_some() => short = Some(error),
                Err(Error::NoRoom { .. }) if files.is_some() => options.hint.tier = files.take(),
                // If an earlier attempt failed because a tier's free memory is fragmented, report that error: the
                // buffer fits the tier's limit.
                Err(
                    refused @ Error::Refused(Refusal {
                        reason: RefusalReason::TooLarge | RefusalReason::NoRoom, ..
                    }),
                ) => {
                    return Err(short.unwrap_or(refused));
                }
                answered => return answered,
            }
        }
    }

    async fn allocate_once(
        self: &Arc<Self>,
        bytes: u64,
        options: BufferOptions,
        origin: BufferOrigin,
    ) -> Result<Arc<BufferState>, Error> {
        let BufferOptions { name, tenant, hint, wait } = options;
        let largest = self.chunk as u64 * u64::from(MAX_PARTS);
        if bytes > largest {
            let held = self.state().ledger.refusal(bytes, tenant).map_or(largest, |refusal| refusal.largest);
            let largest = largest.min(held);
            return Err(Error::Refused(Refusal { reason: RefusalReason::TooLarge, requested: bytes, largest }));
        }
        let (sender, outcome) = oneshot::channel();
        let ticket = {
            let mut state = self.state();
            let metadata_bytes = self.metadata_bytes(bytes, self.chunk, name.as_deref());
            if let Err(error) = state.check_metadata_room(self, metadata_bytes) {
                // If no tier can ever hold the buffer, the ledger's refusal says more than the lack of room for
                // metadata.
                return Err(state.ledger.refusal(bytes, tenant).map_or(error, Error::Refused));
            }
            let name = match name {
                Some(name) => Some(state.claim_name(self, name)?),
                None => None,
            };
            let waiter = AllocationWaiter { name, chunk: self.chunk, metadata_bytes, origin: Some(origin), sender };
            let ticket = state.ticket(waiter);
            if let Err(rejected) = state.handle(self, LedgerEvent::Allocate { ticket, bytes, tenant, wait, hint }) {
                state.dismiss(ticket);
                return Err(rejected.into());
            }
            self.unlock(state);
            ticket
        };
        let mut request = AllocationRequest { shared: self, ticket, outcome, answered: false };
        let outcome = (&mut request.outcome).await;
        request.answered = true;
        outcome.map_err(|_| Error::Closed)?
    }

    /// Allocates memory for a new buffer at once, if the tier is in memory that has room for it in one place.
    pub(super) fn blank_copy(&self, tier: Tier, bytes: u64) -> Option<TierCopy> {
        let Some(TierStorage::Memory(frames)) = self.storage(tier) else { return None };
        let frame = frames.take_packed(usize::try_from(bytes).ok()?).ok()?;
        Some(TierCopy::Blank(BlankBlock::new(Arc::new(HostBlock::Frame(frame)), &self.blank_bytes)))
    }

    /// Starts a task that allocates memory for a new buffer, then answers the allocation request through
    /// `sender`.
    pub(super) fn allocate_memory(
        self: &Arc<Self>,
        buffer: Arc<BufferState>,
        tier: Tier,
        sender: oneshot::Sender<Result<Arc<BufferState>, Error>>,
    ) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let made = catch_copy_panic(shared.fresh_copy(&buffer, tier)).await;
            let failed = made.is_err();
            // After `NoRoom` the tier's capacity is reduced already, so the tier is not suspended.
            let refused = made.as_ref().err().filter(|error| !matches!(error, Error::NoRoom { .. }));
            let refused = refused.map(|error| shared.suspension(tier, error.clone()));
            let mut state = shared.state();
            let outcome = made.map(|brought| {
                state.pending_frees.add(buffer.copies().put(tier, brought));
                Arc::clone(&buffer)
            });
            // Frees the buffer if no caller waits any more or there is no memory, before anything else can be decided
            // about it. The ledger may refuse that: a caller that has opened the buffer by name may hold a lease.
            if sender.send(outcome).is_err() || failed {
                buffer.phase.advance(PhaseEvent::Abandon);
            }
            let _ = state.unclaim(&shared, &buffer, None);
            if let Some(refused) = refused {
                state.refused_memory(tier);
                state.suspensions.insert(tier, refused);
                let _ = state.handle(&shared, LedgerEvent::TierRefused { tier });
            }
            shared.unlock(state);
        }));
    }

    /// Allocates a copy for a buffer that was never written: zeroed on a device, blank in memory.
    async fn fresh_copy(self: &Arc<Self>, buffer: &BufferState, tier: Tier) -> Result<TierCopy, Error> {
        if let Some(TierStorage::Device(gpu)) = self.storage(tier) {
            let copy = self.take_from_device(|| gpu.allocate(buffer.bytes, &self.tasks)).await?;
            copy.zero().await?;
            return Ok(TierCopy::Device(copy));
        }
        Ok(TierCopy::Blank(BlankBlock::new(self.block(tier, buffer.bytes).await?, &self.blank_bytes)))
    }

    /// Allocates memory in a tier where the ledger has reserved the room. If the free memory is fragmented, evicts
    /// buffers until the allocation succeeds.
    pub(super) async fn block(self: &Arc<Self>, tier: Tier, bytes: u64) -> Result<Arc<HostBlock>, Error> {
        let frames = match self.storage(tier) {
            Some(TierStorage::Memory(frames)) => frames,
            Some(TierStorage::Joint(gpu)) => {
                let block = self.take_from_device(|| gpu.pinned(bytes)).await?;
                return Ok(Arc::new(HostBlock::Pinned(Box::new(block))));
            }
            _ => return Err(Error::NoTier("in memory")),
        };
        let len = usize::try_from(bytes).map_err(|_| Error::Memory(ErrorKind::OutOfMemory))?;
        if let Ok(frame) = frames.take_packed(len) {
            return Ok(Arc::new(HostBlock::Frame(frame)));
        }
        loop {
            // Listens before it tries, so that no notification is missed.
            let moved = self.moved.listen();
            if let Ok(frame) = frames.take_packed(len) {
                self.restore_capacity(tier);
                return Ok(Arc::new(HostBlock::Frame(frame)));
            }
            if !self.evict_for_space(tier, bytes) {
                // Reduces the tier's capacity to the bytes that can be used.
                self.reclaim_unused_memory();
                return Err(Error::NoRoom { tier });
            }
            moved.await;
        }
    }
}

/// An allocation request. Dropping it before it is answered cancels it.
struct AllocationRequest<'a> {
    shared: &'a Arc<ManagerShared>,
    ticket: u64,
    outcome: oneshot::Receiver<Result<Arc<BufferState>, Error>>,
    answered: bool,
}

impl Drop for AllocationRequest<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.shared.state();
        // The lock of `state` is held, as it is whenever a request is answered: no answer can come between these two
        // calls.
        self.outcome.close();
        // The ledger rejects the event while the buffer is being allocated: then the allocating task frees it, as there
        // is no receiver. It also rejects the event if the buffer is freed already.
        let _ = match self.outcome.try_recv() {
            Ok(Some(Ok(buffer))) => state.free(self.shared, &buffer).map(drop),
            _ => state.handle(self.shared, LedgerEvent::Cancel { ticket: self.ticket }),
        };
        self.shared.unlock(state);
    }
}
