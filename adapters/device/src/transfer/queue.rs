//! The queue of an engine's jobs: chooses the bytes of the next piece.
//!
//! Promises upward: jobs of one class take turns, one piece each, so a large job does not delay the others; a waiting
//! class gets a piece at the latest after other classes got [`TransferOptions::patience`] pieces; small jobs of the
//! same route share a piece. Pure: uses no clock and no thread.
//! Asks from below: [`Job::take`].
//!
//! Invariants: a job is in the queue at most once, and has `queued` set while it is.

use super::job::{Deferred, Job, JobPart, JobStep, Route};
use super::options::TransferOptions;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Number of classes of [`Priority`](super::Priority).
const CLASSES: usize = 3;

/// A piece: parts of one or more jobs that are copied together.
pub(super) struct Load {
    pub(super) route: Route,
    pub(super) parts: Vec<JobPart>,
    pub(super) bytes: u64,
}

#[derive(Default)]
pub(super) struct JobQueue {
    classes: [VecDeque<Arc<Job>>; CLASSES],
    /// For each class, how often it was passed over since it was last served or empty.
    passed: [u32; CLASSES],
    /// Refused jobs that wait for the time of their next attempt.
    later: Vec<(Instant, Arc<Job>)>,
}

/// What [`JobQueue::load`] found.
pub(super) struct LoadResult {
    pub(super) load: Option<Load>,
    /// Wakers to call and values to drop for jobs that had ended.
    pub(super) deferred: Vec<Deferred>,
}

impl JobQueue {
    /// Adds a job behind the others of its class.
    pub(super) fn push(&mut self, job: Arc<Job>) {
        self.classes[job.class as usize].push_back(job);
    }

    /// Number of jobs in the queue.
    pub(super) fn len(&self) -> usize {
        self.later.len() + self.classes.iter().map(VecDeque::len).sum::<usize>()
    }

    /// The earliest time at which a refused job may be tried again.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.later.iter().map(|(at, _)| *at).min()
    }

    /// Builds the next piece from the first job of the class whose turn it is, filled up with later jobs of the same
    /// route. `room` gives the size of a piece in bytes.
    pub(super) fn load(&mut self, options: &TransferOptions, now: Instant, room: impl Fn(Route) -> u64) -> LoadResult {
        self.wake(now);
        let mut found = LoadResult { load: None, deferred: Vec::new() };
        // If all jobs of a class had ended, the class is empty now: serve the next class.
        while found.load.is_none()
            && let Some(class) = self.turn(options.patience)
        {
            self.fill(class, (options, now), &room, &mut found);
        }
        found
    }

    /// Moves refused jobs whose time has come to the front of their class, where they were before.
    fn wake(&mut self, now: Instant) {
        for at in (0..self.later.len()).rev() {
            if self.later[at].0 <= now || self.later[at].1.is_given_up() {
                let (_, job) = self.later.swap_remove(at);
                self.classes[job.class as usize].push_front(job);
            }
        }
    }

    /// Chooses the class to serve.
    fn turn(&mut self, patience: u32) -> Option<usize> {
        let waits = |class: &usize| !self.classes[*class].is_empty();
        let starving = (0..CLASSES).rev().filter(waits).find(|&class| self.passed[class] >= patience);
        let class = starving.or_else(|| (0..CLASSES).find(waits))?;
        for other in 0..CLASSES {
            let passed = other != class && !self.classes[other].is_empty();
            self.passed[other] = if passed { self.passed[other] + 1 } else { 0 };
        }
        Some(class)
    }

    fn fill(
        &mut self,
        class: usize,
        (options, now): (&TransferOptions, Instant),
        room: &impl Fn(Route) -> u64,
        found: &mut LoadResult,
    ) {
        while let Some(job) = self.classes[class].front() {
            let alone = job.is_alone();
            let left = match &found.load {
                None => room(job.route),
                Some(load) if alone || load.route != job.route || load.parts.len() >= options.batch => return,
                Some(load) => room(job.route).saturating_sub(load.bytes),
            };
            if left == 0 {
                return;
            }
            let Some(job) = self.classes[class].pop_front() else { return };
            self.take(job, (options, now), left, found);
            if alone && found.load.is_some() {
                return;
            }
        }
    }

    /// Takes as much of a job into the piece as there is room for, up to `left` bytes.
    fn take(&mut self, job: Arc<Job>, (options, now): (&TransferOptions, Instant), left: u64, found: &mut LoadResult) {
        let (route, mut left) = (job.route, left);
        loop {
            let (range, refused, more) = match job.take(left, now) {
                JobStep::Later(at) => return self.later.push((at, job)),
                JobStep::Gone(deferred) => return found.deferred.push(deferred.of(job)),
                JobStep::Some(range, refused, more) => (range, refused, more),
            };
            let load = found.load.get_or_insert_with(|| Load { route, parts: Vec::new(), bytes: 0 });
            load.bytes += range.bytes;
            load.parts.push(JobPart { job: Arc::clone(&job), range, refused });
            left -= range.bytes;
            if !more {
                return;
            }
            if left == 0 || load.parts.len() >= options.batch {
                return self.push(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Direction;
    use super::super::options::Priority;
    use super::*;
    use crate::backend::CopyRange;
    use crate::error::DeviceError;

    const UP: Route = Route { direction: Direction::Up, direct: false };
    const DOWN: Route = Route { direction: Direction::Down, direct: false };

    fn job(route: Route, class: Priority, number: u64, sizes: &[u64]) -> Arc<Job> {
        let mut at = number << 32;
        let ranges = sizes.iter().map(|&bytes| {
            at += bytes;
            CopyRange { to: at - bytes, from: at - bytes, bytes }
        });
        Arc::new(Job::new(route, class, [None, None], number, Arc::default()).with(ranges.collect(), None))
    }

    /// The next load, as (number of the job, bytes) for each part.
    fn next(queue: &mut JobQueue, options: &TransferOptions, room: u64) -> Vec<(u64, u64)> {
        let found = queue.load(options, Instant::now(), |_| room);
        let parts = found.load.map_or(Vec::new(), |load| load.parts);
        for part in &parts {
            part.job.settled(part.range.bytes).act();
        }
        parts.iter().map(|part| (part.job.number, part.range.bytes)).collect()
    }

    #[test]
    fn small_jobs_share_a_piece_and_unlike_ones_do_not() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions { batch: 3, ..TransferOptions::default() });
        for (number, route) in [(0, UP), (1, UP), (2, UP), (3, UP), (4, DOWN), (5, UP)] {
            queue.push(job(route, Priority::Normal, number, &[10]));
        }
        assert_eq!(next(&mut queue, &options, 100), [(0, 10), (1, 10), (2, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(3, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(4, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(5, 10)]);
        assert_eq!((next(&mut queue, &options, 100), queue.len()), (vec![], 0));
    }

    #[test]
    fn large_jobs_take_turns_and_every_byte_goes_once() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions::default());
        let jobs = [job(UP, Priority::Normal, 0, &[250]), job(UP, Priority::Normal, 1, &[30, 90])];
        jobs.iter().for_each(|job| queue.push(Arc::clone(job)));
        let loads: Vec<_> =
            std::iter::from_fn(|| Some(next(&mut queue, &options, 100)).filter(|load| !load.is_empty())).collect();
        assert_eq!(loads.concat().iter().filter(|(number, _)| *number == 1).map(|(_, bytes)| bytes).sum::<u64>(), 120);
        assert_eq!(loads[0], [(0, 100)]);
        assert_eq!(loads[1][0], (1, 30), "the other's turn");
        for (job, bytes) in jobs.iter().zip([250, 120]) {
            assert_eq!(job.wait().result.expect("it is whole").bytes, bytes);
        }
    }

    #[test]
    fn a_lower_class_waits_but_not_for_ever() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions { patience: 3, ..TransferOptions::default() });
        queue.push(job(UP, Priority::Low, 2, &[20]));
        queue.push(job(UP, Priority::Normal, 1, &[20]));
        queue.push(job(UP, Priority::High, 0, &[200]));
        let order: Vec<u64> = (0..14).flat_map(|_| next(&mut queue, &options, 10)).map(|(number, _)| number).collect();
        assert_eq!(&order[..3], [0, 0, 0]);
        let first = |class| order.iter().position(|&number| number == class).expect("it is served");
        assert!(first(2) <= 4 && first(1) <= 4, "{order:?}");
    }

    #[test]
    fn a_job_that_must_go_alone_does() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions::default());
        let jobs: Vec<_> = (0..3).map(|number| job(UP, Priority::Normal, number, &[10])).collect();
        jobs.iter().for_each(|job| queue.push(Arc::clone(job)));
        let load = queue.load(&options, Instant::now(), |_| 100).load.expect("three parts");
        for part in load.parts {
            assert!(part.job.again_alone((part.range, 0)), "the queue has it no more");
            queue.push(part.job);
        }
        assert_eq!(next(&mut queue, &options, 100), [(0, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(1, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(2, 10)]);
    }

    #[test]
    fn what_waits_for_its_time_is_not_served_before() {
        let (mut queue, options, now) = (JobQueue::default(), TransferOptions::default(), Instant::now());
        queue.push(job(UP, Priority::Normal, 0, &[10]));
        let part = queue.load(&options, now, |_| 100).load.expect("a part").parts.remove(0);
        let hour = std::time::Duration::from_secs(3600);
        let delay = |refused| (refused < 3).then_some(hour);
        let (queued, deferred) = part.job.again((part.range, part.refused), &DeviceError::Cancelled, delay);
        deferred.act();
        assert!(queued);
        queue.push(Arc::clone(&part.job));
        assert!(queue.load(&options, now, |_| 100).load.is_none());
        let soon = queue.next_time().expect("it waits");
        assert_eq!(queue.len(), 1);
        let part = queue.load(&options, soon, |_| 100).load.expect("its time has come").parts.remove(0);
        for refused in 1..3 {
            let (queued, deferred) = part.job.again((part.range, refused), &DeviceError::Cancelled, delay);
            deferred.act();
            assert_eq!(queued, refused < 2);
            assert_eq!(matches!(part.job.take(10, soon + 2 * hour), JobStep::Some(_, 2, _)), refused < 2);
        }
        assert_eq!(part.job.wait().result, Err(DeviceError::Cancelled), "refused three times");
    }

    #[test]
    fn what_is_refused_a_second_time_goes_alone() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions::default());
        queue.push(job(UP, Priority::Normal, 0, &[10]));
        for refused in 0..2 {
            queue.push(job(UP, Priority::Normal, 7, &[10]));
            let mut parts = queue.load(&options, Instant::now(), |_| 100).load.expect("two parts").parts;
            assert_eq!(parts.len(), 2, "refused {refused} times");
            let part = parts.remove(0);
            let (queued, deferred) =
                part.job.again((part.range, refused), &DeviceError::Cancelled, |_| Some(std::time::Duration::ZERO));
            deferred.act();
            assert!(queued);
            queue.push(part.job);
        }
        queue.push(job(UP, Priority::Normal, 8, &[10]));
        assert_eq!(next(&mut queue, &options, 100), [(0, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(8, 10)]);
    }

    #[test]
    fn jobs_that_were_given_up_are_passed_over() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions::default());
        let jobs: Vec<_> = (0..3).map(|number| job(UP, Priority::Normal, number, &[10])).collect();
        jobs.iter().for_each(|job| queue.push(Arc::clone(job)));
        jobs[0].cancel();
        jobs[1].let_go();
        assert_eq!(next(&mut queue, &options, 100), [(2, 10)]);
        let end = jobs[0].wait();
        assert!(end.result == Err(DeviceError::Cancelled) && !end.touched);
    }

    #[test]
    fn a_job_that_goes_alone_joins_no_other_and_goes_as_a_whole() {
        let (mut queue, options) = (JobQueue::default(), TransferOptions::default());
        let alone = job(UP, Priority::Normal, 0, &[10, 10, 10]);
        let part = match alone.take(10, Instant::now()) {
            JobStep::Some(range, refused, true) => (range, refused),
            _ => panic!("there are three"),
        };
        assert!(!alone.again_alone(part), "the queue has it still");
        queue.push(job(UP, Priority::Normal, 1, &[10]));
        queue.push(alone);
        queue.push(job(UP, Priority::Normal, 2, &[10]));
        assert_eq!(next(&mut queue, &options, 100), [(1, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(0, 10), (0, 10), (0, 10)]);
        assert_eq!(next(&mut queue, &options, 100), [(2, 10)]);
    }
}
