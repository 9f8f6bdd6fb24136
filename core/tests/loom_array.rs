//! The host's arrays of free blocks under loom, from their own file: an owner that pops and pushes beside a thread that
//! steals.
//!
//! loom has no model of `membarrier`, which executes a barrier in other threads. Here the owner checks at each step whether
//! a barrier is requested, and executes it: between any two of its steps, as with the kernel.
//!
//! Run:       RUSTFLAGS="--cfg loom" cargo test -p terrace-core --release --target-dir target/loom --test loom_array
//! Must fail: TERRACE_SEEDED_BUG=NAME (the same), for each NAME below.
// seeded-env: array_pop_unannounced
// seeded-env: array_finish_unbarred
#![cfg(loom)]

mod explore;
#[path = "../../adapters/host/src/steal.rs"]
#[allow(dead_code, reason = "the story needs some of it")]
mod steal;

use explore::explore;
use loom::sync::Arc;
use loom::thread;
use steal::{Array, begin_steal, finish_steal, pop, restore};
use terrace_core::sync::{AtomicUsize, Ordering, seeded, spin_hint};

/// Entries of the array; the lowest is always null.
const PLACES: usize = 4;

/// States of the barrier: none requested, requested, executed; or the owner has ended.
const QUIET: usize = 0;
const WANTED: usize = 1;
const DONE: usize = 2;
const ENDED: usize = 3;

/// Blocks are numbers from 1; 0 is null.
struct World {
    top: AtomicUsize,
    announced: AtomicUsize,
    places: [AtomicUsize; PLACES],
    barrier: AtomicUsize,
}

impl Array for World {
    type At = usize;
    type Block = usize;

    fn top(&self) -> usize {
        self.top.load(Ordering::Relaxed)
    }

    fn lower(&self) {
        self.top.store(self.top.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn below(at: usize) -> usize {
        at.wrapping_sub(1)
    }

    fn announce(&self, top: usize) {
        self.announced.store(top, Ordering::Release);
    }

    fn announced(&self) -> usize {
        self.announced.load(Ordering::Acquire)
    }

    fn load(&self, at: usize) -> Option<usize> {
        Some(self.places[at].load(Ordering::Relaxed)).filter(|&block| block != 0)
    }

    fn store(&self, at: usize, block: usize) {
        self.places[at].store(block, Ordering::Relaxed);
    }

    fn take(&self, at: usize) -> Option<usize> {
        Some(self.places[at].swap(0, Ordering::Relaxed)).filter(|&block| block != 0)
    }

    fn step(&self) {
        if self.barrier.load(Ordering::Acquire) == WANTED {
            self.barrier.store(DONE, Ordering::Release);
        }
    }
}

impl World {
    /// An array of `blocks` blocks, 1 and up.
    fn new(blocks: usize) -> Arc<Self> {
        let places = std::array::from_fn(|at| AtomicUsize::new(if at <= blocks { at } else { 0 }));
        Arc::new(Self {
            top: AtomicUsize::new(blocks + 1),
            announced: AtomicUsize::new(0),
            places,
            barrier: AtomicUsize::new(QUIET),
        })
    }

    /// As the host's: writes at the top, raises it.
    fn push(&self, block: usize) {
        self.step();
        let top = self.top();
        self.store(top, block);
        self.step();
        self.top.store(top + 1, Ordering::Relaxed);
        self.step();
    }

    /// Waits for the barrier, as the thief does.
    fn bar(&self) {
        if seeded("array_finish_unbarred") {
            return;
        }
        if self.barrier.compare_exchange(QUIET, WANTED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while self.barrier.load(Ordering::Acquire) == WANTED {
                spin_hint();
            }
        }
    }

    /// The owner's last step.
    fn end(&self) {
        self.barrier.swap(ENDED, Ordering::AcqRel);
    }
}

/// The owner runs `owner`, which returns what it holds; another thread steals. Every block has one holder, or is in the
/// array.
fn each_block_has_one_holder(blocks: usize, owner: fn(&World) -> Vec<usize>) {
    explore(move || {
        let world = World::new(blocks);
        let owned = world.clone();
        let owning = thread::spawn(move || {
            let mine = owner(&owned);
            owned.end();
            mine
        });
        let taken = begin_steal(&*world);
        world.bar();
        let done = taken.as_ref().filter(|taken| finish_steal(&*world, taken));
        let mut held: Vec<usize> = Vec::new();
        if let Some(taken) = done {
            held.push(taken.block);
            held.extend((1..taken.entry).filter_map(|at| world.take(at)));
        }
        held.extend(owning.join().expect("no panic"));
        if let (Some(taken), None) = (&taken, done) {
            restore(&*world, taken);
        }
        held.extend((1..world.top()).filter_map(|at| world.load(at)));
        held.sort_unstable();
        assert_eq!(held, (1..=blocks).collect::<Vec<_>>(), "each block once");
    });
}

#[test]
fn an_owner_that_pops_and_one_that_takes_share_no_block() {
    each_block_has_one_holder(2, |world| {
        let first = pop(world);
        world.step();
        let second = pop(world);
        world.step();
        first.into_iter().chain(second).collect()
    });
}

#[test]
fn an_owner_that_pushes_back_what_it_popped_loses_nothing() {
    each_block_has_one_holder(2, |world| {
        let first = pop(world);
        world.step();
        if let Some(block) = first {
            world.push(block);
        }
        pop(world).into_iter().collect()
    });
}

#[test]
fn an_owner_that_goes_down_and_up_again_loses_nothing() {
    each_block_has_one_holder(2, |world| {
        let (first, second) = (pop(world), pop(world));
        second.into_iter().chain(first).for_each(|block| world.push(block));
        Vec::new()
    });
}
