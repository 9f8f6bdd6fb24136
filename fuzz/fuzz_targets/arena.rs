//! Arenas over segments and over pages, with and without work in flight, beside a list of what is live.
// sanitizer: none
// seeded-env: arena_loses_entry
// seeded-env: arena_loses_segment
// seeded-env: arena_source_overlaps
#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use terrace_core::arena::{ArenaParts, ArenaSettings, ArenaStorage, Coalesce, PendingFree};
use terrace_core::{
    Allocator, AnyFit, Arena, Bin, Block, Branch, Entry, Fence, Fit, FreeError, NoFence, Owner, Request, Segment, Slot,
    Source,
};
use terrace_fuzz::{FaultySource, Forgetful};
use terrace_models::{Delay, Growing};

#[derive(Arbitrary, Debug)]
struct Input {
    kind: u8,
    fit: u8,
    coalesce: u8,
    slots: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Size in units of the world, bytes beside it, log2 of the alignment, owner.
    Allocate(u16, u8, u8, u8),
    /// Which block, by which owner.
    Free(u8, u8),
    FreeDead(u8),
    Resize(u8, u16),
    Trim,
}

/// Entries of the cache.
const ENTRIES: usize = 24;
/// Trims after which nothing waits: one that takes tickets for what is cached, one when they are ready.
const ROUNDS: usize = 2;

/// Storage that forgets when told to.
struct Lent;

impl ArenaStorage for Lent {
    type Slots = Vec<Slot>;
    type Index = AnyFit<Vec<Branch>>;
    type Bins = Vec<Bin>;
    type Entries = Forgetful<Entry<Block>>;
    type Segments = Forgetful<Segment>;
    type Pending = Vec<PendingFree>;
}

fn parts(input: &Input) -> ArenaParts<Lent> {
    let slots = 8 + usize::from(input.slots);
    let fit = [Fit::Good, Fit::Best, Fit::First, Fit::Worst][usize::from(input.fit) % 4];
    let index = || AnyFit::new(fit, vec![Branch::EMPTY; slots]);
    ArenaParts {
        slots: [vec![Slot::EMPTY; slots], vec![Slot::EMPTY; slots]],
        index: [index(), index()],
        bins: vec![Bin::EMPTY; 16],
        entries: Forgetful::new(ENTRIES, "arena_loses_entry", || Entry::EMPTY),
        segments: Forgetful::new(8, "arena_loses_segment", || Segment::EMPTY),
        pending: [vec![PendingFree::EMPTY; slots], vec![PendingFree::EMPTY; slots]],
    }
}

fn coalesce(input: &Input) -> Coalesce {
    [Coalesce::AtOnce, Coalesce::Lazy, Coalesce::Threshold(4096)][usize::from(input.coalesce) % 3]
}

fn apart(a: &Block, b: &Block) -> bool {
    a.address + a.bytes <= b.address || b.address + b.bytes <= a.address
}

/// An arena, what is live in it, and what was.
struct World<S, F> {
    arena: Arena<S, F, Lent>,
    live: Vec<Block>,
    dead: Vec<Block>,
    /// Who freed what, and when: others may not have it before the fence.
    freed: Vec<(Block, Owner, u64)>,
    /// Region and ticket of every block so far.
    names: HashSet<(u32, u64)>,
    /// Bytes of a unit of request sizes.
    unit: u64,
    /// Bytes that an empty arena surely gives, 0 when work may be in flight.
    sure: u64,
    /// The fence's: one tick a step.
    clock: Rc<Cell<u64>>,
    /// Ticks until what was freed is for all.
    delay: u64,
}

impl<S: Source, F: Fence> World<S, F> {
    fn allocate(&mut self, bytes: u64, align: u64, owner: Owner) {
        match self.arena.allocate(Request::new(bytes).align(align).owner(owner)) {
            Ok(block) => {
                self.apart_from_others(&block, owner);
                self.add(block, bytes, align);
            }
            Err(error) => {
                let must = self.live.is_empty() && (1..=self.sure).contains(&bytes);
                assert!(!must, "an empty arena refused {bytes} bytes: {error}");
            }
        }
    }

    /// What others freed a short time ago is still theirs.
    fn apart_from_others(&mut self, block: &Block, owner: Owner) {
        let now = self.clock.get();
        let delay = self.delay;
        self.freed.retain(|(_, _, at)| now < at + delay);
        for (freed, by, _) in self.freed.iter().filter(|(_, by, _)| *by != owner) {
            assert!(apart(block, freed), "{block:?} overlaps {freed:?} that {by:?} may still use");
        }
        // What its owner has again counts from when it is freed again.
        self.freed.retain(|(freed, ..)| apart(block, freed));
    }

    fn add(&mut self, block: Block, bytes: u64, align: u64) {
        assert!(block.bytes >= bytes && block.address % align == 0, "{block:?} for {bytes} at {align}");
        for other in &self.live {
            assert!(apart(&block, other), "{block:?} overlaps {other:?}");
        }
        assert!(self.names.insert((block.region, block.ticket)), "a name is never used twice: {block:?}");
        self.live.push(block);
    }

    fn step(&mut self, step: &Step) {
        let count = self.live.len();
        match *step {
            Step::Allocate(units, bytes, bits, owner) => {
                let bytes = u64::from(units) % 400 * self.unit + u64::from(bytes);
                self.allocate(bytes, 1 << (bits % 13), Owner(u32::from(owner) % 3));
            }
            Step::Free(at, owner) if count > 0 => {
                let block = self.live.swap_remove(usize::from(at) % count);
                let owner = Owner(u32::from(owner) % 3);
                self.arena.free(block, owner).expect("live");
                self.dead.push(block);
                self.freed.push((block, owner, self.clock.get()));
            }
            Step::FreeDead(at) if !self.dead.is_empty() => {
                let name = self.dead[usize::from(at) % self.dead.len()];
                let refused = self.arena.free(name, Owner(0));
                assert!(matches!(refused, Err(FreeError::Stale { .. } | FreeError::Foreign { .. })), "{name:?}");
            }
            Step::Resize(at, units) if count > 0 => {
                let (at, bytes) = (usize::from(at) % count, u64::from(units) % 400 * self.unit);
                let old = self.live[at];
                let Ok(new) = self.arena.resize(old, bytes) else { return };
                assert_eq!(new.address, old.address);
                self.live.swap_remove(at);
                self.dead.push(old);
                self.add(new, bytes, 1);
            }
            Step::Trim => {
                let before = self.arena.stats().reserved;
                assert_eq!(self.arena.trim(), before - self.arena.stats().reserved);
            }
            Step::Free(..) | Step::FreeDead(_) | Step::Resize(..) => {}
        }
    }

    fn compare(&self) {
        self.arena.check().expect("every invariant holds");
        let stats = self.arena.stats();
        let in_use: u64 = self.live.iter().map(|block| block.bytes).sum();
        assert_eq!((stats.in_use, stats.live_blocks), (in_use, self.live.len() as u64));
        assert!(stats.in_use + stats.pooled <= stats.reserved && stats.reserved <= stats.peak_reserved);
    }

    fn play(mut self, steps: &[Step]) {
        for step in steps.iter().take(150) {
            self.clock.set(self.clock.get() + 1);
            self.step(step);
            self.compare();
        }
        while let Some(block) = self.live.pop() {
            self.clock.set(self.clock.get() + 1);
            self.arena.free(block, Owner(0)).expect("live");
        }
        // All work comes to its end.
        for _ in 0..ROUNDS {
            self.clock.set(self.clock.get() + 1000);
            self.arena.trim();
        }
        self.compare();
        let stats = self.arena.stats();
        assert!(stats.reserved == 0, "everything went back: {stats:?}");
    }
}

/// Runs the steps on an arena over `source`.
fn run<S: Source, F: Fence>(source: S, (fence, clock): (F, Rc<Cell<u64>>), input: &Input, settings: ArenaSettings) {
    let (unit, mut sure) = if settings.small_threshold == SMALL { (64, 128 << 10) } else { (64 << 10, 20 << 20) };
    let delay = if input.kind % 2 == 1 { DELAY } else { 0 };
    if delay > 0 {
        sure = 0;
    }
    let arena = Arena::new(source, fence, parts(input), settings).expect("valid settings");
    let (live, dead, freed, names) = (Vec::new(), Vec::new(), Vec::new(), HashSet::new());
    World { arena, live, dead, freed, names, unit, sure, clock, delay }.play(&input.steps);
}

/// Largest block of the small path over segments; over pages it is larger.
const SMALL: u64 = 2048;
/// Ticks that work stays in flight.
const DELAY: u64 = 3;

fuzz_target!(|input: Input| {
    let coalesce = coalesce(&input);
    // 256 KiB of segments of 16 KiB, or 32 pages of 2 MiB; a block of half of it always fits an empty arena.
    let fixed = || FaultySource::new(256 << 10, "arena_source_overlaps");
    let small =
        ArenaSettings { small_threshold: SMALL, segment: 16 << 10, grain: 4096, coalesce, ..ArenaSettings::segments() };
    let pages = ArenaSettings { small_threshold: 256 << 10, space: 256 << 20, coalesce, ..ArenaSettings::growing() };
    let clock = Rc::new(Cell::new(0));
    let delay = || (Delay::on(clock.clone(), DELAY), clock.clone());
    match input.kind % 4 {
        0 => run(fixed(), (NoFence, clock), &input, small),
        1 => run(fixed(), delay(), &input, small),
        2 => run(Growing::new(64 << 20), (NoFence, clock), &input, pages),
        _ => run(Growing::new(64 << 20), delay(), &input, pages),
    }
});
