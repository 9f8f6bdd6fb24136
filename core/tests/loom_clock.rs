//! The host's purge clock under loom, from its own file: threads that free beside the one that ticks.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_clock
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: clock_note_unfenced
// seeded-env: clock_take_unfenced
// seeded-env: clock_begin_relaxed
// seeded-env: clock_end_relaxed
// seeded-env: clock_set_silent
#![cfg(loom)]

#[path = "../../adapters/host/src/clock.rs"]
#[allow(dead_code, reason = "each story needs some of it")]
mod clock;
mod explore;

use clock::{Clock, NEVER};
use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::sync::{AtomicUsize, Ordering, spin_hint};

/// A clock, a word of slices that became free, and what only the tick touches.
struct World {
    clock: Clock,
    free: AtomicUsize,
    old: UnsafeCell<usize>,
}

impl World {
    /// A clock whose deadline is 1.
    fn new() -> Arc<Self> {
        let world = Self { clock: Clock::new(), free: AtomicUsize::new(0), old: UnsafeCell::new(0) };
        world.clock.set(1);
        Arc::new(world)
    }

    /// Frees a slice.
    fn free(&self, slice: usize) {
        self.free.fetch_or(slice, Ordering::Relaxed);
        if self.clock.note() {
            self.clock.set(2);
        }
    }

    /// Takes the free slices and sets the deadline, as the host's tick does; returns false if another thread ticks.
    fn tick(&self) -> bool {
        if !self.clock.begin() {
            return false;
        }
        self.clock.take();
        let found = if self.free.load(Ordering::Relaxed) == 0 { 0 } else { self.free.swap(0, Ordering::Relaxed) };
        self.old.with_mut(|_| ());
        if found != 0 {
            self.clock.set(3);
        }
        self.clock.end();
        true
    }
}

#[test]
fn what_is_freed_beside_a_tick_has_a_deadline_after_it() {
    explore(|| {
        let world = World::new();
        let other = world.clone();
        let freeing = thread::spawn(move || other.free(1));
        assert!(world.tick(), "nobody else ticks");
        freeing.join().expect("no panic");
        assert_ne!(world.clock.deadline(), NEVER, "a slice is free, and no tick will come");
    });
}

#[test]
fn one_thread_ticks_at_a_time_and_sees_what_the_last_one_did() {
    explore(|| {
        let world = World::new();
        let other = world.clone();
        let ticking = thread::spawn(move || other.tick());
        // As before a fork, where nothing is taken: what the last tick did is seen all the same.
        if world.clock.begin() {
            world.old.with_mut(|_| ());
            world.clock.end();
        }
        ticking.join().expect("no panic");
    });
}

#[test]
fn a_thread_that_sleeps_hears_of_each_deadline() {
    explore(|| {
        let world = World::new();
        world.free(1);
        let other = world.clone();
        let sleeping = thread::spawn(move || {
            let (bell, seen) = other.clock.bell();
            if other.clock.deadline() == NEVER {
                // As `os::wait` does: asleep while the word is what it was. Loom ends a story that sleeps for ever.
                while bell.load(Ordering::Acquire) == seen {
                    spin_hint();
                }
                assert_ne!(other.clock.deadline(), NEVER, "the bell rang for a deadline");
            }
        });
        assert!(world.tick(), "nobody else ticks");
        sleeping.join().expect("no panic");
    });
}
