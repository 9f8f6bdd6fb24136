//! What an engine's handles and lanes share: the queue, and what becomes of pieces.
//!
//! Promises upward: a job that was taken in ends; a piece that was refused for a reason that may pass is tried again after a
//! while, one that was refused for good fails its own job only.
//! Asks from below: lanes that take loads and say what became of them.
//!
//! Locks: the queue's, then a job's, then the counters'.

use super::job::{Deferred, Homes, Job, Keep, Route, may_pass};
use super::options::{Priority, TransferOptions};
use super::pace::Pace;
use super::queue::{JobQueue, Load};
use super::stats::{EngineCounters, TransferStats};
use crate::backend::CopyRange;
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::health::DeviceHealth;
use crate::stream::Service;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct EngineShared {
    pub(super) service: Arc<dyn Service>,
    pub(super) health: Arc<DeviceHealth>,
    pub(super) options: TransferOptions,
    pub(super) counters: Arc<EngineCounters>,
    /// Jobs taken in so far.
    taken: AtomicU64,
    state: Mutex<EngineState>,
    /// Lanes wait here for work.
    work: Condvar,
}

struct EngineState {
    queue: JobQueue,
    /// For each route.
    paces: [Pace; 6],
    /// Lanes that wait.
    asleep: usize,
    /// Whether lanes end when nothing is left.
    closing: bool,
}

/// What a lane does next.
pub(super) enum Next {
    Load(Load),
    /// Nothing now; what is on its way may be looked after.
    Nothing,
    /// The engine is closed and nothing is left: the lane ends.
    End,
}

/// Where the pace of a route stands.
fn index(route: Route) -> usize {
    route.direction as usize * 2 + usize::from(route.direct)
}

impl EngineShared {
    pub(super) fn new(service: Arc<dyn Service>, options: TransferOptions) -> Self {
        let (health, counters) = (service.health(), Arc::default());
        let paces = [(); 6].map(|()| Pace::new(options.chunk.0, options.chunk.1));
        let state = EngineState { queue: JobQueue::default(), paces, asleep: 0, closing: false };
        let (state, work) = (Mutex::new(state), Condvar::new());
        Self { service, health, options, counters, taken: AtomicU64::new(0), state, work }
    }

    /// The queue and the paces are whole between any two calls.
    fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs taken in so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a job in.
    pub(super) fn submit(
        &self,
        route: Route,
        class: Priority,
        homes: Homes,
        ranges: Vec<CopyRange>,
        keep: Keep,
    ) -> Arc<Job> {
        // Ordered by the queue's lock: a lane that sees the job sees the number.
        let number = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let job = Arc::new(Job::new(route, class, homes, number, Arc::clone(&self.counters)).with(ranges, keep));
        let mut state = self.state();
        state.queue.push(Arc::clone(&job));
        let wake = state.asleep > 0;
        drop(state);
        if wake {
            self.work.notify_one();
        }
        job
    }

    pub(super) fn stats(&self) -> TransferStats {
        let queued = self.state().queue.len() as u64;
        self.counters.stats(queued)
    }

    /// Lanes end when the queue is empty.
    pub(super) fn close(&self) {
        self.state().closing = true;
        self.work.notify_all();
    }

    /// The next piece. `busy`: the lane has something in flight, and does not wait here.
    pub(super) fn next(&self, busy: bool) -> Next {
        let mut state = self.state();
        loop {
            let EngineState { queue, paces, .. } = &mut *state;
            let found = queue.load(&self.options, Instant::now(), |route| paces[index(route)].bytes());
            let (load, more) = (found.load, state.queue.len() > 0);
            if load.is_some() || !found.deferred.is_empty() {
                // Others may help with what is left.
                let wake = more && state.asleep > 0;
                drop(state);
                if wake {
                    self.work.notify_one();
                }
                found.deferred.into_iter().for_each(Deferred::act);
                match load {
                    Some(load) => return Next::Load(load),
                    None => state = self.state(),
                }
                continue;
            }
            if busy {
                return Next::Nothing;
            }
            if state.closing && !more {
                return Next::End;
            }
            state = self.sleep(state);
        }
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, EngineState>) -> MutexGuard<'a, EngineState> {
        state.asleep += 1;
        let wait = state.queue.next_time().map(|at| at.saturating_duration_since(Instant::now()));
        let mut state = match wait {
            None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.asleep -= 1;
        state
    }

    /// Settles the parts of a piece that arrived. `time`: how long the piece kept its lane busy.
    pub(super) fn arrived(&self, load: Load, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.state().paces[index(load.route)].measured(load.bytes, nanoseconds);
        self.counters.end(load.route.direction, load.bytes, load.parts.len());
        // All of them first: a slow waker must not delay other jobs' bytes.
        let deferred: Vec<_> = load.parts.into_iter().map(|part| part.job.settled(part.range.bytes)).collect();
        deferred.into_iter().for_each(Deferred::act);
    }

    /// Retries or fails the jobs of a refused piece. `quiet`: no part of the piece is in flight any more.
    pub(super) fn refused(&self, load: Load, fault: Fault, quiet: bool) {
        self.counters.end(load.route.direction, 0, 0);
        // Memory that may still be written must never be handed out again: the device is as good as lost.
        let fault = if quiet { fault } else { fault.unproven() };
        let error = self.service.error(fault);
        let lost = matches!(error, DeviceError::Lost { .. });
        let first = load.parts.first().map(|part| Arc::as_ptr(&part.job));
        let shared = load.parts.iter().any(|part| Some(Arc::as_ptr(&part.job)) != first);
        let mut ended = Vec::new();
        for part in load.parts {
            if !quiet {
                ended.push(part.job.lost(error.clone()));
            } else if lost || !(may_pass(&fault) || shared) {
                ended.push(part.job.failed(error.clone()));
            } else if may_pass(&fault) {
                let TransferOptions { attempts, .. } = self.options;
                let delay = |refused| (refused < attempts).then(|| self.options.delay(refused));
                let (queue, deferred) = part.job.again((part.range, part.refused), &error, delay);
                ended.push(deferred);
                self.queue(queue, part.job);
            } else {
                // Not each of those that shared a piece needs to be the guilty one: each is told its own error.
                self.queue(part.job.again_alone((part.range, part.refused)), part.job);
            }
        }
        // As in `arrived`.
        ended.into_iter().for_each(Deferred::act);
    }

    /// Takes a job in again, unless the queue has it.
    fn queue(&self, queue: bool, job: Arc<Job>) {
        if queue {
            self.state().queue.push(job);
            self.work.notify_one();
        }
    }
}
