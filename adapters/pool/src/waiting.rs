//! Waiting for memory: first come, first served, blocking or `async`.
//!
//! Promises upward: the longest waiter is served first, whatever others request (a small request never passes a large
//! one, so no request starves); a future may be dropped at any time: it leaves the queue, and a block that was granted
//! to it goes to the next waiter; futures need no particular runtime.
//! Asks from below: any [`Allocator`]. A request refused while no block is live can never be served: it fails at once.
//!
//! A future takes its place in the queue at its first poll. Wakers are cloned, replaced, dropped and woken without the
//! lock, so they may use the pool; if one panics, the others are still woken, and the panic then continues in the
//! thread that polled, freed or dropped.

mod queue;
mod wakers;

use crate::shared::{Home, OwnedBlock};
use queue::{Outcome, Queue};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use terrace_core::{AllocError, Allocator, Block, Cause, Owner, Request, Stats};
use wakers::Wakers;

/// A handle to one allocator with a queue; clones are handles to the same queue.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use terrace_core::Request;
/// use terrace_core::pool::{Buckets, SizeClasses};
/// use terrace_core::sync::AtomicUsize;
/// use terrace_pool::waiting::WaitingPool;
/// static WORDS: [AtomicUsize; Buckets::words(&[1])] = [const { AtomicUsize::new(0) }; Buckets::words(&[1])];
/// let pool = WaitingPool::new(Buckets::new(SizeClasses::new(64, 1)?, [1], 0, &WORDS)?);
/// let only = pool.try_allocate(Request::new(64))?;
/// let clone = pool.clone();
/// let waiter = std::thread::spawn(move || clone.allocate_timeout(Request::new(64), Duration::from_secs(60)).is_ok());
/// drop(only);
/// assert!(waiter.join().expect("no panic"), "it got the block when we dropped it");
/// # Ok::<(), terrace_core::AllocError>(())
/// ```
pub struct WaitingPool<A> {
    queue: Arc<Mutex<Queue<A>>>,
    /// Number of requests that wait, written under the lock.
    length: Arc<AtomicUsize>,
}

impl<A> Clone for WaitingPool<A> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), length: Arc::clone(&self.length) }
    }
}

impl<A> fmt::Debug for WaitingPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingPool").finish_non_exhaustive()
    }
}

impl<A: Allocator> WaitingPool<A> {
    /// Puts a queue in front of an allocator.
    pub fn new(allocator: A) -> Self {
        let length = Arc::new(AtomicUsize::new(0));
        Self { queue: Arc::new(Mutex::new(Queue::new(allocator, Arc::clone(&length)))), length }
    }

    /// Whether requests wait. One load; may be out of date when it is read.
    #[inline(always)]
    pub(crate) fn has_waiters(&self) -> bool {
        self.length.load(Ordering::Relaxed) != 0
    }

    /// Serves the queue after memory became free without a call of this pool.
    pub(crate) fn serve(&self) {
        self.with(|queue, wakers| queue.serve(wakers));
    }

    fn lock(&self) -> MutexGuard<'_, Queue<A>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` under the lock; then, without it, wakes or drops the wakers that `call` took out of the queue. If a
    /// waker panics, the result is dropped: a block in it must be an [`OwnedBlock`], which is then freed.
    fn with<T>(&self, call: impl FnOnce(&mut Queue<A>, &mut Wakers) -> T) -> T {
        let mut wakers = Wakers::default();
        let result = call(&mut self.lock(), &mut wakers);
        drop(wakers);
        result
    }

    fn own(&self, outcome: Outcome, owner: Owner) -> Result<OwnedBlock<Self>, AllocError> {
        outcome.map(|block| OwnedBlock::new(self.clone(), block, owner))
    }

    /// Allocates a block without waiting.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]; [`Cause::OutOfMemory`] also while other requests wait: this one must not pass them.
    pub fn try_allocate(&self, request: Request) -> Result<OwnedBlock<Self>, AllocError> {
        let mut queue = self.lock();
        if queue.waiting() != 0 {
            return Err(AllocError::new(Cause::OutOfMemory, request.bytes));
        }
        self.own(queue.allocator.allocate(request), request.owner)
    }

    /// A future of a block, which is ready when it is this request's turn.
    ///
    /// # Errors
    /// The future's error, for a request that can never succeed ([`Cause::TooLarge`], [`Cause::BadRequest`], or any
    /// refusal while no block is live).
    pub fn allocate(&self, request: Request) -> Allocation<A> {
        Allocation { pool: self.clone(), request, ticket: None }
    }

    /// Blocks this thread until it gets a block, for at most `limit`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`Cause::OutOfMemory`] once `limit` has passed.
    pub fn allocate_timeout(&self, request: Request, limit: Duration) -> Result<OwnedBlock<Self>, AllocError> {
        // A block granted after the last poll goes to the next waiter when the future is dropped.
        let late = Err(AllocError::new(Cause::OutOfMemory, request.bytes));
        block_on(self.allocate(request), limit).unwrap_or(late)
    }

    /// Number of requests that wait now.
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// The allocator's counters as of now.
    pub fn stats(&self) -> Stats {
        self.lock().allocator.stats()
    }
}

/// Polls a future on this thread until it is ready, for at most `limit`; then drops it and returns `None`.
pub(crate) fn block_on<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        std::thread::park_timeout(limit.checked_sub(start.elapsed())?);
    }
}

/// A waker that unparks a thread.
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

/// The future of a block. Dropping it leaves the queue.
#[must_use = "futures do nothing unless polled"]
pub struct Allocation<A: Allocator> {
    pool: WaitingPool<A>,
    request: Request,
    /// The request's ticket in the queue, from the first poll that had to wait until its outcome is taken.
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
    /// Takes the outcome if there is one; otherwise registers the waker.
    fn look(&mut self, waker: &Waker) -> Option<Result<OwnedBlock<WaitingPool<A>>, AllocError>> {
        let (pool, request, ticket) = (&self.pool, self.request, self.ticket);
        let (outcome, noted) = {
            let mut queue = pool.lock();
            (queue.outcome(ticket, request), queue.is_noted(ticket, waker))
        };
        if outcome.is_some() || noted {
            return outcome.map(|outcome| pool.own(outcome, request.owner));
        }
        // The waker is cloned without the lock. In that time another thread, or the clone itself, may cause the request
        // to be served.
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
                // The queue has dropped the ticket with its outcome.
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
