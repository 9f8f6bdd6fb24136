//! A dumb model of any allocator: a list of live names and a list of dead ones; and a dumb source.
//!
//! Promises upward: `drive` runs random actions and compares, after each, everything the contract says: overlap, size,
//! alignment, refusal of dead names, the equations of the statistics, `check()`.
//! Asks from below: nothing but the public face.

use proptest::prelude::*;
use terrace_core::{Allocator, Block, Owner, Region, Request, Source, SourceError, SourceUsage};

/// One random step.
#[derive(Clone, Debug)]
pub enum Act {
    Allocate {
        bytes: u64,
        align: u64,
        owner: u32,
    },
    /// Free the n-th live block (modulo their number).
    Free(usize),
    /// Free the n-th dead name again: must be refused.
    FreeDead(usize),
    /// Free a live block's name with one field changed: must be refused.
    FreeForged(usize),
    Resize(usize, u64),
    Trim,
}

/// Fewer than `length` acts of sizes up to `most` bytes, for owners 0 to 2. Under Miri, which looks at each for a second, at most 40.
pub fn acts(most: u64, length: usize) -> impl Strategy<Value = Vec<Act>> {
    let bytes = prop_oneof![1..=most, 1..=most.min(300), (0..most.ilog2()).prop_map(|bits| 1u64 << bits)];
    let act = prop_oneof![
        5 => (bytes.clone(), 0..8u32, 0..3u32)
            .prop_map(|(bytes, bits, owner)| Act::Allocate { bytes, align: 1 << bits, owner }),
        4 => any::<usize>().prop_map(Act::Free),
        1 => any::<usize>().prop_map(Act::FreeDead),
        1 => any::<usize>().prop_map(Act::FreeForged),
        1 => (any::<usize>(), bytes).prop_map(|(at, bytes)| Act::Resize(at, bytes)),
        1 => Just(Act::Trim),
    ];
    prop::collection::vec(act, 1..if cfg!(miri) { length.min(41) } else { length })
}

/// The model.
#[derive(Default)]
pub struct Model {
    pub live: Vec<(Block, Owner)>,
    pub dead: Vec<(Block, Owner)>,
    pub served: u64,
    pub peak: u64,
}

impl Model {
    fn used(&self) -> u64 {
        self.live.iter().map(|(block, _)| block.bytes).sum()
    }

    fn step(&mut self, allocator: &mut impl Allocator, act: &Act) {
        match *act {
            Act::Allocate { bytes, align, owner } => {
                let request = Request::new(bytes).align(align).owner(Owner(owner));
                if let Ok(block) = allocator.allocate(request) {
                    self.add(block, Owner(owner), bytes, align);
                }
            }
            Act::Free(at) if !self.live.is_empty() => {
                let (block, owner) = self.live.swap_remove(at % self.live.len());
                allocator.free(block, owner).expect("a live block is freed");
                self.dead.push((block, owner));
            }
            Act::FreeDead(at) if !self.dead.is_empty() => {
                let (block, owner) = self.dead[at % self.dead.len()];
                allocator.free(block, owner).expect_err("a dead name is refused");
            }
            Act::FreeForged(at) if !self.live.is_empty() => {
                let (block, owner) = self.live[at % self.live.len()];
                let forged = Block { ticket: block.ticket.wrapping_add(1 << 40), ..block };
                allocator.free(forged, owner).expect_err("a forged name is refused");
            }
            Act::Resize(at, bytes) if !self.live.is_empty() => self.resize(allocator, at % self.live.len(), bytes),
            Act::Trim => _ = allocator.trim(),
            _ => {}
        }
    }

    fn add(&mut self, block: Block, owner: Owner, bytes: u64, align: u64) {
        assert!(block.bytes >= bytes, "{block:?} holds at least {bytes}");
        assert_eq!(block.address % align, 0, "{block:?} at {align}");
        for (other, _) in &self.live {
            let apart = block.address + block.bytes <= other.address || other.address + other.bytes <= block.address;
            assert!(apart, "{block:?} overlaps {other:?}");
            assert_ne!(block.ticket, other.ticket, "a ticket is never used twice");
        }
        assert!(self.dead.iter().all(|(dead, _)| dead.ticket != block.ticket), "a ticket is never used twice");
        self.live.push((block, owner));
        self.served += 1;
    }

    fn resize(&mut self, allocator: &mut impl Allocator, at: usize, bytes: u64) {
        let (old, owner) = self.live[at];
        if let Ok(new) = allocator.resize(old, bytes) {
            assert_eq!(new.address, old.address, "in place");
            self.live.swap_remove(at);
            self.dead.push((old, owner));
            self.served -= 1;
            self.add(new, owner, bytes, 1);
        }
    }

    /// Everything the statistics must say now.
    pub fn compare(&mut self, allocator: &impl Allocator) {
        let stats = allocator.stats();
        self.peak = self.peak.max(self.used());
        assert_eq!(stats.in_use, self.used());
        assert_eq!(stats.live_blocks, self.live.len() as u64);
        assert_eq!(stats.allocations - stats.frees, stats.live_blocks);
        assert_eq!(stats.hits + stats.misses, stats.allocations);
        assert!(stats.allocations >= self.served, "every block handed out is counted");
        assert!(stats.in_use <= stats.reserved && stats.reserved <= stats.peak_reserved);
        assert!(stats.peak_in_use >= self.peak && stats.peak_live_blocks >= stats.live_blocks);
        allocator.check().expect("every invariant holds");
    }

    /// Frees what is live and trims.
    pub fn finish(&mut self, allocator: &mut impl Allocator) {
        while let Some((block, owner)) = self.live.pop() {
            allocator.free(block, owner).expect("a live block is freed");
        }
        allocator.trim();
        self.compare(allocator);
    }
}

/// Runs the steps, compares after each, then frees everything.
pub fn drive(allocator: &mut impl Allocator, acts: &[Act]) -> Model {
    let mut model = Model::default();
    for act in acts {
        model.step(allocator, act);
        model.compare(allocator);
    }
    model.finish(allocator);
    model
}

/// A source of regions one behind the other, with a capacity, a base that may be unaligned, and a fault to inject.
#[derive(Debug)]
pub struct Regions {
    pub capacity: u64,
    pub out: Vec<Region>,
    pub fail: Option<SourceError>,
    pub calls: u64,
    next: u64,
    skew: u64,
}

impl Regions {
    /// `skew` bytes off every 4 KiB boundary.
    pub fn new(capacity: u64, skew: u64) -> Self {
        Self { capacity, out: Vec::new(), fail: None, calls: 0, next: 1 << 20, skew }
    }

    pub fn used(&self) -> u64 {
        self.out.iter().map(|region| region.bytes).sum()
    }
}

impl Source for Regions {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        self.calls += 1;
        if let Some(error) = self.fail {
            return Err(error);
        }
        let available = self.capacity - self.used();
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        let region = Region { id: self.next, base: self.next + self.skew, bytes };
        self.next = (region.base + bytes).next_multiple_of(4096);
        self.out.push(region);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        self.calls += 1;
        let at = self.out.iter().position(|other| *other == region);
        let at = at.ok_or(SourceError::Misuse("a region that is not out"))?;
        if let Some(error) = self.fail {
            return Err(error);
        }
        self.out.swap_remove(at);
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        let reserved = self.used();
        SourceUsage { capacity: self.capacity, reserved, peak_reserved: reserved, calls: self.calls, handles: 0 }
    }
}
