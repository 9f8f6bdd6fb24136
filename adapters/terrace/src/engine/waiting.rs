//! Waiting for memory: first come, first served, blocking or `async`.
//!
//! Promises upward: the longest waiter is served first, whatever others ask (a small request never passes a large one,
//! so no request starves); a waiter may be dropped at any moment: its place is given up, and a block granted to it in
//! that moment goes on to the next; futures need no particular runtime.
//! Asks from below: any [`Allocator`]; a request refused while nothing is live can never be served, and says so.
//!
//! A future takes its place in the queue when it is polled first. Wakers are cloned, replaced, dropped and woken with
//! the lock released, so they may use the pool in any of these; one that panics keeps no other from being woken, and
//! its panic goes on to the thread that polled, freed or dropped.

mod queue;
mod wakers;

use super::shared::{Home, OwnedBlock};
use queue::{Outcome, Queue};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use terrace_core::{AllocError, Allocator, Block, Cause, Owner, Request, Stats};
use wakers::Wakers;

/// A handle to one allocator with a queue; clones are handles to the same.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use terrace::engine::pool::{Buckets, SizeClasses};
/// use terrace::engine::sync::AtomicUsize;
/// use terrace::engine::waiting::WaitingPool;
/// use terrace::engine::Request;
/// static WORDS: [AtomicUsize; Buckets::words(&[1])] = [const { AtomicUsize::new(0) }; Buckets::words(&[1])];
/// let pool = WaitingPool::new(Buckets::new(SizeClasses::new(64, 1)?, [1], 0, &WORDS)?);
/// let only = pool.try_allocate(Request::new(64))?;
/// let clone = pool.clone();
/// let waiter = std::thread::spawn(move || clone.allocate_timeout(Request::new(64), Duration::from_secs(60)).is_ok());
/// drop(only);
/// assert!(waiter.join().expect("no panic"), "it got the block when we dropped it");
/// # Ok::<(), terrace::AllocError>(())
/// ```
pub struct WaitingPool<A> {
    queue: Arc<Mutex<Queue<A>>>,
}

impl<A> Clone for WaitingPool<A> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue) }
    }
}

impl<A> fmt::Debug for WaitingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingPool").finish_non_exhaustive()
    }
}

impl<A: Allocator> WaitingPool<A> {
    /// Lets an allocator be waited for.
    pub fn new(allocator: A) -> Self {
        Self { queue: Arc::new(Mutex::new(Queue::new(allocator))) }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<A>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls something under the lock; afterwards, wakes and drops the wakers that it took out of the queue. When one
    /// of them panics the result is dropped: a block in it must be an owned one.
    fn with<T>(&self, call: impl FnOnce(&mut Queue<A>, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let result = call(&mut self.lock(), &mut wakers);
        drop(wakers);
        result
    }

    fn own(&self, outcome: Outcome, owner: Owner) -> Result<OwnedBlock<Self>, AllocError> {
        outcome.map(|block| OwnedBlock::new(self.clone(), block, owner))
    }

    /// Hands out a block without waiting.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]; [`Cause::OutOfMemory`] also when other requests wait: this one must not pass them.
    pub fn try_allocate(&self, request: Request) -> Result<OwnedBlock<Self>, AllocError> {
        let mut queue = self.lock();
        if queue.waiting() != 0 {
            return Err(AllocError::new(Cause::OutOfMemory, request.bytes));
        }
        self.own(queue.allocator.allocate(request), request.owner)
    }

    /// A block when it is this request's turn.
    ///
    /// # Errors
    /// The future's: what can never be had ([`Cause::TooLarge`], [`Cause::BadRequest`], or any refusal while nothing is
    /// live).
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
                Some(left) => std::thread::park_timeout(left),
                // Dropping the allocation gives its place up, and a block granted since the poll to the next.
                None => return Err(AllocError::new(Cause::OutOfMemory, request.bytes)),
            }
        }
    }

    /// Requests waiting now.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
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
        self.with(|queue, wakers| queue.free(block, owner, wakers));
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
    fn look(&mut self, waker: &Waker) -> Option<Result<OwnedBlock<WaitingPool<A>>, AllocError>> {
        let (pool, request, ticket) = (&self.pool, self.request, self.ticket);
        let (outcome, noted) = {
            let mut queue = pool.lock();
            (queue.outcome(ticket, request), queue.is_noted(ticket, waker))
        };
        if outcome.is_some() || noted {
            return outcome.map(|outcome| pool.own(outcome, request.owner));
        }
        // The clone is made without the lock. Meanwhile, or by what the clone itself does, the request may have been
        // served.
        let (mut fresh, mut place) = (Some(waker.clone()), None);
        let served = pool.with(|queue, wakers| {
            let outcome = queue.outcome(ticket, request);
            if outcome.is_none() {
                place = fresh.take().map(|waker| queue.wait(ticket, request, waker, wakers));
            }
            outcome.map(|outcome| pool.own(outcome, request.owner))
        });
        self.ticket = place;
        drop(fresh);
        served
    }
}

impl<A: Allocator> Future for Allocation<A> {
    type Output = Result<OwnedBlock<WaitingPool<A>>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.look(context.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                // Its place is gone with the outcome.
                self.ticket = None;
                Poll::Ready(outcome)
            }
        }
    }
}

impl<A: Allocator> Drop for Allocation<A> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.pool.with(|queue, wakers| queue.leave(ticket, self.request.owner, wakers));
        }
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
