//! The inbox under loom: all interleavings, and all stale values that the memory model permits.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_inbox
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: inbox_push_relaxed
// seeded-env: inbox_drain_relaxed
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::inbox::{Inbox, PushError};
use terrace_core::sync::AtomicU32;
use terrace_core::{Owner, sync};

/// Links of an inbox, and a payload beside each index: the memory of a freed block.
struct World {
    links: Vec<AtomicU32>,
    payload: Vec<UnsafeCell<u32>>,
}

impl World {
    fn new(indices: u32) -> Arc<Self> {
        let links = (0..Inbox::links(indices)).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { links, payload: (0..indices).map(|_| UnsafeCell::new(0)).collect() })
    }

    fn inbox(&self) -> Inbox<'_> {
        Inbox::new(Owner(0), &self.links)
    }

    /// Writes a payload; loom reports it when the write races with any other access. It tracks the pointer's use
    /// without dereferencing it.
    fn write(&self, index: u32) {
        self.payload[index as usize].with_mut(|_| ());
    }

    /// Reads a payload; loom reports it when a write did not happen before.
    fn read(&self, index: u32) {
        self.payload[index as usize].with(|_| ());
    }
}

#[test]
fn two_threads_free_remotely_and_the_owner_sees_each_once_with_what_they_wrote() {
    explore(|| {
        let world = World::new(2);
        let pushers: Vec<_> = (0..2)
            .map(|index| {
                let world = world.clone();
                thread::spawn(move || {
                    world.write(index);
                    world.inbox().push(index).expect("pushed once");
                })
            })
            .collect();
        let mut seen = [0; 2];
        let mut drain = |world: &World| {
            for index in world.inbox().drain() {
                world.read(index);
                seen[index as usize] += 1;
            }
        };
        drain(&world);
        pushers.into_iter().for_each(|pusher| pusher.join().expect("no panic"));
        drain(&world);
        assert_eq!(seen, [1, 1]);
        world.inbox().check().expect("at rest");
    });
}

#[test]
fn of_two_threads_freeing_one_block_one_is_refused() {
    explore(|| {
        let world = World::new(1);
        let other = world.clone();
        let pusher = thread::spawn(move || other.inbox().push(0));
        let results = [world.inbox().push(0), pusher.join().expect("no panic")];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(results.contains(&Err(PushError::Queued(0))));
        assert_eq!(world.inbox().drain().collect::<Vec<_>>(), [0]);
        world.inbox().check().expect("at rest");
    });
}

#[test]
fn a_block_drained_and_handed_out_again_comes_back_through_the_same_link() {
    explore(|| {
        let world = World::new(1);
        let other = world.clone();
        let pusher = thread::spawn(move || {
            other.write(0);
            other.inbox().push(0).expect("first time");
        });
        while world.inbox().is_empty() {
            sync::spin_hint();
        }
        let mut drained = world.inbox().drain();
        assert_eq!(drained.next(), Some(0));
        world.write(0);
        let again = world.clone();
        let second = thread::spawn(move || again.inbox().push(0).expect("second time"));
        second.join().expect("no panic");
        pusher.join().expect("no panic");
        assert_eq!(drained.next(), None, "the second push is not in the first drain");
        world.inbox().drain().for_each(|index| world.read(index));
        world.inbox().check().expect("at rest");
    });
}

#[test]
fn a_bounded_inbox_never_holds_more_than_its_bound() {
    explore(|| {
        let world = World::new(2);
        let other = world.clone();
        let pusher = thread::spawn(move || other.inbox().bounded(1).push(0));
        let results = [world.inbox().bounded(1).push(1), pusher.join().expect("no panic")];
        assert_eq!(results.iter().filter(|result| **result == Err(PushError::Full)).count(), 1);
        assert_eq!(world.inbox().bounded(1).drain().count(), 1);
        world.inbox().bounded(1).push(0).expect("there is room again");
        world.inbox().bounded(1).check().expect("at rest");
    });
}

#[test]
fn a_drain_dropped_half_way_puts_the_rest_back_beside_a_new_push() {
    explore(|| {
        let world = World::new(3);
        world.inbox().push(0).expect("pushed once");
        world.inbox().push(1).expect("pushed once");
        let other = world.clone();
        let pusher = thread::spawn(move || other.inbox().push(2).expect("pushed once"));
        let first = world.inbox().drain().next().expect("two are queued");
        pusher.join().expect("no panic");
        let mut seen: Vec<_> = world.inbox().drain().chain([first]).collect();
        seen.sort_unstable();
        // When the push came before the half drain, `first` may be 2: all three are seen either way.
        assert_eq!(seen, [0, 1, 2]);
        world.inbox().check().expect("at rest");
    });
}
