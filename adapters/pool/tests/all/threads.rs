//! Many threads on one pool: each object has one holder, none is lost, no waiter is left.

use futures_lite::future::{block_on, poll_once};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use terrace_pool::{ObjectError, ObjectPool};

const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };
const THREADS: u64 = if cfg!(miri) { 3 } else { 6 };

/// An object that knows whether it is in use, and counts those that exist.
struct Single {
    used: AtomicBool,
    existing: Arc<AtomicU32>,
}

impl Drop for Single {
    fn drop(&mut self) {
        assert!(!self.used.load(Ordering::SeqCst), "dropped while it is in use");
        self.existing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A pool, how many objects exist, and the most that ever did.
fn pool(most: u32, front: u32) -> (ObjectPool<Single>, Arc<AtomicU32>) {
    let existing = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&existing);
    let make = move || {
        assert!(count.fetch_add(1, Ordering::SeqCst) < most, "more than {most} objects exist");
        Single { used: AtomicBool::new(false), existing: Arc::clone(&count) }
    };
    (ObjectPool::builder(make).most(most).front(front).build().unwrap(), existing)
}

fn hold(object: &Single, random: &mut fastrand::Rng) {
    assert!(!object.used.swap(true, Ordering::SeqCst), "two threads hold one object");
    if random.u8(..) == 0 {
        std::thread::yield_now();
    }
    assert!(object.used.swap(false, Ordering::SeqCst), "two threads held one object");
}

/// One call of a pool, as chance has it.
fn step(pool: &ObjectPool<Single>, random: &mut fastrand::Rng) {
    match random.u8(..100) {
        0..50 => match pool.try_get() {
            Ok(object) => hold(&object, random),
            Err(error) => assert!(matches!(error, ObjectError::Exhausted { .. }), "{error}"),
        },
        50..80 => hold(&pool.get_timeout(Duration::from_secs(600)).unwrap(), random),
        80..88 => {
            let future = pin!(pool.get());
            if let Some(object) = block_on(poll_once(future)) {
                hold(&object.unwrap(), random);
            }
        }
        88..94 => {
            let out: Vec<_> = (0..random.usize(..4)).map_while(|_| pool.try_get().ok()).collect();
            out.iter().for_each(|object| hold(object, random));
        }
        94..97 => match pool.try_get() {
            Ok(object) => object.discard(),
            Err(_) => drop(pool.maintain()),
        },
        _ => drop(pool.trim_to(random.u32(..3))),
    }
}

fn storm(most: u32, front: u32) {
    let (pool, existing) = pool(most, front);
    std::thread::scope(|threads| {
        for seed in 0..THREADS {
            let pool = &pool;
            threads.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                (0..ROUNDS).for_each(|_| step(pool, &mut random));
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.waiting, stats.in_use(), stats.existing), (0, 0, existing.load(Ordering::SeqCst)));
    drop(pool);
    assert_eq!(existing.load(Ordering::SeqCst), 0);
}

#[test]
fn few_objects_and_many_threads() {
    storm(2, 4);
}

#[test]
fn one_object_and_many_threads() {
    storm(1, 1);
}

#[test]
fn as_many_objects_as_threads_want() {
    storm(64, 2);
}

#[test]
fn without_fronts() {
    storm(3, 0);
}

#[test]
fn more_threads_than_fronts_at_first() {
    let (pool, _) = pool(64, 2);
    let barrier = std::sync::Barrier::new(20);
    std::thread::scope(|threads| {
        for _ in 0..20 {
            threads.spawn(|| {
                barrier.wait();
                (0..50).for_each(|_| drop(pool.try_get().unwrap()));
                barrier.wait();
            });
        }
    });
    // Each thread has a front, which keeps the object that it made.
    let stats = pool.stats();
    assert_eq!((stats.made, stats.front_hits, stats.shared_hits, stats.idle), (20, 20 * 49, 0, 20));
}

#[test]
fn a_pool_is_used_while_a_thread_ends() {
    /// Uses a pool when its thread's locals are dropped.
    struct Late(ObjectPool<Single>);
    impl Drop for Late {
        fn drop(&mut self) {
            drop(self.0.try_get().unwrap());
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    let (pool, _) = pool(2, 2);
    for early in [false, true] {
        let pool = pool.clone();
        std::thread::spawn(move || {
            if early {
                drop(pool.try_get().unwrap());
            }
            LATE.set(Some(Late(pool.clone())));
            drop(pool.try_get().unwrap());
        })
        .join()
        .unwrap();
    }
    assert_eq!(pool.stats().in_use(), 0);
}
