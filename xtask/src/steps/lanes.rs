//! Jobs side by side: a core is busy while another job waits, links or sleeps.
//!
//! Promises upward: every job is done, begun in the order given; results stand in the order of the jobs.
//! Asks from below: threads.

use std::sync::{Mutex, PoisonError};

/// Does all jobs, as many at a time as there are lanes. Cargo lets one of them at a time build in a folder.
pub fn side_by_side<J: Send, R: Send>(lanes: usize, jobs: Vec<J>, work: impl Fn(J) -> R + Sync) -> Vec<R> {
    let (queue, done) = (Mutex::new(jobs.into_iter().enumerate()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || {
        while let Some((at, job)) = next() {
            let result = work(job);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| (0..lanes).for_each(|_| _ = scope.spawn(lane)));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn jobs_run_at_once_and_results_keep_their_order() {
        let both = Barrier::new(2);
        let done = side_by_side(2, vec![1, 2, 3, 4], |job| {
            both.wait();
            job * 10
        });
        assert_eq!(done, [10, 20, 30, 40]);
    }
}
