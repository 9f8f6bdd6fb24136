//! Calls that wait for an object: in turn, and none for ever.

use crate::objects::counted;
use futures_lite::future::{block_on, poll_once};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use terrace_pool::{ObjectError, ObjectPool};

const LONG: Duration = Duration::from_secs(600);

#[test]
fn the_longest_waiter_is_served_first_and_no_newcomer_passes() {
    let pool = ObjectPool::builder(|| 0).most(1).build().unwrap();
    let only = pool.try_get().unwrap();
    let (mut first, mut second) = (pin!(pool.get()), pin!(pool.get()));
    assert!(block_on(poll_once(first.as_mut())).is_none());
    assert!(block_on(poll_once(second.as_mut())).is_none());
    assert_eq!(pool.stats().waiting, 2);
    drop(only);
    assert!(matches!(pool.try_get(), Err(ObjectError::Exhausted { .. })), "a newcomer passed");
    assert!(block_on(poll_once(second.as_mut())).is_none(), "the second passed the first");
    drop(block_on(first).unwrap());
    assert!(block_on(second).is_ok());
    assert_eq!(pool.stats().waiting, 0);
}

#[test]
fn a_future_that_is_dropped_passes_its_object_on() {
    let (pool, count) = counted(1);
    let only = pool.try_get().unwrap();
    let mut second = pin!(pool.get());
    {
        let mut first = pin!(pool.get());
        assert!(block_on(poll_once(first.as_mut())).is_none());
        assert!(block_on(poll_once(second.as_mut())).is_none());
        drop(only);
        // The object is granted to the first now, which never looks.
    }
    assert!(block_on(second).is_ok());
    assert_eq!((count.load(Ordering::SeqCst), pool.stats().idle), (1, 1));
}

#[test]
fn a_future_polled_once_and_dropped_leaves_the_queue() {
    let (pool, _) = counted(1);
    let only = pool.try_get().unwrap();
    assert!(block_on(poll_once(pool.get())).is_none());
    drop(only);
    assert!(pool.try_get().is_ok());
}

#[test]
fn a_wait_ends_in_time() {
    let (pool, _) = counted(1);
    let only = pool.try_get().unwrap();
    let late = pool.get_timeout(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(late, ObjectError::TimedOut { most: 1, .. }), "{late}");
    drop(only);
    assert!(pool.get_timeout(LONG).is_ok());
}

#[test]
fn a_wait_ends_when_the_pool_is_closed() {
    let (pool, _) = counted(1);
    let only = pool.try_get_owned().unwrap();
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| matches!(pool.get_timeout(LONG), Err(ObjectError::Closed)));
        while pool.stats().waiting == 0 {
            std::thread::yield_now();
        }
        pool.close();
        assert!(waiter.join().unwrap(), "told that the pool is closed");
    });
    drop(only);
}

#[test]
fn waiters_get_the_slots_of_objects_that_left_or_could_not_be_made() {
    let failures = AtomicU32::new(0);
    let make = move || match failures.fetch_add(1, Ordering::SeqCst) {
        1 => Err("the second"),
        other => Ok(other),
    };
    let pool = ObjectPool::try_builder(make).most(1).build().unwrap();
    let only = pool.try_get().unwrap();
    let (mut first, mut second) = (pin!(pool.get()), pin!(pool.get()));
    assert!(block_on(poll_once(first.as_mut())).is_none());
    assert!(block_on(poll_once(second.as_mut())).is_none());
    only.discard();
    assert!(matches!(block_on(first), Err(ObjectError::Factory(_))));
    assert_eq!(*block_on(second).unwrap(), 2);
}

#[test]
fn a_waiter_finds_the_object_that_a_thread_kept_to_itself_before_it_waited() {
    let (pool, _) = counted(1);
    std::thread::scope(|threads| {
        threads.spawn(|| drop(pool.try_get().unwrap())).join().unwrap();
        let waiters: Vec<_> = (0..4).map(|_| threads.spawn(|| drop(pool.get_timeout(LONG).unwrap()))).collect();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn owned_objects_are_waited_for_by_tasks() {
    let (pool, _) = counted(2);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let object = pool.get_owned();
            std::thread::spawn(move || block_on(object).map(drop))
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap().unwrap());
    assert_eq!(pool.stats().in_use(), 0);
}
