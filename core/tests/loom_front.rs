//! The slots that a thread of an object pool keeps to itself, from their own file, under loom: an owner and thieves.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_front
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: front_leave_relaxed
// seeded-env: front_open_relaxed
// seeded-env: front_enter_unfenced
#![cfg(loom)]

mod explore;
#[path = "../../adapters/pool/src/front.rs"]
#[allow(dead_code, reason = "counters are no part of the stories")]
mod front;

/// Both sides as fences, of loom: a `membarrier` is one in every thread.
mod barrier {
    use loom::sync::atomic::{Ordering, fence};

    pub fn light() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy() {
        fence(Ordering::SeqCst);
    }
}

/// What `front` asks for, of loom.
mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub use terrace_core::sync::seeded;
}

use explore::explore;
use front::Front;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use sync::{AtomicU32, Ordering};

/// A front, and the objects of two slots, which loom watches.
struct World {
    front: Front,
    objects: [UnsafeCell<u32>; 2],
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { front: Front::new(), objects: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    /// Writes to an object, as its only holder may.
    fn touch(&self, slot: u32) {
        self.objects[slot as usize].with_mut(|object| {
            // SAFETY: loom reports any other access that is not ordered with this one.
            unsafe { *object += 1 }
        });
    }

    fn steal(&self) -> Option<u32> {
        let closed = self.front.close()?;
        barrier::heavy();
        let mut stolen = None;
        closed.take(|_, slot| {
            let first = stolen.is_none();
            stolen = stolen.or(Some(slot));
            first
        });
        stolen
    }
}

#[test]
fn a_slot_that_is_returned_and_taken_has_one_holder() {
    explore(|| {
        let world = World::new();
        let thief = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let stolen = world.steal();
                stolen.inspect(|&slot| world.touch(slot)).is_some()
            }
        });
        world.touch(0);
        let put = world.front.push(0, 1, 1);
        let own = if put { world.front.pop() } else { Some(0) };
        if let Some(slot) = own {
            world.touch(slot);
        }
        let stolen = thief.join().unwrap();
        assert!(!(stolen && own.is_some()), "the owner and the thief have the slot");
        assert!(stolen || own.is_some() || world.front.len() == 1, "nobody has the slot");
    });
}

#[test]
fn the_owner_sees_what_a_thief_left() {
    explore(|| {
        let world = World::new();
        assert!(world.front.push(0, 1, 2) && world.front.push(1, 2, 2));
        let thief = thread::spawn({
            let world = Arc::clone(&world);
            move || world.steal().inspect(|&slot| world.touch(slot))
        });
        let own = world.front.pop();
        if let Some(slot) = own {
            world.touch(slot);
        }
        let again = world.front.pop();
        let stolen = thief.join().unwrap();
        let mut held: Vec<u32> = own.into_iter().chain(again).chain(stolen).collect();
        held.sort_unstable();
        held.dedup();
        let taken = [own, again, stolen].iter().flatten().count();
        assert_eq!(held.len(), taken, "one slot was taken twice");
        assert_eq!(taken as u32 + world.front.len(), 2, "a slot is gone");
    });
}

#[test]
fn of_two_thieves_one_gets_a_slot() {
    explore(|| {
        let world = World::new();
        assert!(world.front.push(0, 1, 1));
        let steal = || {
            let world = Arc::clone(&world);
            thread::spawn(move || world.steal().inspect(|&slot| world.touch(slot)).is_some())
        };
        let (first, second) = (steal(), steal());
        let stolen = [first.join().unwrap(), second.join().unwrap()];
        assert!(stolen != [true, true], "both have the slot");
        assert!(stolen != [false, false], "the front was closed to neither, and kept its slot");
    });
}

/// As `objects::inner` does it: whoever makes a slot available looks for waiters then, and a waiter looks for slots once it waits.
#[test]
fn a_returned_slot_and_a_waiter_find_each_other() {
    explore(|| {
        let world = World::new();
        let waiting = Arc::new(AtomicU32::new(0));
        let waiter = thread::spawn({
            let (world, waiting) = (Arc::clone(&world), Arc::clone(&waiting));
            move || {
                waiting.store(1, Ordering::Relaxed);
                barrier::heavy();
                world.steal().is_some()
            }
        });
        let put = world.front.push(0, 1, 1);
        barrier::light();
        let served = waiting.load(Ordering::Relaxed) == 1;
        let found = waiter.join().unwrap();
        assert!(!put || served || found, "the waiter sleeps beside a slot");
    });
}
