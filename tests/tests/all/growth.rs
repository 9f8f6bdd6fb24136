//! Growth in two steps, by random programs over a source that maps later: what is given out is mapped, and what is cancelled
//! leaves nothing.

use std::collections::BTreeSet;
use terrace::engine::arena::{ArenaSettings, Growth};
use terrace::engine::{
    Allocator, Arena, BestFit, Block, NoFence, Owner, Region, Request, Source, SourceError, SourceUsage,
};
use terrace_device::store::{ArenaCapacity, HeapStore, heap_parts};
use terrace_models::{Growing, Segments};
use terrace_tests::Random;

const PAGE: u64 = 2 << 20;

/// Pages that the caller maps later; they are mapped for the source below at once.
struct Later {
    below: Growing,
    /// Offsets of pages that are taken and not mapped.
    waiting: BTreeSet<u64>,
}

impl Later {
    fn pages(offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
        (offset..offset + bytes).step_by(PAGE as usize)
    }

    /// Asserts that all pages of the range are mapped.
    fn mapped(&self, offset: u64, bytes: u64) {
        let missing = self.waiting.range(offset..offset + bytes).next();
        assert_eq!(missing, None, "{bytes} bytes at {offset:#x} are not all mapped");
    }
}

impl Source for Later {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        self.below.take(bytes)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        self.below.give_back(region)
    }

    fn page_bytes(&self) -> u64 {
        self.below.page_bytes()
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        self.below.reserve(bytes)
    }

    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        self.below.map(region, offset, bytes)
    }

    fn map_later(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        self.below.map(region, offset, bytes)?;
        self.waiting.extend(Self::pages(offset, bytes));
        Ok(())
    }

    fn cancel_later(&mut self, region: Region, offset: u64, bytes: u64) {
        Self::pages(offset, bytes).for_each(|page| assert!(self.waiting.remove(&page), "it was to be mapped"));
        self.below.unmap(region, offset, bytes).expect("taken before");
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        self.mapped(offset, bytes);
        self.below.unmap(region, offset, bytes)
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        self.mapped(from, bytes);
        self.below.shift(region, from, to, bytes)
    }

    fn usage(&self) -> SourceUsage {
        self.below.usage()
    }
}

type LaterArena = Arena<Later, NoFence, HeapStore<BestFit<Box<[terrace::engine::Branch]>>>>;

fn arena(capacity: u64, slots: usize) -> (LaterArena, u64) {
    let settings = ArenaSettings { space: 1 << 34, granule: 512, ..ArenaSettings::device_pages() };
    let source = Later { below: Growing::new(capacity), waiting: BTreeSet::new() };
    let parts = heap_parts(ArenaCapacity { slots, entries: 0, ..ArenaCapacity::default() }, BestFit::new);
    let arena = Arena::new(source, NoFence, parts, settings).expect("an arena");
    let base = arena.source().below.outstanding()[0].0.base;
    (arena, base)
}

/// Marks a growth's pages as mapped.
fn map(arena: &mut LaterArena, base: u64, growth: &Growth) {
    for (from, bytes) in growth.ranges().collect::<Vec<_>>() {
        Later::pages(from - base, bytes).for_each(|page| assert!(arena.source_mut().waiting.remove(&page)));
    }
}

/// Asserts that the memory of a block that a caller has is mapped and nobody else's.
fn take(arena: &LaterArena, base: u64, live: &[Block], block: &Block) {
    let from = (block.address - base) & !(PAGE - 1);
    arena.source().mapped(from, block.address + block.bytes - base - from);
    let other = live
        .iter()
        .find(|other| other.address < block.address + block.bytes && block.address < other.address + other.bytes);
    assert_eq!(other, None, "{block:?}");
}

fn program(seed: u64, capacity: u64, slots: usize) -> [u64; 3] {
    let (mut arena, base) = arena(capacity, slots);
    let mut random = Random::new(seed);
    let (mut live, mut growing) = (Vec::<Block>::new(), Vec::<Growth>::new());
    let [mut later, mut cancelled, mut refused] = [0; 3];
    for _ in 0..600 {
        let order = random.below(15);
        let bytes = (1 + random.below(1 << order)) * 4096;
        match random.below(12) {
            0..5 => match arena.allocate_later(Request::new(bytes)) {
                Ok(Ok(block)) => {
                    take(&arena, base, &live, &block);
                    live.push(block);
                }
                Ok(Err(growth)) => {
                    later += 1;
                    growing.push(growth);
                }
                Err(_) => refused += 1,
            },
            5 => {
                if let Ok(block) = arena.allocate(Request::new(bytes)) {
                    take(&arena, base, &live, &block);
                    live.push(block);
                }
            }
            6..8 if !growing.is_empty() => {
                let growth = growing.swap_remove(random.below(growing.len() as u64) as usize);
                map(&mut arena, base, &growth);
                let block = arena.finish(growth).expect("its pages are mapped");
                take(&arena, base, &live, &block);
                live.push(block);
            }
            8 if !growing.is_empty() => {
                let before = arena.stats();
                cancelled += 1;
                arena.cancel(growing.swap_remove(random.below(growing.len() as u64) as usize));
                let after = arena.stats();
                let counts = |stats: terrace::engine::Stats| {
                    (stats.in_use, stats.peak_in_use, stats.live_blocks, stats.allocations)
                };
                assert_eq!(counts(after), counts(before));
                assert!(after.reserved < before.reserved || arena.stats().pooled > 0, "{before:?} {after:?}");
            }
            9 if random.below(4) == 0 => _ = arena.trim(),
            _ if !live.is_empty() => {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                arena.free(block, Owner(0)).expect("it is live");
            }
            _ => {}
        }
        arena.check().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    for growth in growing {
        arena.cancel(growth);
        arena.check().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    live.into_iter().for_each(|block| arena.free(block, Owner(0)).expect("it is live"));
    arena.trim();
    // Where records ran out, what was to be mapped is lost.
    let lost = arena.source().waiting.len() as u64 * PAGE;
    assert!(arena.stats().reserved == lost && (lost == 0 || slots < 100), "seed {seed}: {lost} bytes are lost");
    [later, cancelled, refused]
}

#[test]
fn what_is_given_out_is_mapped() {
    let mut sums = [0; 3];
    for seed in 0..60 {
        // Ample, then scarce, where pages move.
        let done = program(seed, if seed % 2 == 0 { 8 << 30 } else { 160 << 20 }, 1 << 10);
        sums.iter_mut().zip(done).for_each(|(sum, done)| *sum += done);
    }
    let [later, cancelled, refused] = sums;
    assert!(
        later > 1500 && cancelled > 300 && refused > 150,
        "{later} growths, {cancelled} cancelled, {refused} refused"
    );
}

/// Where records are too few, pages are mapped at once.
#[test]
fn without_records_for_it_nothing_waits() {
    for seed in 0..20 {
        program(seed, 1 << 30, 24);
    }
}

/// Segments that the caller takes later.
struct TakenLater {
    below: Segments,
    /// Bytes of segments that are being taken, and one that was taken.
    taking: Vec<u64>,
    taken: Option<u64>,
}

impl Source for TakenLater {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        if self.taken.take_if(|taken| *taken == bytes).is_none() {
            self.room_for(bytes)?;
        }
        self.below.take(bytes)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        self.below.give_back(region)
    }

    fn take_later(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.room_for(bytes)?;
        self.taking.push(bytes);
        Ok(())
    }

    fn cancel_take(&mut self, bytes: u64) {
        self.end(bytes);
    }

    fn usage(&self) -> SourceUsage {
        let usage = self.below.usage();
        SourceUsage { reserved: usage.reserved + self.on_its_way(), ..usage }
    }
}

impl TakenLater {
    /// Bytes of segments that are in no range yet.
    fn on_its_way(&self) -> u64 {
        self.taking.iter().sum::<u64>() + self.taken.unwrap_or(0)
    }

    fn room_for(&self, bytes: u64) -> Result<(), SourceError> {
        let available = self.usage().capacity - self.usage().reserved;
        if bytes > available { Err(SourceError::OutOfMemory { available }) } else { Ok(()) }
    }

    fn end(&mut self, bytes: u64) {
        let at = self.taking.iter().position(|taking| *taking == bytes).expect("it was to be taken");
        self.taking.swap_remove(at);
    }
}

/// A random program over segments; growths, cancelled ones, and those whose records others took meanwhile.
fn program_of_segments(seed: u64, capacity: u64, segments: usize) -> [u64; 3] {
    let settings = ArenaSettings { granule: 512, ..ArenaSettings::device_segments() };
    let source = TakenLater { below: Segments::new(capacity), taking: Vec::new(), taken: None };
    let capacity = ArenaCapacity { slots: 1 << 10, segments, entries: 0, ..ArenaCapacity::default() };
    let mut arena = Arena::new(source, NoFence, heap_parts(capacity, BestFit::new), settings).expect("an arena");
    let mut random = Random::new(seed);
    let (mut live, mut growing) = (Vec::<Block>::new(), Vec::<Growth>::new());
    let [mut later, mut cancelled, mut refused] = [0; 3];
    for _ in 0..600 {
        let order = random.below(12);
        let bytes = (1 + random.below(1 << order)) * 4096;
        // Above a granule, up to more than the addresses of segments have.
        let request = Request::new(bytes).align(512 << random.below(8));
        match random.below(12) {
            0..5 => match arena.allocate_later(request) {
                Ok(Ok(block)) => live.push(block),
                Ok(Err(growth)) => {
                    later += 1;
                    assert!(growth.segment().is_some_and(|taken| taken >= bytes) && growth.ranges().count() == 0);
                    growing.push(growth);
                }
                Err(_) => refused += 1,
            },
            5 => live.extend(arena.allocate(request).ok()),
            6..8 if !growing.is_empty() => {
                let growth = growing.swap_remove(random.below(growing.len() as u64) as usize);
                let bytes = growth.segment().expect("of a segment");
                arena.source_mut().end(bytes);
                arena.source_mut().taken = Some(bytes);
                match arena.finish(growth) {
                    Ok(block) => live.push(block),
                    Err(_) => refused += 1,
                }
                assert_eq!(arena.source().taken, None, "it is in the arena, or back");
            }
            8 if !growing.is_empty() => {
                let before = arena.stats();
                cancelled += 1;
                arena.cancel(growing.swap_remove(random.below(growing.len() as u64) as usize));
                let after = arena.stats();
                assert!(after.reserved < before.reserved);
                assert_eq!(
                    (after.in_use, after.live_blocks, after.allocations, after.failed),
                    (before.in_use, before.live_blocks, before.allocations, before.failed)
                );
            }
            9 if random.below(4) == 0 => _ = arena.trim(),
            _ if !live.is_empty() => {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                arena.free(block, Owner(0)).expect("it is live");
            }
            _ => {}
        }
        let mut spans: Vec<_> = live.iter().map(|block| (block.region, block.address, block.bytes)).collect();
        spans.sort_unstable();
        let apart = |pair: &[(u32, u64, u64)]| pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1;
        assert!(spans.windows(2).all(apart), "seed {seed}");
        let stats = arena.stats();
        assert!(stats.hits <= stats.allocations && stats.misses <= stats.allocations, "seed {seed}: {stats:?}");
        arena.check().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    growing.into_iter().for_each(|growth| arena.cancel(growth));
    live.into_iter().for_each(|block| arena.free(block, Owner(0)).expect("it is live"));
    arena.trim();
    assert_eq!(arena.stats().reserved, 0, "seed {seed}");
    [later, cancelled, refused]
}

#[test]
fn segments_are_taken_by_the_caller() {
    let mut sums = [0; 3];
    for seed in 0..60 {
        // Ample, scarce, and with few records.
        let (capacity, segments) = [(8 << 30, 64), (24 << 20, 64), (8 << 30, 3)][seed as usize % 3];
        let done = program_of_segments(seed, capacity, segments);
        sums.iter_mut().zip(done).for_each(|(sum, done)| *sum += done);
    }
    let [later, cancelled, refused] = sums;
    assert!(
        later > 300 && cancelled > 60 && refused > 100,
        "{later} growths, {cancelled} cancelled, {refused} refused"
    );
}
