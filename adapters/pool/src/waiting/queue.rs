//! The state under a waiting pool's lock: the allocator, the queue in front of it, and outcomes not picked up yet.
//!
//! Promises upward: the longest waiter is served first; no function of a waker is called here, as the caller holds the
//! lock: wakers taken out of the queue go into [`Wakers`].
//! Asks from below: any [`Allocator`].
//!
//! Invariants:
//! - the first waiter in `queue` could not be served when last tried, and no block was freed since
//! - a ticket is in `queue`, or in `granted`, or in neither (its outcome was taken, or its future dropped)

use super::wakers::Wakers;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use terrace_core::{AllocError, Allocator, Block, Cause, Owner, Request};

/// The outcome of a request: a block or an error.
pub type Outcome = Result<Block, AllocError>;

/// The queue of requests, with its allocator.
pub struct Queue<A> {
    pub allocator: A,
    queue: VecDeque<Waiter>,
    /// Outcomes not yet picked up, by ticket.
    granted: HashMap<u64, Outcome>,
    /// The ticket of the next waiter.
    next: u64,
    /// Length of `queue`, for readers without the lock.
    length: Arc<AtomicUsize>,
}

struct Waiter {
    ticket: u64,
    request: Request,
    waker: Waker,
}

/// Whether a refused request may succeed once other blocks are freed.
fn may_pass(cause: Cause) -> bool {
    matches!(cause, Cause::OutOfMemory | Cause::OutOfSlots | Cause::OverLimit)
}

impl<A> Queue<A> {
    pub fn new(allocator: A, length: Arc<AtomicUsize>) -> Self {
        Self { allocator, queue: VecDeque::new(), granted: HashMap::new(), next: 0, length }
    }

    /// Publishes the length of the queue after a change.
    fn publish(&self) {
        self.length.store(self.queue.len(), Ordering::Relaxed);
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Number of outcomes not yet picked up.
    #[cfg(test)]
    pub fn granted(&self) -> usize {
        self.granted.len()
    }

    /// Whether `ticket` waits with a waker that wakes the same task as `waker`.
    pub fn is_noted(&self, ticket: Option<u64>, waker: &Waker) -> bool {
        self.queue.iter().any(|waiter| Some(waiter.ticket) == ticket && waiter.waker.will_wake(waker))
    }

    /// Registers the waker of a ticket in the queue, or of a new ticket. Returns the ticket.
    pub fn wait(&mut self, ticket: Option<u64>, request: Request, waker: Waker, wakers: &mut Wakers) -> u64 {
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| Some(waiter.ticket) == ticket) {
            wakers.discard(std::mem::replace(&mut waiter.waker, waker));
            return waiter.ticket;
        }
        let ticket = self.next;
        self.next += 1;
        self.queue.push_back(Waiter { ticket, request, waker });
        self.publish();
        ticket
    }
}

impl<A: Allocator> Queue<A> {
    /// Tries to allocate now. `None` if the request may succeed once a live block was freed.
    fn attempt(&mut self, request: Request) -> Option<Outcome> {
        match self.allocator.allocate(request) {
            Err(error) if may_pass(error.cause) && self.allocator.stats().live_blocks != 0 => None,
            outcome => Some(outcome),
        }
    }

    /// Takes the outcome of a request; `None` if the request has to wait.
    ///
    /// Without a ticket, tries to allocate if no request waits, or if this one is invalid.
    pub fn outcome(&mut self, ticket: Option<u64>, request: Request) -> Option<Outcome> {
        match ticket {
            Some(ticket) => self.granted.remove(&ticket),
            None if self.queue.is_empty() || request.validate().is_err() => self.attempt(request),
            None => None,
        }
    }

    /// Frees a block and serves the queue.
    pub fn free(&mut self, block: Block, owner: Owner, wakers: &mut Wakers) {
        // Fails only for a block that was freed by the allocator itself; the queue is served in either case.
        let _ = self.allocator.free(block, owner);
        self.serve(wakers);
    }

    /// Removes a ticket, and frees the block that was granted to it, if any.
    ///
    /// Then serves the queue: the removed request may have been a large one at the front, for which the others waited.
    pub fn leave(&mut self, ticket: u64, owner: Owner, wakers: &mut Wakers) {
        let at = self.queue.iter().position(|waiter| waiter.ticket == ticket);
        if let Some(waiter) = at.and_then(|at| self.queue.remove(at)) {
            wakers.discard(waiter.waker);
            self.publish();
        }
        match self.granted.remove(&ticket) {
            Some(Ok(block)) => self.free(block, owner, wakers),
            _ => self.serve(wakers),
        }
    }

    /// Serves the queue from its front until a request has to wait on.
    pub fn serve(&mut self, wakers: &mut Wakers) {
        while let Some(request) = self.queue.front().map(|waiter| waiter.request) {
            let Some(outcome) = self.attempt(request) else { break };
            if let Some(waiter) = self.queue.pop_front() {
                self.publish();
                self.granted.insert(waiter.ticket, outcome);
                wakers.wake(waiter.waker);
            }
        }
    }
}
