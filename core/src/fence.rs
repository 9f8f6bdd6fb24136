//! Fences: they tell when memory that one owner freed may be reused by other owners.
//!
//! Promises upward: a block is freed with a ticket of its owner's fence; the owner may reuse it at once, other owners when
//! the ticket is [`FenceState::Ready`].
//! Asks from below: the tickets of one owner that are not ready never decrease, and become ready in the order in which
//! they were issued.

use crate::allocator::Owner;

/// The state of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// All work that the ticket covers is done: every owner may reuse the memory.
    Ready,
    /// Some of the work is still in flight.
    Pending,
    /// The work will never be done (a lost device): memory behind this ticket must not be reused.
    Failed,
}

/// Tracks the work in flight of each owner: by CUDA events, durable writes, a simulated delay.
///
/// The core only polls; adapters wake the threads that wait.
pub trait Fence {
    /// Issues a ticket that covers all work of `owner` so far.
    ///
    /// Called for each free that is not cached, so it should be cheap: an implementation may record its event only when
    /// the ticket is first polled, so that the event may cover later work too.
    fn record(&mut self, owner: Owner) -> u64;

    /// Whether a ticket can ever be pending; if so, an arena needs records for pending frees.
    fn may_pend(&self) -> bool {
        true
    }

    /// Queries the state of `ticket`.
    fn poll(&mut self, owner: Owner, ticket: u64) -> FenceState;

    /// The state of `ticket` as far as known without a driver call. Called for each free; the default polls.
    fn peek(&mut self, owner: Owner, ticket: u64) -> FenceState {
        self.poll(owner, ticket)
    }

    /// Waits until `ticket` is no longer pending.
    ///
    /// The default polls once and does not wait: for fences whose clock the caller advances (a replay, for example).
    fn wait(&mut self, owner: Owner, ticket: u64) -> FenceState {
        self.poll(owner, ticket)
    }
}

/// A fence without work in flight: every owner may reuse freed memory at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoFence;

impl Fence for NoFence {
    fn record(&mut self, _: Owner) -> u64 {
        0
    }

    fn poll(&mut self, _: Owner, _: u64) -> FenceState {
        FenceState::Ready
    }

    fn may_pend(&self) -> bool {
        false
    }
}
