//! The exchange under loom: all interleavings, and all stale values that the memory model permits.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_exchange
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: exchange_give_relaxed
// seeded-env: exchange_take_relaxed
#![cfg(loom)]

mod explore;

use explore::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use terrace_core::Exchange;
use terrace_core::sync::{AtomicU32, AtomicUsize};

/// Places and items, and a payload beside each item: the memory of a freed block.
struct World {
    places: Vec<AtomicU32>,
    items: Vec<AtomicUsize>,
    payload: Vec<UnsafeCell<u32>>,
}

impl World {
    /// `places` places for batches of two of the items 1, 2, ...
    fn new(places: usize, items: usize) -> Arc<Self> {
        Arc::new(Self {
            places: (0..places).map(|_| AtomicU32::new(0)).collect(),
            items: (0..places * 2).map(|_| AtomicUsize::new(0)).collect(),
            payload: (0..=items).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn exchange(&self) -> Exchange<'_> {
        Exchange::new(&self.places, &self.items)
    }

    /// Writes the payload of items; loom reports it when a write races with any other access.
    fn write(&self, items: &[usize]) {
        items.iter().for_each(|&item| self.payload[item].with_mut(|_| ()));
    }

    /// Takes a batch and writes its payloads, as the new holder of these blocks would.
    fn take(&self) -> Vec<usize> {
        let mut out = [0; 2];
        let count = self.exchange().take(&mut out).unwrap_or(0);
        self.write(&out[..count]);
        out[..count].to_vec()
    }
}

#[test]
fn a_batch_is_taken_once_with_all_that_was_done_before() {
    explore(|| {
        let world = World::new(1, 2);
        let giver = world.clone();
        let giver = thread::spawn(move || {
            giver.write(&[1, 2]);
            giver.exchange().give(&[1, 2])
        });
        let other = world.clone();
        let taker = thread::spawn(move || other.take());
        let mut taken = world.take();
        assert!(giver.join().expect("no panic"), "nobody else gave anything");
        taken.extend(taker.join().expect("no panic"));
        taken.extend(world.take());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        world.exchange().check().expect("at rest");
    });
}

#[test]
fn two_givers_and_one_place_lose_nothing() {
    explore(|| {
        let world = World::new(1, 4);
        let other = world.clone();
        let giver = thread::spawn(move || {
            other.write(&[3, 4]);
            other.exchange().give(&[3, 4])
        });
        world.write(&[1, 2]);
        let mine = world.exchange().give(&[1, 2]);
        let theirs = giver.join().expect("no panic");
        assert!(mine || theirs, "the place was empty");
        let mut taken = world.take();
        taken.extend(world.take());
        assert_eq!(taken.len(), 2);
        assert!(taken == [1, 2] && mine || taken == [3, 4] && theirs);
    });
}

#[test]
fn what_stays_behind_a_short_take_is_taken_later() {
    explore(|| {
        let world = World::new(1, 2);
        world.write(&[1, 2]);
        assert!(world.exchange().give(&[1, 2]));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    let mut out = [0; 1];
                    let count = world.exchange().take(&mut out).unwrap_or(0);
                    world.write(&out[..count]);
                    out[..count].to_vec()
                })
            })
            .collect();
        let mut taken: Vec<usize> = takers.into_iter().flat_map(|taker| taker.join().expect("no panic")).collect();
        taken.extend(world.take());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

#[test]
fn closing_takes_everything_and_lets_nothing_in() {
    explore(|| {
        let world = World::new(1, 2);
        let other = world.clone();
        let giver = thread::spawn(move || {
            other.write(&[1, 2]);
            other.exchange().give(&[1, 2])
        });
        let mut closed = Vec::new();
        world.exchange().close(|item| closed.push(item));
        world.write(&closed);
        let given = giver.join().expect("no panic");
        assert_eq!(closed.len(), if given { 2 } else { 0 });
        assert!(world.take().is_empty() && !world.exchange().give(&[1]));
        world.exchange().open();
        assert!(world.exchange().give(&[1]));
    });
}
