//! What a pool of objects gives and takes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_pool::{ObjectError, ObjectPool};

/// An object that counts itself while it exists.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU32>);

impl Counted {
    pub fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A pool of objects that count themselves, and their number.
pub fn counted(most: u32) -> (ObjectPool<Counted>, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let made = Arc::clone(&count);
    (ObjectPool::builder(move || Counted::new(&made)).most(most).build().unwrap(), count)
}

/// A factory that fails with this error while the flag is set.
pub fn failing(
    error: &'static str,
) -> (impl Fn() -> Result<u32, &'static str> + Send + Sync + 'static, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    (move || if failing.load(Ordering::SeqCst) { Err(error) } else { Ok(7) }, fails)
}

fn existing(count: &Arc<AtomicU32>) -> u32 {
    count.load(Ordering::SeqCst)
}

#[test]
fn an_object_comes_back_reset_and_is_used_again() {
    let pool = ObjectPool::builder(Vec::<u8>::new).reset(|bytes| bytes.clear()).build().unwrap();
    let mut bytes = pool.try_get().unwrap();
    bytes.extend_from_slice(&[1, 2, 3]);
    let room = bytes.as_ptr();
    drop(bytes);
    let bytes = pool.try_get().unwrap();
    assert!(bytes.is_empty() && bytes.as_ptr() == room, "the same object, cleared");
    let stats = pool.stats();
    assert_eq!((stats.made, stats.front_hits, stats.in_use()), (1, 1, 1));
}

#[test]
fn no_more_than_most_exist() {
    let (pool, count) = counted(3);
    let out: Vec<_> = (0..3).map(|_| pool.try_get().unwrap()).collect();
    assert!(matches!(pool.try_get(), Err(ObjectError::Exhausted { most: 3 })));
    assert_eq!((existing(&count), pool.stats().exhausted), (3, 1));
    drop(out);
    assert_eq!((pool.stats().idle, existing(&count)), (3, 3));
    assert!(pool.try_get().is_ok());
}

#[test]
fn idle_objects_of_other_threads_are_taken_before_a_get_is_refused() {
    let (pool, count) = counted(2);
    std::thread::scope(|threads| {
        let returned = || drop((pool.try_get().unwrap(), pool.try_get().unwrap()));
        threads.spawn(returned).join().unwrap();
        // This thread has a front too, so that the two lie in another's.
        let pair = threads.spawn(|| (pool.try_get().unwrap(), pool.try_get().unwrap())).join().unwrap();
        assert_eq!(pool.stats().steals + pool.stats().front_hits, 2);
        drop(pair);
    });
    assert_eq!(existing(&count), 2);
}

#[test]
fn a_guard_returns_its_object_from_any_thread() {
    let (pool, count) = counted(1);
    let object = pool.try_get_owned().unwrap();
    std::thread::spawn(move || drop(object)).join().unwrap();
    assert!(pool.try_get().is_ok());
    assert_eq!(existing(&count), 1);
}

#[test]
fn objects_leave_and_enter_the_pool() {
    let (pool, count) = counted(1);
    let mine = pool.try_get().unwrap().into_inner();
    let second = pool.try_get().expect("the first is the pool's no more");
    assert_eq!(existing(&count), 2);
    let mine = pool.put(mine).expect_err("one exists");
    second.discard();
    pool.put(mine).expect("none exists");
    assert_eq!((pool.stats().idle, pool.stats().detached, existing(&count)), (1, 2, 1));
    assert!(pool.try_get().is_ok());
    assert_eq!(pool.stats().made, 2);
}

#[test]
fn a_closed_pool_drops_what_is_idle_now_and_what_is_out_when_it_comes_back() {
    let (pool, count) = counted(3);
    let out = pool.try_get_owned().unwrap();
    drop((pool.try_get().unwrap(), pool.try_get().unwrap()));
    pool.close();
    assert_eq!(existing(&count), 1);
    assert!(matches!(pool.try_get(), Err(ObjectError::Closed)));
    assert!(pool.put(Counted::new(&count)).is_err());
    drop(out);
    assert_eq!((existing(&count), pool.stats().existing), (0, 0));
}

#[test]
fn guards_outlive_the_handles_of_their_pool() {
    let (pool, count) = counted(4);
    let out: Vec<_> = (0..2).map(|_| pool.try_get_owned().unwrap()).collect();
    drop(pool.try_get().unwrap());
    let clone = pool.clone();
    drop(pool);
    assert!(clone.try_get().is_ok(), "a handle is left");
    drop(clone);
    assert_eq!(existing(&count), 2);
    drop(out);
    assert_eq!(existing(&count), 0);
}

#[test]
fn a_forgotten_guard_leaves_its_object_to_the_end_of_the_pool() {
    let (pool, count) = counted(1);
    std::mem::forget(pool.try_get().unwrap());
    assert!(matches!(pool.try_get(), Err(ObjectError::Exhausted { .. })));
    drop(pool);
    assert_eq!(existing(&count), 0);
}

#[test]
fn every_get_is_counted_once() {
    let (pool, _) = counted(8);
    for depth in [1, 3, 8, 2, 8] {
        let out: Vec<_> = (0..depth).map(|_| pool.try_get().unwrap()).collect();
        drop(out);
    }
    let stats = pool.stats();
    assert_eq!(stats.front_hits + stats.shared_hits + stats.steals + stats.made, 22);
    assert_eq!((stats.made, stats.idle, stats.in_use(), stats.most), (8, 8, 0, 8));
    assert!((stats.hit_rate() - 14.0 / 22.0).abs() < 1e-9);
}

#[test]
fn a_pool_without_fronts_shares_all_idle_objects() {
    let pool = ObjectPool::builder(|| 0).most(2).front(0).build().unwrap();
    drop(pool.try_get().unwrap());
    drop(pool.try_get().unwrap());
    let stats = pool.stats();
    assert_eq!((stats.front_hits, stats.shared_hits, stats.made), (0, 1, 1));
}

#[test]
fn a_thread_keeps_no_more_to_itself_than_front_says() {
    let pool = ObjectPool::builder(|| 0).front(2).build().unwrap();
    let out: Vec<_> = (0..5).map(|_| pool.try_get().unwrap()).collect();
    drop(out);
    let out: Vec<_> = (0..5).map(|_| pool.try_get().unwrap()).collect();
    let stats = pool.stats();
    assert_eq!((stats.front_hits, stats.shared_hits, stats.made), (2, 3, 5));
    drop(out);
}
