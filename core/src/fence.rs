//! When memory freed by one owner may be used by all.
//!
//! Promises upward: a block goes back *with* a fence; its owner may take it again at once, others only once
//! the fence is [`FenceState::Ready`].
//! Asks from below: tickets of one owner, as long as they are not ready, never decrease, and become ready in the order
//! they were given.

use crate::allocator::Owner;

/// How far an owner has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// Everything the ticket covers is done: the memory is free for all.
    Ready,
    /// Not yet.
    Pending,
    /// It never will be (a lost device): what waits behind it must not be used again.
    Failed,
}

/// Work in flight of every owner: a CUDA event, a durable write, a simulated delay.
///
/// Wakers live in adapters; core only polls.
pub trait Fence {
    /// A ticket that covers everything `owner` did so far. Called for each free that is not cached: a fence that costs
    /// something is made when the ticket is first polled, and may cover more.
    fn record(&mut self, owner: Owner) -> u64;

    /// Whether a ticket can ever be pending: if so, an arena needs room for frees that wait.
    fn may_pend(&self) -> bool {
        true
    }

    /// Whether all that `ticket` covers is done.
    fn poll(&mut self, owner: Owner, ticket: u64) -> FenceState;

    /// What is known of `ticket` without asking a driver. Called for each free; the default polls.
    fn peek(&mut self, owner: Owner, ticket: u64) -> FenceState {
        self.poll(owner, ticket)
    }

    /// Waits until `ticket` is no longer pending. The default polls once and does not wait, for fences that
    /// only time can open (a replay's event clock).
    fn wait(&mut self, owner: Owner, ticket: u64) -> FenceState {
        self.poll(owner, ticket)
    }
}

/// No work is ever in flight: what is freed is free for all at once.
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
