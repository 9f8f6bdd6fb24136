//! Tests of waiting: by threads, by futures that the tests poll themselves, and by futures dropped at each point.

use super::*;
use crate::shared::tests::blocks_of_64;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_core::pool::{Buckets, SizeClasses};

type Pool = WaitingPool<Buckets<'static, 1>>;

/// A waker that counts how often it was woken.
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that the test polls itself, with the count of its wakes.
struct Task {
    future: Allocation<Buckets<'static, 1>>,
    count: Arc<Count>,
}

impl Task {
    fn new(pool: &Pool) -> Self {
        Self { future: pool.allocate(Request::new(64)), count: Arc::new(Count(AtomicUsize::new(0))) }
    }

    fn poll(&mut self) -> Option<Result<OwnedBlock<Pool>, AllocError>> {
        let waker = Waker::from(self.count.clone());
        match Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn woken(&self) -> usize {
        self.count.0.load(Ordering::SeqCst)
    }
}

fn ready(task: &mut Task) -> OwnedBlock<Pool> {
    task.poll().expect("ready").expect("served")
}

fn full_pool() -> (Pool, OwnedBlock<Pool>) {
    let pool = WaitingPool::new(blocks_of_64(1));
    let held = pool.try_allocate(Request::new(64)).expect("room");
    (pool, held)
}

#[test]
fn futures_are_served_in_the_order_of_their_first_poll() {
    let (pool, held) = full_pool();
    let mut tasks: Vec<_> = (0..3).map(|_| Task::new(&pool)).collect();
    for at in [1, 0, 2] {
        assert!(tasks[at].poll().is_none());
    }
    let mut held = Some(held);
    for at in [1, 0, 2] {
        drop(held.take());
        let woken: Vec<_> = tasks.iter().map(Task::woken).collect();
        assert_eq!(
            woken.iter().sum::<usize>(),
            [1, 0, 2].iter().position(|other| *other == at).expect("one of them") + 1
        );
        assert_eq!(woken[at], 1);
        held = Some(ready(&mut tasks[at]));
    }
    drop(held);
    assert_eq!((pool.waiting(), pool.stats().live_blocks), (0, 0));
}

#[test]
fn nobody_passes_the_queue() {
    let (pool, held) = full_pool();
    let mut first = Task::new(&pool);
    assert!(first.poll().is_none());
    drop(held);
    // The block was granted to the first waiter, which has not picked it up yet.
    assert!(pool.try_allocate(Request::new(64)).is_err());
    let mut late = Task::new(&pool);
    assert!(late.poll().is_none());
    drop(ready(&mut first));
    drop(ready(&mut late));
}

#[test]
fn a_future_may_be_dropped_at_each_point() {
    // Dropped before it is polled, while it waits, or after the grant: each time the next waiter gets the block.
    for polls_before in [false, true] {
        for grant_before in [false, true] {
            let (pool, held) = full_pool();
            let (mut dropped, mut next) = (Task::new(&pool), Task::new(&pool));
            if polls_before {
                assert!(dropped.poll().is_none());
            }
            assert!(next.poll().is_none());
            let mut held = Some(held);
            if grant_before {
                drop(held.take());
            }
            drop(dropped);
            drop(held);
            assert_eq!(next.woken(), 1, "{polls_before} {grant_before}");
            drop(ready(&mut next));
            let queue = pool.lock();
            assert_eq!((queue.granted(), queue.waiting(), queue.allocator.stats().live_blocks), (0, 0, 0));
        }
    }
}

#[test]
fn a_future_polled_with_another_waker_wakes_that_one() {
    let (pool, held) = full_pool();
    let mut task = Task::new(&pool);
    assert!(task.poll().is_none());
    let old = std::mem::replace(&mut task.count, Arc::new(Count(AtomicUsize::new(0))));
    assert!(task.poll().is_none());
    drop(held);
    assert_eq!((old.0.load(Ordering::SeqCst), task.woken()), (0, 1));
    drop(ready(&mut task));
}

/// A pool with buckets of 64 and of 128 bytes, limited to 128 bytes in all.
fn two_sizes() -> WaitingPool<terrace_core::layer::Limit<Buckets<'static, 2>>> {
    let words: Vec<_> = (0..Buckets::words(&[4, 4])).map(|_| terrace_core::sync::AtomicUsize::new(0)).collect();
    let buckets = Buckets::new(SizeClasses::new(64, 1).expect("valid"), [4, 4], 0, words.leak()).expect("enough words");
    WaitingPool::new(terrace_core::layer::Limit::new(buckets, 128))
}

#[test]
fn a_large_request_is_not_starved_by_small_ones() {
    let pool = two_sizes();
    let small: Vec<_> = (0..2).map(|_| pool.try_allocate(Request::new(64)).expect("room")).collect();
    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
    let mut context = Context::from_waker(&waker);
    let mut large = pool.allocate(Request::new(128));
    assert!(Pin::new(&mut large).poll(&mut context).is_pending());
    let mut later = pool.allocate(Request::new(64));
    let mut small = small.into_iter();
    drop(small.next());
    // 64 bytes are free, and are kept for the large request.
    assert!(Pin::new(&mut later).poll(&mut context).is_pending());
    assert!(pool.try_allocate(Request::new(64)).is_err());
    drop(small.next());
    let Poll::Ready(Ok(block)) = Pin::new(&mut large).poll(&mut context) else { panic!("the large one is first") };
    assert!(Pin::new(&mut later).poll(&mut context).is_pending());
    drop(block);
    assert!(Pin::new(&mut later).poll(&mut context).is_ready());
}

#[test]
fn a_large_request_that_gives_up_lets_the_small_ones_behind_it_through() {
    let pool = two_sizes();
    let _small = pool.try_allocate(Request::new(64)).expect("room");
    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
    let mut context = Context::from_waker(&waker);
    let mut large = pool.allocate(Request::new(128));
    let mut later = pool.allocate(Request::new(64));
    assert!(Pin::new(&mut large).poll(&mut context).is_pending());
    assert!(Pin::new(&mut later).poll(&mut context).is_pending());
    drop(large);
    assert!(Pin::new(&mut later).poll(&mut context).is_ready());
}

#[test]
fn what_can_never_be_had_is_told_at_once() {
    let (pool, held) = full_pool();
    let cause = |request| pool.allocate_timeout(request, Duration::from_secs(600)).err().map(|error| error.cause);
    assert_eq!(cause(Request::new(65)), Some(Cause::TooLarge));
    assert_eq!(cause(Request::new(0)), Some(Cause::BadRequest));
    drop(held);
    let limited = WaitingPool::new(terrace_core::layer::Limit::new(blocks_of_64(1), 10));
    let error =
        limited.allocate_timeout(Request::new(64), Duration::from_secs(600)).expect_err("above the cap for ever");
    assert_eq!(error.cause, Cause::OverLimit);
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_leaves_no_trace() {
    let (pool, held) = full_pool();
    let error = pool.allocate_timeout(Request::new(64), Duration::from_millis(5)).expect_err("held all the time");
    assert_eq!((error.cause, pool.waiting()), (Cause::OutOfMemory, 0));
    drop(held);
    assert!(pool.try_allocate(Request::new(64)).is_ok());
}

#[test]
fn threads_wait_give_up_and_are_all_served_in_the_end() {
    let pool = WaitingPool::new(blocks_of_64(2));
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (pool, served) = (pool.clone(), &served);
            scope.spawn(move || {
                for turn in 0..200u64 {
                    // Some requests give up almost at once, racing with their grant; the others wait as long as it
                    // takes.
                    let patience =
                        if (turn + thread) % 3 == 0 { Duration::from_micros(turn) } else { Duration::from_secs(600) };
                    if let Ok(block) = pool.allocate_timeout(Request::new(64), patience) {
                        served.fetch_add(1, Ordering::SeqCst);
                        drop(block);
                    } else {
                        assert!(patience < Duration::from_secs(1), "the patient are served");
                    }
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, pool.waiting()), (0, 0));
    assert_eq!(pool.lock().granted(), 0, "no grant is lost");
    assert!(served.into_inner() >= 6 * 200 * 2 / 3 - 6 && stats.allocations == stats.frees);
}
