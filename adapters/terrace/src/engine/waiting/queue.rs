//! What the lock of a waiting pool guards: the allocator, the queue in front of it, and what was granted.
//!
//! Promises upward: the longest waiter is served first; no function of a waker is called here, as the caller holds the
//! lock: wakers that leave the queue go into [`Wakers`].
//! Asks from below: any [`Allocator`].
//!
//! Invariants:
//! - a waiter in `queue` could not be served when it was last looked at, and nothing was freed since
//! - a ticket is in `queue`, or in `granted`, or nowhere (done or dropped)

use super::wakers::Wakers;
use std::collections::{HashMap, VecDeque};
use std::task::Waker;
use terrace_core::{AllocError, Allocator, Block, Cause, Owner, Request};

/// What came of a request.
pub type Outcome = Result<Block, AllocError>;

/// See the file's comment.
pub struct Queue<A> {
    pub allocator: A,
    queue: VecDeque<Waiter>,
    /// Outcomes not yet picked up, by ticket.
    granted: HashMap<u64, Outcome>,
    /// The next waiter's ticket.
    next: u64,
}

struct Waiter {
    ticket: u64,
    request: Request,
    waker: Waker,
}

/// Whether a refusal may pass when others free.
fn may_pass(cause: Cause) -> bool {
    matches!(cause, Cause::OutOfMemory | Cause::OutOfSlots | Cause::OverLimit)
}

impl<A> Queue<A> {
    pub fn new(allocator: A) -> Self {
        Self { allocator, queue: VecDeque::new(), granted: HashMap::new(), next: 0 }
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Outcomes not yet picked up.
    #[cfg(test)]
    pub fn granted(&self) -> usize {
        self.granted.len()
    }

    /// Whether a ticket waits with a waker of the same task.
    pub fn is_noted(&self, ticket: Option<u64>, waker: &Waker) -> bool {
        self.queue.iter().any(|waiter| Some(waiter.ticket) == ticket && waiter.waker.will_wake(waker))
    }

    /// Notes the waker of a ticket in the queue, or of a new one. Returns the ticket.
    pub fn wait(&mut self, ticket: Option<u64>, request: Request, waker: Waker, wakers: &mut Wakers) -> u64 {
        if let Some(waiter) = self.queue.iter_mut().find(|waiter| Some(waiter.ticket) == ticket) {
            wakers.discard(std::mem::replace(&mut waiter.waker, waker));
            return waiter.ticket;
        }
        let ticket = self.next;
        self.next += 1;
        self.queue.push_back(Waiter { ticket, request, waker });
        ticket
    }
}

impl<A: Allocator> Queue<A> {
    /// Asks now. `None`: it may be had later, when something that is live has been freed.
    fn attempt(&mut self, request: Request) -> Option<Outcome> {
        match self.allocator.allocate(request) {
            Err(error) if may_pass(error.cause) && self.allocator.stats().live_blocks != 0 => None,
            outcome => Some(outcome),
        }
    }

    /// What came of a request that has a ticket, or of one that has none yet. `None`: it has to wait.
    pub fn outcome(&mut self, ticket: Option<u64>, request: Request) -> Option<Outcome> {
        match ticket {
            Some(ticket) => self.granted.remove(&ticket),
            None if self.queue.is_empty() || request.validate().is_err() => self.attempt(request),
            None => None,
        }
    }

    /// Takes a block back and serves the queue.
    pub fn free(&mut self, block: Block, owner: Owner, wakers: &mut Wakers) {
        // Refused only for a name freed by hand; the queue is served either way.
        let _ = self.allocator.free(block, owner);
        self.serve(wakers);
    }

    /// Gives a ticket up, and the block that was granted to it.
    ///
    /// Serves the queue: it may have been the large request at the front that held the others up.
    pub fn leave(&mut self, ticket: u64, owner: Owner, wakers: &mut Wakers) {
        let at = self.queue.iter().position(|waiter| waiter.ticket == ticket);
        if let Some(waiter) = at.and_then(|at| self.queue.remove(at)) {
            wakers.discard(waiter.waker);
        }
        match self.granted.remove(&ticket) {
            Some(Ok(block)) => self.free(block, owner, wakers),
            _ => self.serve(wakers),
        }
    }

    /// Serves the queue from its front until one has to wait on.
    fn serve(&mut self, wakers: &mut Wakers) {
        while let Some(request) = self.queue.front().map(|waiter| waiter.request) {
            let Some(outcome) = self.attempt(request) else { break };
            if let Some(waiter) = self.queue.pop_front() {
                self.granted.insert(waiter.ticket, outcome);
                wakers.wake(waiter.waker);
            }
        }
    }
}
