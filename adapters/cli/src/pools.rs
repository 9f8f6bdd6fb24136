//! The allocators that can be replayed on, by name.
//!
//! Promises upward: one list; an allocator is added by a function and a line.
//! Asks from below: allocators, simulated sources, a fence that opens some events later.

use clap::ValueEnum;
use std::cell::Cell;
use std::rc::Rc;
use terrace::arena::{Coalesce, Settings};
use terrace::pool::{BlockRecord, BucketArena, SegmentRecord, Steps};
use terrace::{AllocError, Allocator, Arena, ArenaCapacity, BestFit, Branch, FirstFit, Index, WorstFit, heap_parts};
use terrace_models::{BadOption, Bfc, BfcOptions, Delay, Growing, PyTorch, PyTorchOptions, Rmm, RmmOptions, Segments};

/// Where allocators take memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    /// Address space is reserved, pages of 2 MiB are mapped and moved under it.
    Growing,
    /// Fixed device allocations.
    Segments,
}

impl SourceKind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::Segments => "segments",
        }
    }
}

/// What an allocator is made on.
#[derive(Clone, Debug)]
pub struct PoolSetup {
    /// Which source to take from.
    pub source: SourceKind,
    /// The most bytes it gives.
    pub capacity: u64,
    /// Blocks live at once that there is room for.
    pub blocks: usize,
    /// Opens `--fence-delay` events after a free; its clock is the number of the event.
    pub fence: Delay,
}

/// The most bytes of a source that was not limited: 2^50 = 1 PiB, more than any machine has. A growing source keeps a bit
/// for each page of 2 MiB, so that whatever a trace asks, that is at most 2^50 / 2^21 / 8 = 64 MiB.
const CAPACITY: u64 = 1 << 50;

impl PoolSetup {
    /// A setup with a clock of its own and the room of a default arena.
    pub fn new(source: SourceKind, capacity: Option<u64>, fence_delay: u64) -> Self {
        let (capacity, blocks) = (capacity.unwrap_or(CAPACITY).min(CAPACITY), ArenaCapacity::default().slots / 2);
        Self { source, capacity, blocks, fence: Delay::new(fence_delay) }
    }

    /// The same with room for so many blocks live at once.
    pub fn blocks(self, blocks: usize) -> Self {
        Self { blocks, ..self }
    }

    /// Two records for each block, one of them for the hole beside it; all else in a default arena's proportions.
    fn room(&self) -> ArenaCapacity {
        let room = ArenaCapacity::default();
        let slots = (2 * self.blocks).max(room.slots);
        ArenaCapacity { slots, segments: room.segments * (slots / room.slots), ..room }
    }

    /// The clock of the fence.
    pub fn clock(&self) -> Rc<Cell<u64>> {
        self.fence.clock()
    }
}

/// An allocator, or why it cannot be made.
pub type NewPool = Result<Box<dyn Allocator>, String>;

/// A name and how to make what it names.
#[derive(Clone, Copy, Debug)]
pub struct PoolFactory {
    /// As given to `--pool`.
    pub name: &'static str,
    /// Makes the allocator.
    pub make: fn(&PoolSetup) -> NewPool,
}

/// Every allocator, in the order of the table.
pub const POOLS: &[PoolFactory] = &[
    PoolFactory { name: "terrace", make: terrace },
    PoolFactory { name: "best", make: best },
    PoolFactory { name: "first", make: first },
    PoolFactory { name: "worst", make: worst },
    PoolFactory { name: "buckets", make: buckets },
    PoolFactory { name: "pytorch", make: pytorch },
    PoolFactory { name: "rmm", make: rmm },
    PoolFactory { name: "bfc", make: bfc },
];

/// The names that `--pool` takes.
pub fn names_and_all() -> Vec<&'static str> {
    std::iter::once("all").chain(POOLS.iter().map(|entry| entry.name)).collect()
}

/// The entries for some names, in the order of the table and each once.
pub fn select(names: &[String]) -> Vec<PoolFactory> {
    let all = names.iter().any(|name| name == "all");
    POOLS.iter().filter(|entry| all || names.iter().any(|name| name == entry.name)).copied().collect()
}

fn boxed(pool: impl Allocator + 'static) -> NewPool {
    Ok(Box::new(pool))
}

/// An arena over a source of the kind asked for; `change` says what differs from that kind's usual settings.
fn arena<I: Index + 'static>(
    setup: &PoolSetup,
    index: impl Fn(Box<[Branch]>) -> I,
    change: impl FnOnce(Settings) -> Settings,
) -> NewPool {
    let (fence, parts) = (setup.fence.clone(), heap_parts(setup.room(), index));
    let text = |error: AllocError| error.to_string();
    match setup.source {
        SourceKind::Growing => {
            let settings = change(Settings::growing());
            boxed(Arena::new(Growing::new(setup.capacity), fence, parts, settings).map_err(text)?)
        }
        SourceKind::Segments => {
            let settings = change(Settings::segments());
            boxed(Arena::new(Segments::new(setup.capacity), fence, parts, settings).map_err(text)?)
        }
    }
}

/// The default: best fit behind a cache of exact sizes.
fn terrace(setup: &PoolSetup) -> NewPool {
    arena(setup, BestFit::new, |settings| settings)
}

/// A strategy alone: nothing is cached, so every call searches.
fn bare(settings: Settings) -> Settings {
    Settings { coalesce: Coalesce::AtOnce, ..settings }
}

fn best(setup: &PoolSetup) -> NewPool {
    arena(setup, BestFit::new, bare)
}

fn first(setup: &PoolSetup) -> NewPool {
    arena(setup, FirstFit::new, bare)
}

fn worst(setup: &PoolSetup) -> NewPool {
    arena(setup, WorstFit::new, bare)
}

/// Power-of-two buckets of fixed blocks from 512 bytes up, in segments of at least 2 MiB.
fn buckets(setup: &PoolSetup) -> NewPool {
    let steps = Steps::new(512, 1).map_err(|error| error.to_string())?;
    let room = setup.room();
    let (blocks, segments) = (vec![BlockRecord::default(); room.slots], vec![SegmentRecord::default(); room.segments]);
    match setup.source {
        SourceKind::Growing => boxed(BucketArena::new(Growing::new(setup.capacity), steps, 2 << 20, blocks, segments)),
        SourceKind::Segments => {
            boxed(BucketArena::new(Segments::new(setup.capacity), steps, 2 << 20, blocks, segments))
        }
    }
}

fn pytorch(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), PyTorchOptions::default());
    let text = |error: BadOption| error.to_string();
    match setup.source {
        SourceKind::Growing => boxed(PyTorch::with(Growing::new(setup.capacity), fence, options).map_err(text)?),
        SourceKind::Segments => boxed(PyTorch::with(Segments::new(setup.capacity), fence, options).map_err(text)?),
    }
}

fn rmm(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), RmmOptions::default());
    match setup.source {
        SourceKind::Growing => boxed(Rmm::with(Growing::new(setup.capacity), fence, options)),
        SourceKind::Segments => boxed(Rmm::with(Segments::new(setup.capacity), fence, options)),
    }
}

fn bfc(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), BfcOptions::default());
    match setup.source {
        SourceKind::Growing => boxed(Bfc::with(Growing::new(setup.capacity), fence, options)),
        SourceKind::Segments => boxed(Bfc::with(Segments::new(setup.capacity), fence, options)),
    }
}
