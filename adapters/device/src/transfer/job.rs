//! One transfer as the engine knows it: ranges to copy, and how far it is.
//!
//! Promises upward: what a job keeps is let go when nothing of it is in flight, not before; it ends once, with all its bytes
//! moved or with one error; pieces that were refused are issued again, whole.
//! Asks from below: a [`JobPart`] taken is settled or refused, exactly once.

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

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the host to the device.
    Up,
    /// From the device to the host.
    Down,
    /// On the device.
    Within,
}

/// How a job's bytes are moved: only what is alike goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) direction: Direction,
    /// Whether the device can use the host's side itself: no staging.
    pub(super) direct: bool,
}

/// The first bytes of a range, at most `room`, and what is left.
fn split(range: CopyRange, room: u64) -> (CopyRange, Option<CopyRange>) {
    let CopyRange { to, from, bytes } = range;
    if bytes <= room {
        return (range, None);
    }
    let rest = CopyRange { to: to + room, from: from + room, bytes: bytes - room };
    (CopyRange { bytes: room, ..range }, Some(rest))
}

/// What keeps the memory of a job alive: the buffers themselves. Nothing where the caller waits.
pub(super) type Keep = Option<Box<dyn Any + Send>>;

/// A job that is over.
pub(super) struct JobEnd {
    pub(super) result: Result<TransferReport, DeviceError>,
    pub(super) keep: Keep,
    /// Whether any byte of the target may have been written.
    pub(super) touched: bool,
}

/// Streams of the buffers of a job: of one, or of both.
pub(super) type Homes = [Option<Arc<StreamCore>>; 2];

pub(super) struct Job {
    pub(super) route: Route,
    pub(super) class: Priority,
    /// Streams whose work so far comes first.
    pub(super) homes: Homes,
    /// Jobs handed to the engine before it.
    pub(super) number: u64,
    counters: Arc<EngineCounters>,
    began: Instant,
    progress: Mutex<Progress>,
    ended: Condvar,
}

/// Under the job's lock, which is the last of all to be taken.
struct Progress {
    /// Ranges not issued yet, and how often each was refused; the last is the next.
    left: Vec<(CopyRange, u32)>,
    /// Parts issued and neither settled nor refused.
    in_flight: u32,
    /// Whether the queue, or a lane that looks at it, has the job.
    queued: bool,
    /// When the next piece may be tried.
    not_before: Option<Instant>,
    /// Whether it goes without others, since it or a companion was refused for good.
    alone: bool,
    /// Whether the caller gave it up.
    cancelled: bool,
    touched: bool,
    error: Option<DeviceError>,
    report: TransferReport,
    keep: Keep,
    /// Whether the caller will take `end`.
    wanted: bool,
    waker: Option<Waker>,
    /// Whether it ended, once and for all; `end` is set until the caller takes it.
    over: bool,
    end: Option<JobEnd>,
}

/// Some bytes of a job, in flight.
pub(super) struct JobPart {
    pub(super) job: Arc<Job>,
    pub(super) range: CopyRange,
    /// How often it was refused.
    pub(super) refused: u32,
}

/// Calls and drops for a job that ended, made without any lock.
#[must_use]
#[derive(Default)]
pub(super) struct Deferred {
    waker: Option<Waker>,
    /// Set if the caller detached: dropped here.
    end: Option<JobEnd>,
    /// It may be the last that knows its streams: dropped here.
    job: Option<Arc<Job>>,
}

impl Deferred {
    /// The same, for a job that left the queue.
    pub(super) fn of(self, job: Arc<Job>) -> Self {
        Self { job: Some(job), ..self }
    }

    /// Wakes the waiter, and drops what is left. What panics is its owner's affair: a lane goes on for the others.
    pub(super) fn act(self) {
        let Self { waker, end, job } = self;
        catch_panic(|| waker.into_iter().for_each(Waker::wake));
        catch_panic(|| drop(end));
        catch_panic(|| drop(job));
    }
}

/// What a queue learns from a look at a job.
pub(super) enum JobStep {
    /// Nothing of it is left to issue: it leaves the queue.
    Gone(Deferred),
    /// This much of it, which was refused so often; `true`: more is left.
    Some(CopyRange, u32, bool),
    /// Not before that.
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

    /// The same with what it moves, in order, and what keeps that alive.
    pub(super) fn with(mut self, mut ranges: Vec<CopyRange>, keep: Keep) -> Self {
        ranges.retain(|range| range.bytes > 0);
        ranges.reverse();
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        progress.left = ranges.into_iter().map(|range| (range, 0)).collect();
        progress.keep = keep;
        self
    }

    /// Progress is whole between any two calls.
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

    /// Whether it goes without others.
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

    /// Whether the queue may forget it: it was given up, or ended.
    pub(super) fn is_given_up(&self) -> bool {
        let progress = self.progress();
        progress.cancelled || progress.error.is_some() || progress.over
    }

    /// A part was refused for a reason that may pass: it is issued again, after `delay` of how often that was; `None` when that
    /// was too often. From the second time on the job goes alone: its companions may be the reason. Gives whether the queue
    /// gets the job (again).
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

    /// A part was refused together with others: it is issued again alone, which shows whether it is the guilty one. Gives
    /// whether the queue gets the job (again).
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

    /// As [`Job::failed`], when the driver cannot say whether the part is still in flight: its memory is never let go.
    pub(super) fn lost(&self, error: DeviceError) -> Deferred {
        std::mem::forget(self.progress().keep.take());
        self.failed(error)
    }

    /// Cancels the job: no further part is issued.
    pub(super) fn cancel(&self) {
        let mut progress = self.progress();
        progress.cancelled = true;
        // Not the queue's answer: it finds out later that nothing is left.
        self.finish(progress).act();
    }

    /// Detaches the caller: cancels the job, and drops its end.
    pub(super) fn let_go(&self) {
        let mut progress = self.progress();
        (progress.cancelled, progress.wanted) = (true, false);
        // Both may hold anything, also the engine: they go when the lock has gone.
        let (end, waker) = (progress.end.take(), progress.waker.take());
        let deferred = self.finish(progress);
        catch_panic(|| drop(waker));
        catch_panic(|| drop(end));
        deferred.act();
    }

    /// Ends the job if no part is in flight and none is left to issue, or it failed or was cancelled.
    fn finish(&self, mut progress: MutexGuard<'_, Progress>) -> Deferred {
        let issued = progress.left.is_empty() && !progress.queued;
        // What had arrived as a whole before it was given up is done.
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

    /// Waits for the end.
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
        // A waker's clone and drop run foreign code: without the lock.
        let fresh = waker.clone();
        let mut progress = self.progress();
        let end = progress.end.take();
        let old = if end.is_none() { progress.waker.replace(fresh) } else { Some(fresh) };
        drop(progress);
        catch_panic(|| drop(old));
        end
    }
}

/// Whether a refusal may pass by itself: then the piece is tried again.
pub(super) fn may_pass(fault: &Fault) -> bool {
    use crate::fault::FaultReason;
    matches!(fault.reason, FaultReason::Transient | FaultReason::OutOfMemory | FaultReason::Capturing)
}

#[cfg(test)]
mod tests;
