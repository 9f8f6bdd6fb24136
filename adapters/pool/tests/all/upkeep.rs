//! Bounds that maintenance keeps: eviction, retention, objects made ahead.

use crate::objects::failing;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use terrace_pool::{ObjectError, ObjectPool, ObjectPoolBuilder};

/// A builder of a pool of numbers: 0, 1, 2, ...
fn numbered() -> ObjectPoolBuilder<u32> {
    let next = AtomicU32::new(0);
    ObjectPool::builder(move || next.fetch_add(1, Ordering::SeqCst))
}

/// The numbers that are idle, in order.
fn idle(pool: &ObjectPool<u32>) -> Vec<u32> {
    let out: Vec<_> = (0..pool.stats().idle).map(|_| pool.try_get().unwrap()).collect();
    let mut numbers: Vec<u32> = out.iter().map(|object| **object).collect();
    numbers.sort_unstable();
    numbers
}

/// Gets `count` objects and returns them in the order of `order`.
fn use_in_order(pool: &ObjectPool<u32>, count: usize, order: &[usize]) {
    let mut out: Vec<_> = (0..count).map(|_| Some(pool.try_get().unwrap())).collect();
    order.iter().for_each(|&at| drop(out[at].take()));
}

#[test]
fn the_objects_returned_longest_ago_are_evicted_first() {
    for front in [0, 2, 8] {
        let pool = numbered().most(8).front(front).build().unwrap();
        use_in_order(&pool, 8, &[3, 6, 0, 7, 1, 5, 2, 4]);
        assert_eq!(pool.trim_to(3), 5, "front {front}");
        assert_eq!((idle(&pool), pool.stats().evicted), (vec![2, 4, 5], 5), "front {front}");
    }
}

#[test]
fn eviction_orders_the_objects_of_several_threads_by_their_last_maintenance() {
    let pool = numbered().most(4).build().unwrap();
    let mine = [pool.try_get().unwrap(), pool.try_get().unwrap()];
    // The other thread returns objects often, so that it has counted further than this one.
    let busy = || (0..100).for_each(|_| use_in_order(&pool, 2, &[0, 1]));
    std::thread::scope(|threads| threads.spawn(busy).join().unwrap());
    pool.maintain();
    let numbers = mine.each_ref().map(|object| **object);
    drop(mine);
    assert_eq!((pool.trim_to(2), idle(&pool)), (2, numbers.to_vec()));
}

#[test]
fn maintenance_leaves_keep_idle_objects_and_least_objects() {
    let pool = numbered().least(2).most(8).keep(3).build().unwrap();
    assert_eq!(pool.stats().existing, 2, "made ahead");
    use_in_order(&pool, 8, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let done = pool.maintain();
    assert_eq!((done.evicted, done.expired, done.made, pool.stats().idle), (5, 0, 0, 3));
    assert_eq!(pool.trim_to(0), 1, "nothing goes below `least`");
    assert_eq!(pool.stats().existing, 2);
}

#[test]
fn maintenance_makes_what_is_missing() {
    let pool = numbered().least(3).most(4).build().unwrap();
    pool.try_get().unwrap().discard();
    pool.try_get().unwrap().discard();
    assert_eq!((pool.stats().existing, pool.maintain().made, pool.stats().existing), (1, 2, 3));
    assert_eq!(pool.maintain().made, 0);
}

#[test]
fn maintenance_tells_why_it_made_less() {
    let (make, fails) = failing("down");
    let pool = ObjectPool::try_builder(make).least(1).build().unwrap();
    pool.try_get().unwrap().discard();
    fails.store(true, Ordering::SeqCst);
    let done = pool.maintain();
    assert!(matches!(done.failure, Some(ObjectError::Factory(_))) && done.made == 0);
    fails.store(false, Ordering::SeqCst);
    assert_eq!(pool.maintain().made, 1);
}

#[test]
fn an_object_expires_when_no_get_took_it_for_the_retention_time() {
    let retention = Duration::from_millis(40);
    let pool = numbered().most(2).idle(retention).build().unwrap();
    use_in_order(&pool, 2, &[0, 1]);
    assert_eq!(pool.maintain().expired, 0, "not idle for long");
    std::thread::sleep(retention + Duration::from_millis(5));
    // One of the two is used again, and stays.
    let used = *pool.try_get().unwrap();
    let done = pool.maintain();
    assert_eq!((done.expired, done.evicted), (1, 0));
    assert_eq!((idle(&pool), pool.stats().expired), (vec![used], 1));
}

#[test]
fn expiry_leaves_least_objects() {
    let pool = numbered().least(2).most(8).idle(Duration::ZERO).build().unwrap();
    use_in_order(&pool, 8, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((pool.maintain().expired, pool.stats().existing), (6, 2));
}

#[test]
fn a_thread_of_the_pool_maintains_it_until_the_pool_ends() {
    let pool = numbered().most(4).idle(Duration::from_millis(2)).interval(Duration::from_millis(1)).build().unwrap();
    use_in_order(&pool, 4, &[0, 1, 2, 3]);
    let end = Instant::now() + Duration::from_secs(60);
    while pool.stats().existing != 0 {
        assert!(Instant::now() < end, "four objects stay idle: {:?}", pool.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Dropping the last handle waits for the thread.
    drop(pool);
}

#[test]
fn a_factory_may_drop_the_last_handle_of_its_pool() {
    let handle = Arc::new(std::sync::Mutex::new(None::<ObjectPool<u32>>));
    let held = Arc::clone(&handle);
    let make = move || {
        drop(held.lock().unwrap().take());
        1
    };
    let pool = ObjectPool::builder(make).interval(Duration::from_millis(1)).build().unwrap();
    *handle.lock().unwrap() = Some(pool.clone());
    drop(pool.try_get().unwrap());
    assert!(handle.lock().unwrap().is_none());
}
