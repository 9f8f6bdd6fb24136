//! State that an engine's handles and lanes share: the queue, and what follows when pieces arrive or are refused.
//!
//! Promises upward: every submitted job ends; a piece refused for a temporary reason is tried again after a delay, one
//! refused for good fails its own job only.
//! Asks from below: lanes that take pieces and report each of them as arrived or refused.
//!
//! Lock order: the queue's, then a job's, then the counters'.

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
    /// Number of jobs submitted so far.
    taken: AtomicU64,
    state: Mutex<EngineState>,
    /// Signalled when the queue has work for a waiting lane.
    work: Condvar,
}

struct EngineState {
    queue: JobQueue,
    /// The pace of each route, at [`index`].
    paces: [Pace; 6],
    /// Number of lanes that wait for work.
    asleep: usize,
    /// Whether lanes end once the queue is empty.
    closing: bool,
}

/// What a lane does next.
pub(super) enum Next {
    Load(Load),
    /// There is nothing to issue now: the lane may settle its pieces in flight.
    Nothing,
    /// The engine is closed and the queue is empty: the lane ends.
    End,
}

/// Index of a route's pace in `paces`.
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

    /// Locks the state. Queue and paces are consistent between any two calls.
    fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of jobs submitted so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Submits a job to the queue.
    pub(super) fn submit(
        &self,
        route: Route,
        class: Priority,
        homes: Homes,
        ranges: Vec<CopyRange>,
        keep: Keep,
    ) -> Arc<Job> {
        // Relaxed: the queue's lock orders this, so a lane that sees the job sees the number.
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

    /// Lets lanes end once the queue is empty.
    pub(super) fn close(&self) {
        self.state().closing = true;
        self.work.notify_all();
    }

    /// The next piece. `busy`: the lane has pieces in flight, so the call does not wait for work.
    pub(super) fn next(&self, busy: bool) -> Next {
        let mut state = self.state();
        loop {
            let EngineState { queue, paces, .. } = &mut *state;
            let found = queue.load(&self.options, Instant::now(), |route| paces[index(route)].bytes());
            let (load, more) = (found.load, state.queue.len() > 0);
            if load.is_some() || !found.deferred.is_empty() {
                // Another lane may take the jobs that are left.
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
        // Settle all jobs before any waker is called: a slow waker must not delay the other jobs.
        let deferred: Vec<_> = load.parts.into_iter().map(|part| part.job.settled(part.range.bytes)).collect();
        deferred.into_iter().for_each(Deferred::act);
    }

    /// Retries or fails the jobs of a refused piece. `quiet`: no part of the piece is in flight any more.
    pub(super) fn refused(&self, load: Load, fault: Fault, quiet: bool) {
        self.counters.end(load.route.direction, 0, 0);
        // Memory that may still be written must never be handed out again, so the device counts as lost.
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
                // One of the jobs in the piece may have caused the refusal: each is tried alone, and gets its own
                // error.
                self.queue(part.job.again_alone((part.range, part.refused)), part.job);
            }
        }
        // Wakers are called after all jobs were handled, as in `arrived`.
        ended.into_iter().for_each(Deferred::act);
    }

    /// Pushes a job that was taken from the queue back into it, if `queue` is true.
    fn queue(&self, queue: bool, job: Arc<Job>) {
        if queue {
            self.state().queue.push(job);
            self.work.notify_one();
        }
    }
}
