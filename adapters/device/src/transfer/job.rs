//! A job: one transfer inside the engine, with the ranges to copy and its progress.
//!
//! Promises upward: a job releases its buffers only once none of its parts is in flight; it ends once, with all of its
//! bytes moved or with one error; a refused part is issued again, whole.
//! Asks from below: the lane settles or refuses each [`JobPart`] that it takes, exactly once.

use super::options::Priority;
use super::stats::EngineCounters;
use crate::backend::CopyRange;
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::meter::TransferReport;
use crate::stream::StreamCore;
use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};
use terrace_guard::catch_panic;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the host to the device.
    Up,
    /// From the device to the host.
    Down,
    /// From device memory to memory of the same device.
    Within,
}

/// How a job's bytes are moved. Only jobs of the same route may share a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) direction: Direction,
    /// Whether the device can access the host memory directly, without staging.
    pub(super) direct: bool,
}

/// Splits off the first bytes of a range, at most `room`; returns them and the rest.
fn split(range: CopyRange, room: u64) -> (CopyRange, Option<CopyRange>) {
    let CopyRange { to, from, bytes } = range;
    if bytes <= room {
        return (range, None);
    }
    let rest = CopyRange { to: to + room, from: from + room, bytes: bytes - room };
    (CopyRange { bytes: room, ..range }, Some(rest))
}

/// The buffers of a job, which keep its memory alive. `None` if the caller lends the memory and waits.
pub(super) type Keep = Option<Box<dyn Any + Send>>;

/// The end of a job.
pub(super) struct JobEnd {
    pub(super) result: Result<TransferReport, DeviceError>,
    pub(super) keep: Keep,
    /// Whether any byte of the target may have been written.
    pub(super) touched: bool,
}

/// The home streams of a job's device buffers, which are one or two.
pub(super) type Homes = [Option<Arc<StreamCore>>; 2];

pub(super) struct Job {
    pub(super) route: Route,
    pub(super) class: Priority,
    /// Streams whose work, put on them before the job was submitted, must be done before the job's copies.
    pub(super) homes: Homes,
    /// Number of the job in the order of submission, from 1.
    pub(super) number: u64,
    counters: Arc<EngineCounters>,
    began: Instant,
    progress: Mutex<Progress>,
    ended: Condvar,
}

/// State under the job's lock, which is taken after the queue's lock and before that of the counters.
struct Progress {
    /// Ranges not issued yet, each with the number of its refusals; the last range is issued next.
    left: Vec<(CopyRange, u32)>,
    /// Number of parts that are issued and neither settled nor refused yet.
    in_flight: u32,
    /// Whether the job is in the queue, or was popped by a lane that is taking parts of it.
    queued: bool,
    /// The earliest time to take the next part.
    not_before: Option<Instant>,
    /// Whether the job must not share a piece, since it was refused twice, or in a shared piece.
    alone: bool,
    /// Whether the caller cancelled the job.
    cancelled: bool,
    touched: bool,
    error: Option<DeviceError>,
    report: TransferReport,
    keep: Keep,
    /// Whether the caller will take `end`.
    wanted: bool,
    waker: Option<Waker>,
    /// Whether the job has ended; `end` is set from then until the caller takes it.
    over: bool,
    end: Option<JobEnd>,
}

/// A part of a job's bytes, in flight.
pub(super) struct JobPart {
    pub(super) job: Arc<Job>,
    pub(super) range: CopyRange,
    /// Number of times that the part was refused.
    pub(super) refused: u32,
}

/// A waker to call and values to drop after a job ended, once no lock is held: both run the user's code.
#[must_use]
#[derive(Default)]
pub(super) struct Deferred {
    waker: Option<Waker>,
    /// The end of the job, if the caller no longer wants it.
    end: Option<JobEnd>,
    /// The job, if it left the queue: this may be the last reference to its streams.
    job: Option<Arc<Job>>,
}

impl Deferred {
    /// Adds a job that left the queue.
    pub(super) fn of(self, job: Arc<Job>) -> Self {
        Self { job: Some(job), ..self }
    }

    /// Wakes the waiter, and drops the rest. A panic of the user's code is caught, so that the lane goes on.
    pub(super) fn act(self) {
        let Self { waker, end, job } = self;
        catch_panic(|| waker.into_iter().for_each(Waker::wake));
        catch_panic(|| drop(end));
        catch_panic(|| drop(job));
    }
}

/// The result of [`Job::take`].
pub(super) enum JobStep {
    /// The job has no part left to issue: it leaves the queue.
    Gone(Deferred),
    /// A range to issue, the number of its refusals, and whether the job has more ranges.
    Some(CopyRange, u32, bool),
    /// No part may be issued before this time.
    Later(Instant),
}

impl Job {
    pub(super) fn new(route: Route, class: Priority, homes: Homes, number: u64, counters: Arc<EngineCounters>) -> Self {
        let progress = Progress {
            left: Vec::new(),
            in_flight: 0,
            queued: true,
            not_before: None,
            alone: false,
            cancelled: false,
            touched: false,
            error: None,
            report: TransferReport::default(),
            keep: None,
            wanted: true,
            waker: None,
            over: false,
            end: None,
        };
        let (progress, ended) = (Mutex::new(progress), Condvar::new());
        Self { route, class, homes, number, counters, began: Instant::now(), progress, ended }
    }

    /// Adds the ranges to copy, in order, and the buffers that keep their memory alive.
    pub(super) fn with(mut self, mut ranges: Vec<CopyRange>, keep: Keep) -> Self {
        ranges.retain(|range| range.bytes > 0);
        ranges.reverse();
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        progress.left = ranges.into_iter().map(|range| (range, 0)).collect();
        progress.keep = keep;
        self
    }

    /// Locks the progress, which is consistent between any two calls.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at most `room` bytes to issue now.
    pub(super) fn take(&self, room: u64, now: Instant) -> JobStep {
        let mut progress = self.progress();
        let given_up = progress.cancelled || progress.error.is_some() || progress.over;
        if let Some(at) = progress.not_before.filter(|&at| at > now && !given_up) {
            return JobStep::Later(at);
        }
        let next = if given_up { None } else { progress.left.pop() };
        let Some((next, refused)) = next else {
            progress.queued = false;
            return JobStep::Gone(self.finish(progress));
        };
        let (range, rest) = split(next, room);
        progress.left.extend(rest.map(|rest| (rest, refused)));
        progress.in_flight += 1;
        progress.touched = true;
        let more = !progress.left.is_empty();
        progress.queued = more;
        JobStep::Some(range, refused, more)
    }

    /// Whether the job must not share a piece.
    pub(super) fn is_alone(&self) -> bool {
        self.progress().alone
    }

    /// Counts a part that arrived; ends the job if it was the last.
    pub(super) fn settled(&self, bytes: u64) -> Deferred {
        let mut progress = self.progress();
        progress.in_flight -= 1;
        progress.not_before = None;
        progress.report.bytes += bytes;
        progress.report.pieces += 1;
        self.finish(progress)
    }

    /// Whether the queue may drop the job: it was cancelled, failed, or has ended.
    pub(super) fn is_given_up(&self) -> bool {
        let progress = self.progress();
        progress.cancelled || progress.error.is_some() || progress.over
    }

    /// Issues a part again that was refused for a temporary reason, after `delay` of its refusals; if that is `None`,
    /// the job fails. From its second refusal on, the job shares no piece: other jobs may be the reason. Returns
    /// whether the caller must push the job to the queue.
    pub(super) fn again(
        &self,
        (range, refused): (CopyRange, u32),
        error: &DeviceError,
        delay: impl Fn(u32) -> Option<Duration>,
    ) -> (bool, Deferred) {
        let Some(delay) = delay(refused + 1) else { return (false, self.failed(error.clone())) };
        let mut progress = self.progress();
        progress.alone |= refused > 0;
        progress.not_before = Instant::now().checked_add(delay);
        (Self::put_back(progress, (range, refused + 1)), Deferred::default())
    }

    /// Issues a part again, alone, that was refused in a shared piece: this shows which job caused the refusal. Returns
    /// whether the caller must push the job to the queue.
    pub(super) fn again_alone(&self, range: (CopyRange, u32)) -> bool {
        let mut progress = self.progress();
        progress.alone = true;
        Self::put_back(progress, range)
    }

    fn put_back(mut progress: MutexGuard<'_, Progress>, range: (CopyRange, u32)) -> bool {
        progress.in_flight -= 1;
        progress.left.push(range);
        progress.report.retries += 1;
        !std::mem::replace(&mut progress.queued, true)
    }

    /// Fails the job: one of its parts was refused for good.
    pub(super) fn failed(&self, error: DeviceError) -> Deferred {
        let mut progress = self.progress();
        progress.in_flight -= 1;
        progress.error.get_or_insert(error);
        self.finish(progress)
    }

    /// As [`Job::failed`], if the driver cannot say whether the part is still in flight: the job's buffers leak.
    pub(super) fn lost(&self, error: DeviceError) -> Deferred {
        std::mem::forget(self.progress().keep.take());
        self.failed(error)
    }

    /// Cancels the job: no further part is issued.
    pub(super) fn cancel(&self) {
        let mut progress = self.progress();
        progress.cancelled = true;
        // The job stays in the queue, which later finds that no part is left.
        self.finish(progress).act();
    }

    /// Detaches the caller: cancels the job, and drops its end.
    pub(super) fn let_go(&self) {
        let mut progress = self.progress();
        (progress.cancelled, progress.wanted) = (true, false);
        // Dropping either may run any code, and even drop the engine: they are dropped after unlocking.
        let (end, waker) = (progress.end.take(), progress.waker.take());
        let deferred = self.finish(progress);
        catch_panic(|| drop(waker));
        catch_panic(|| drop(end));
        deferred.act();
    }

    /// Ends the job if no part is in flight, and either all parts were issued, or it failed, or it was cancelled.
    fn finish(&self, mut progress: MutexGuard<'_, Progress>) -> Deferred {
        let issued = progress.left.is_empty() && !progress.queued;
        // A job that was cancelled after its last part was issued counts as done.
        let given_up = progress.cancelled && !issued;
        let error = progress.error.clone().or(given_up.then_some(DeviceError::Cancelled));
        if progress.over || progress.in_flight > 0 || !(issued || error.is_some()) {
            return Deferred::default();
        }
        progress.over = true;
        progress.report.time = self.began.elapsed();
        let report = progress.report;
        self.counters.ended(self.route.direction, error.as_ref(), report);
        let end =
            JobEnd { result: error.map_or(Ok(report), Err), keep: progress.keep.take(), touched: progress.touched };
        progress.left = Vec::new();
        let mut deferred = Deferred { waker: progress.waker.take(), ..Deferred::default() };
        match progress.wanted {
            true => progress.end = Some(end),
            false => deferred.end = Some(end),
        }
        drop(progress);
        self.ended.notify_all();
        deferred
    }

    /// Waits until the job has ended.
    pub(super) fn wait(&self) -> JobEnd {
        let mut progress = self.progress();
        loop {
            match progress.end.take() {
                Some(end) => return end,
                None => progress = self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes the result if the job ended; else registers `waker`.
    pub(super) fn poll(&self, waker: &Waker) -> Option<JobEnd> {
        // Cloning or dropping a waker runs the user's code: not under the lock.
        let fresh = waker.clone();
        let mut progress = self.progress();
        let end = progress.end.take();
        let old = if end.is_none() { progress.waker.replace(fresh) } else { Some(fresh) };
        drop(progress);
        catch_panic(|| drop(old));
        end
    }
}

/// Whether a refusal may be temporary, so that the part is tried again.
pub(super) fn may_pass(fault: &Fault) -> bool {
    use crate::fault::FaultReason;
    matches!(fault.reason, FaultReason::Transient | FaultReason::OutOfMemory | FaultReason::Capturing)
}

#[cfg(test)]
mod tests;
