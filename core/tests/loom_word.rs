//! The lock of the host, from its own file, under loom: a thread's cache that another thread adopts, and threads that
//! sleep.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_word
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: word_lock_relaxed
// seeded-env: word_unlock_relaxed
// seeded-env: word_sleeper_forgets
#![cfg(loom)]

mod explore;
#[path = "../../adapters/host/src/futex.rs"]
#[allow(dead_code, reason = "each story needs some of it")]
mod futex;

use explore::explore;
use futex::Futex;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use terrace_core::sync::{AtomicU32, Ordering};

/// A lock, the system's queue of threads that sleep on its word, and a cache that waits for a thread.
struct World {
    futex: Futex,
    queue: (Mutex<()>, Condvar),
    /// Whether the cache is spare: read and written under the lock, and atomic only so that no `unsafe` is needed here.
    spare: AtomicU32,
    /// The contents of the cache, which its thread accesses without the lock.
    cache: UnsafeCell<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            futex: Futex::new(),
            queue: (Mutex::new(()), Condvar::new()),
            spare: AtomicU32::new(0),
            cache: UnsafeCell::new(0),
        })
    }

    /// Compares the word and goes to sleep atomically, as a futex does.
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let queue = self.queue.0.lock().expect("no panic");
        if word.load(Ordering::Relaxed) == seen {
            drop(self.queue.1.wait(queue));
        }
    }

    fn locked<T>(&self, call: impl FnOnce() -> T) -> T {
        if !self.futex.try_lock() {
            self.futex.lock(|word, seen| self.sleep(word, seen));
        }
        let result = call();
        if self.futex.unlock().is_some() {
            let _queue = self.queue.0.lock().expect("no panic");
            self.queue.1.notify_one();
        }
        result
    }

    /// Ends the cache's thread.
    fn leave(&self) {
        self.cache.with_mut(|_| ());
        self.locked(|| self.spare.store(1, Ordering::Relaxed));
    }

    /// Begins a thread, which takes the cache if that is spare, and uses it.
    fn adopt(&self) -> bool {
        let taken = self.locked(|| self.spare.swap(0, Ordering::Relaxed) == 1);
        if taken {
            self.cache.with_mut(|_| ());
        }
        taken
    }
}

#[test]
fn a_cache_is_taken_over_by_one_thread_with_all_that_is_in_it() {
    explore(|| {
        let world = World::new();
        let other = world.clone();
        let ending = thread::spawn(move || other.leave());
        let here = world.adopt();
        ending.join().expect("no panic");
        assert!(here != world.adopt(), "it was left once");
    });
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    // Three threads, at most two preemptions: the bug needs two sleeping threads, and no more.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let world = World::new();
        let others = [0; 2].map(|_| {
            let other = world.clone();
            thread::spawn(move || other.locked(|| other.cache.with_mut(|_| ())))
        });
        world.locked(|| world.cache.with_mut(|_| ()));
        others.into_iter().for_each(|other| other.join().expect("no panic"));
    });
}
