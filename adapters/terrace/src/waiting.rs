//! Waiting for memory: first come, first served, blocking or `async`.
//!
//! Promises upward: who waited longest is served first, whatever others ask (a small request never passes a large one, so
//! no request starves); a waiter may be dropped at any moment: its place is given up, and a block granted to it in that
//! moment goes on to the next; futures need no particular runtime.
//! Asks from below: any [`Allocator`]; a request refused while nothing is live can never be served, and says so.
//!
//! Invariants, under the one lock:
//! - whoever is in `queue` could not be served when it was last looked at, and nothing was freed since
//! - a ticket is in `queue`, or in `granted`, or nowhere (done or dropped)
//!
//! A future takes its place in the queue when it is polled first. Wakers are called with the lock released.

use crate::shared::{Home, OwnedBlock};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use terrace_core::{AllocError, Allocator, Block, Cause, Owner, Request, Stats};

/// A handle to one allocator with a queue; clones are handles to the same.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use terrace::pool::{Buckets, Steps};
/// use terrace::sync::AtomicUsize;
/// use terrace::waiting::WaitingPool;
/// use terrace::Request;
/// static WORDS: [AtomicUsize; Buckets::words(&[1])] = [const { AtomicUsize::new(0) }; Buckets::words(&[1])];
/// let pool = WaitingPool::new(Buckets::new(Steps::new(64, 1)?, [1], 0, &WORDS)?);
/// let only = pool.try_allocate(Request::new(64))?;
/// let clone = pool.clone();
/// let waiter = std::thread::spawn(move || clone.allocate_timeout(Request::new(64), Duration::from_secs(60)).is_ok());
/// drop(only);
/// assert!(waiter.join().expect("no panic"), "it got the block when we dropped it");
/// # Ok::<(), terrace::AllocError>(())
/// ```
pub struct WaitingPool<A> {
    state: Arc<Mutex<State<A>>>,
}

struct State<A> {
    allocator: A,
    queue: VecDeque<Waiter>,
    /// Outcomes not yet picked up, by ticket.
    granted: HashMap<u64, Result<Block, AllocError>>,
    /// The next waiter's ticket.
    next: u64,
}

struct Waiter {
    ticket: u64,
    request: Request,
    waker: Waker,
}

impl<A> Clone for WaitingPool<A> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<A> fmt::Debug for WaitingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingPool").finish_non_exhaustive()
    }
}

impl<A: Allocator> State<A> {
    /// Asks now. `None`: it may be had later, when something that is live has been freed.
    fn attempt(&mut self, request: Request) -> Option<Result<Block, AllocError>> {
        match self.allocator.allocate(request) {
            Err(error) if may_pass(error.cause) && self.allocator.stats().live_blocks != 0 => None,
            outcome => Some(outcome),
        }
    }

    /// Serves the queue from its front until one has to wait on. Returns whom to wake.
    fn serve(&mut self) -> Vec<Waker> {
        let mut wake = Vec::new();
        while let Some(request) = self.queue.front().map(|waiter| waiter.request) {
            let Some(outcome) = self.attempt(request) else { break };
            if let Some(waiter) = self.queue.pop_front() {
                self.granted.insert(waiter.ticket, outcome);
                wake.push(waiter.waker);
            }
        }
        wake
    }
}

/// Whether a refusal may pass when others free.
fn may_pass(cause: Cause) -> bool {
    matches!(cause, Cause::OutOfMemory | Cause::OutOfSlots | Cause::OverLimit)
}

impl<A: Allocator> WaitingPool<A> {
    /// Lets an allocator be waited for.
    pub fn new(allocator: A) -> Self {
        let state = State { allocator, queue: VecDeque::new(), granted: HashMap::new(), next: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out a block without waiting.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]; [`Cause::OutOfMemory`] also when others wait, whom this must not pass.
    pub fn try_allocate(&self, request: Request) -> Result<OwnedBlock<Self>, AllocError> {
        let mut state = self.lock();
        if !state.queue.is_empty() {
            return Err(AllocError::new(Cause::OutOfMemory, request.bytes));
        }
        let block = state.allocator.allocate(request)?;
        Ok(OwnedBlock::new(self.clone(), block, request.owner))
    }

    /// A block when it is this request's turn.
    ///
    /// # Errors
    /// The future's: what can never be had ([`Cause::TooLarge`], [`Cause::BadRequest`], or any refusal while nothing is live).
    pub fn allocate(&self, request: Request) -> Allocation<A> {
        Allocation { pool: self.clone(), request, ticket: None }
    }

    /// Waits for a block on this thread, at most so long.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`Cause::OutOfMemory`] when the time is over.
    pub fn allocate_timeout(&self, request: Request, limit: Duration) -> Result<OwnedBlock<Self>, AllocError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut allocation = self.allocate(request);
        let start = Instant::now();
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut allocation).poll(&mut context) {
                return outcome;
            }
            match limit.checked_sub(start.elapsed()) {
                Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                // Dropping the allocation gives its place up, and a block granted since the poll to the next.
                _ => return Err(AllocError::new(Cause::OutOfMemory, request.bytes)),
            }
        }
    }

    /// Requests waiting now.
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Counters, as of now.
    pub fn stats(&self) -> Stats {
        self.lock().allocator.stats()
    }
}

/// Wakes a thread that waits by parking.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<A: Allocator> Home for WaitingPool<A> {
    fn give_back(&self, block: Block, owner: Owner) {
        let wake = {
            let mut state = self.lock();
            // Refused only for a name freed by hand; the queue is served either way.
            let _ = state.allocator.free(block, owner);
            state.serve()
        };
        wake.into_iter().for_each(Waker::wake);
    }
}

/// A block to come. Dropping it gives the place in the queue up.
#[must_use = "futures do nothing unless polled"]
pub struct Allocation<A: Allocator> {
    pool: WaitingPool<A>,
    request: Request,
    /// Its place, from the first poll that could not be served until it is done.
    ticket: Option<u64>,
}

impl<A: Allocator> fmt::Debug for Allocation<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("request", &self.request)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl<A: Allocator> Allocation<A> {
    /// The outcome if it is there; otherwise the waker is noted.
    fn look(&mut self, waker: &Waker) -> Option<Result<Block, AllocError>> {
        let mut state = self.pool.lock();
        if let Some(ticket) = self.ticket {
            if let Some(outcome) = state.granted.remove(&ticket) {
                self.ticket = None;
                return Some(outcome);
            }
            let waiter = state.queue.iter_mut().find(|waiter| waiter.ticket == ticket);
            waiter.into_iter().for_each(|waiter| waiter.waker.clone_from(waker));
            return None;
        }
        if state.queue.is_empty() || self.request.validate().is_err() {
            let outcome = state.attempt(self.request);
            if outcome.is_some() {
                return outcome;
            }
        }
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(Waiter { ticket, request: self.request, waker: waker.clone() });
        self.ticket = Some(ticket);
        None
    }
}

impl<A: Allocator> Future for Allocation<A> {
    type Output = Result<OwnedBlock<WaitingPool<A>>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.look(context.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                let own = |block| OwnedBlock::new(self.pool.clone(), block, self.request.owner);
                Poll::Ready(outcome.map(own))
            }
        }
    }
}

impl<A: Allocator> Drop for Allocation<A> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let wake = {
            let mut state = self.pool.lock();
            state.queue.retain(|waiter| waiter.ticket != ticket);
            if let Some(Ok(block)) = state.granted.remove(&ticket) {
                let _ = state.allocator.free(block, self.request.owner);
            }
            // It may have been the large request at the front that held the others up.
            state.serve()
        };
        wake.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
