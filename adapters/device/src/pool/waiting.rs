//! Requests that wait for memory: first come, first served.
//!
//! ```text
//!   poll: nothing waits ─► as a miss, without waiting ─► the user's hook ─► join: the streams' caches are emptied, and closed
//!   unlock, after every call that may free memory: serve the queue from its front, until a request finds none
//!   a thread, while requests wait: polls the fences of streams that still use freed memory
//! ```
//!
//! Promises upward: of requests that wait the oldest is served first, whatever their sizes; memory that is freed anywhere reaches the
//! queue before the call that freed it returns; while nothing waits, no call does more for it than to see that the queue is empty,
//! and none of a stream's cache does anything. A request fails at once if nothing is live whose free it could wait for.
//! Asks from below: [`without_waiting`], since the thread that frees serves the queue; wakers, which are called without a lock.

use super::allocate::is_memory;
use super::follower::Look;
use super::{DevicePool, PoolState};
use crate::backend::Backend;
use crate::error::DeviceError;
use crate::fault::FaultReason;
use crate::fences::without_waiting;
use crate::out_of_memory::OutOfMemory;
use crate::stream::{BlockOrigin, NO_ROUTE, StreamCore};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use terrace_core::{AllocError, Allocator, Block, Cause, Request};
use terrace_guard::catch_panic;

/// Time between two looks at the streams that use freed memory, while a request waits.
const TICK: Duration = Duration::from_millis(1);
/// The same while none uses any.
const REST: Duration = Duration::from_millis(5);

/// What a request that waited got: a block, or why it will never get one.
type WaiterOutcome = Result<(Block, BlockOrigin), Box<OutOfMemory>>;

/// A request in the queue.
struct PoolWaiter {
    ticket: u64,
    request: Request,
    home: Weak<StreamCore>,
    /// None until its first poll has ended.
    waker: Option<Waker>,
}

/// Requests that wait, and outcomes that were not picked up yet. A ticket is in one of the two, or in neither.
#[derive(Default)]
pub(super) struct WaiterQueue {
    queue: VecDeque<PoolWaiter>,
    granted: BTreeMap<u64, WaiterOutcome>,
    /// The ticket of the next request.
    next: u64,
    /// Whether the streams' caches are closed, since requests wait.
    active: bool,
    wakers: PoolWakers,
}

/// Wakers to be called, or dropped, once the lock is released.
#[derive(Default)]
pub(super) struct PoolWakers {
    served: Vec<Waker>,
    stale: Vec<Waker>,
}

impl PoolWakers {
    /// Wakes and drops. A panic of one is caught. The caller must hold no lock.
    pub(super) fn act(self) {
        self.served.into_iter().for_each(|waker| catch_panic(|| waker.wake()));
        self.stale.into_iter().for_each(|waker| catch_panic(|| drop(waker)));
    }
}

impl WaiterQueue {
    /// Whether requests wait, or did until a moment ago: then caches are to be opened again.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn take_wakers(&mut self) -> PoolWakers {
        std::mem::take(&mut self.wakers)
    }

    fn join(&mut self, request: Request, home: &Arc<StreamCore>) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.queue.push_back(PoolWaiter { ticket, request, home: Arc::downgrade(home), waker: None });
        ticket
    }

    /// Replaces the waker of a request that waits.
    fn renew(&mut self, ticket: u64, waker: Waker) {
        let old = match self.queue.iter_mut().find(|waiter| waiter.ticket == ticket) {
            Some(waiter) => waiter.waker.replace(waker),
            None => Some(waker),
        };
        self.wakers.stale.extend(old);
    }

    /// Moves the oldest request out of the queue.
    fn grant(&mut self, outcome: WaiterOutcome) {
        if let Some(waiter) = self.queue.pop_front() {
            self.granted.insert(waiter.ticket, outcome);
            self.wakers.served.extend(waiter.waker);
        }
    }
}

impl<B: Backend> DevicePool<B> {
    /// Allocates, or queues the request: `ticket` is then its place in the queue. Waits for nothing.
    pub(super) fn poll_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<(Block, BlockOrigin), DeviceError>> {
        let request = request.owner(home.owner);
        if ticket.is_none() {
            if let Err(error) = self.usable().and_then(|()| self.judge(request)) {
                return Poll::Ready(Err(error));
            }
            if let Some(outcome) = self.try_before_the_queue(home, request) {
                return Poll::Ready(outcome);
            }
        }
        // The copy runs the user's code: no lock is held.
        let waker = waker.clone();
        let mut inner = self.inner();
        let place = *ticket.get_or_insert_with(|| inner.waiters.join(request, home));
        inner.close_caches(true);
        self.serve_waiters(&mut inner);
        let outcome = inner.waiters.granted.remove(&place);
        match outcome {
            Some(_) => inner.waiters.wakers.stale.push(waker),
            None => inner.waiters.renew(place, waker),
        }
        self.unlock(inner);
        self.update_follower();
        let Some(outcome) = outcome else { return Poll::Pending };
        *ticket = None;
        Poll::Ready(outcome.map_err(|what| self.refused_for_good(home, what)))
    }

    /// If nothing waits, allocates as a miss does, but without waiting; calls the user's hook once. `None`: the request has to wait.
    fn try_before_the_queue(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
    ) -> Option<Result<(Block, BlockOrigin), DeviceError>> {
        if self.inner().waiters.is_active() {
            return None;
        }
        let attempt = || without_waiting(|| self.serve_alone(home, request));
        let served = attempt().or_else(|mut what| {
            // That a stream was still busy is no reason.
            what.fault = what.fault.filter(|fault| fault.reason != FaultReason::Transient);
            let again = is_memory(what.cause) && self.ask(&mut what, home.route() == NO_ROUTE);
            if again { attempt() } else { Err(what) }
        });
        match served {
            Err(what) if is_memory(what.cause) => None,
            served => Some(served.map_err(|what| self.refused_for_good(home, what))),
        }
    }

    /// Takes a request out of the queue; returns the block that was granted to it meanwhile.
    pub(super) fn leave_queue(&self, ticket: u64) -> Option<(Block, BlockOrigin)> {
        let mut inner = self.inner();
        let at = inner.waiters.queue.iter().position(|waiter| waiter.ticket == ticket);
        if let Some(waiter) = at.and_then(|at| inner.waiters.queue.remove(at)) {
            inner.waiters.wakers.stale.extend(waiter.waker);
        }
        let granted = inner.waiters.granted.remove(&ticket);
        // The next request may be a smaller one.
        self.unlock(inner);
        self.update_follower();
        granted.and_then(Result::ok)
    }

    /// Counts a request that found no memory as failed; returns its error.
    pub(super) fn refuse(&self, home: &StreamCore, request: Request) -> DeviceError {
        let mut inner = self.inner();
        let what = inner.lacking(home.route(), request);
        self.unlock(inner);
        self.refused_for_good(home, what)
    }

    fn refused_for_good(&self, home: &StreamCore, mut what: Box<OutOfMemory>) -> DeviceError {
        if let Err(error) = self.usable() {
            return error;
        }
        self.inner().failed += 1;
        self.explain(&mut what, home.route() == NO_ROUTE);
        DeviceError::OutOfMemory(what)
    }

    /// Serves the queue from its front, until a request finds no memory; opens the caches again when the queue is empty.
    pub(super) fn serve_waiters(&self, inner: &mut PoolState<B>) {
        while let Some(waiter) = inner.waiters.queue.front() {
            let (request, home) = (waiter.request, waiter.home.upgrade());
            let route = home.as_ref().map_or(NO_ROUTE, |home| home.route());
            inner.parting.extend(home);
            let Some(outcome) = self.attempt_for_waiter(inner, route, request) else { break };
            inner.waiters.grant(outcome);
        }
        if inner.waiters.queue.is_empty() {
            inner.close_caches(false);
        }
    }

    /// Allocates under the lock, without waiting; `None` if the request has to wait.
    fn attempt_for_waiter(&self, inner: &mut PoolState<B>, route: u32, request: Request) -> Option<WaiterOutcome> {
        if self.context.health.check().is_err() {
            return Some(Err(inner.lacking(route, request)));
        }
        inner.drain();
        inner.sweep();
        let place = if route == NO_ROUTE { BlockOrigin::Pool } else { BlockOrigin::Graph(route) };
        let mut served = without_waiting(|| inner.from(place, request));
        if served.is_err() && place != BlockOrigin::Pool && without_waiting(|| inner.arena.trim()) > 0 {
            // A graph's pool reserves segments of its own.
            served = without_waiting(|| inner.from(place, request));
        }
        match served {
            Ok(block) => {
                if place == BlockOrigin::Pool {
                    inner.given.allocated(&block);
                }
                Some(Ok((block, place)))
            }
            Err(error) if is_memory(error.cause) && inner.may_free() => {
                // That a stream was still busy is no reason for another request's failure.
                let _ = inner.arena.source_mut().take_fault();
                None
            }
            Err(error) => Some(Err(Box::new(inner.describe(place, error)))),
        }
    }

    /// Starts the thread that polls streams while requests wait, or ends it. After that it holds no reference to the pool, if nothing
    /// waits. If the system refuses a thread, the queue is served when other calls poll.
    fn update_follower(&self) {
        let pool = &self.me;
        let look = || {
            let pool = pool.clone();
            move || pool.upgrade().map(|pool| pool.look_at_streams())
        };
        self.follower.update(|| !self.inner().waiters.queue.is_empty(), look);
    }

    /// Looks once at the streams that use freed memory. Returns what is left to do, and the time until the next look, if anything
    /// waits.
    fn look_at_streams(&self) -> Look {
        let inner = self.inner();
        let pause = if inner.waits_for_streams() { TICK } else { REST };
        // Serving the queue queries the streams.
        let mut left = self.release(inner);
        left.part();
        // The streams' keepers may have ended requests, or begun some.
        let waits = !self.inner().waiters.queue.is_empty();
        (left, waits.then_some(pause))
    }
}

impl<B: Backend> PoolState<B> {
    /// Closes the streams' caches, so that all that is freed goes to the pool, or opens them again.
    fn close_caches(&mut self, closed: bool) {
        if self.waiters.active == closed {
            return;
        }
        self.waiters.active = closed;
        self.each_stream(|stream| stream.set_awaited(closed));
        // Blocks that were freed into a cache before that.
        if closed {
            self.drain();
        }
    }

    /// Whether freed memory waits for streams.
    fn waits_for_streams(&self) -> bool {
        !self.held.is_empty() || self.arena.is_waiting() || !self.fences.is_quiet()
    }

    /// Whether something is live, or on its way, whose free may serve a request.
    fn may_free(&mut self) -> bool {
        // Work that used freed memory may be done, and nothing asked since.
        let _ = without_waiting(|| self.fences.quiesce());
        self.arena.stats().live_blocks > 0
            || self.growing > 0
            || self.waits_for_streams()
            || self.graphs.values().any(|graph| graph.arena.reserved() > 0)
    }

    /// A request that lacks memory, with the figures of this moment.
    fn lacking(&mut self, route: u32, request: Request) -> Box<OutOfMemory> {
        let place = if route == NO_ROUTE { BlockOrigin::Pool } else { BlockOrigin::Graph(route) };
        let largest_free = self.arena_of(place).map_or(0, |arena| arena.stats().largest_free);
        let error = AllocError { cause: Cause::OutOfMemory, asked: request.bytes, largest_free };
        let mut what = self.describe(place, error);
        // That a stream was still busy is no reason.
        what.fault = what.fault.filter(|fault| fault.reason != FaultReason::Transient);
        Box::new(what)
    }
}
