//! The allocators that traces can be replayed on, by name.
//!
//! Promises upward: one table lists all allocators; a new one needs a function, and a line of that table.
//! Asks from below: allocators, simulated sources, a simulated fence that passes some events later.

use clap::ValueEnum;
use std::cell::Cell;
use std::rc::Rc;
use terrace_core::arena::{ArenaSettings, Coalesce};
use terrace_core::pool::{BlockRecord, BucketArena, SegmentRecord, SizeClasses};
use terrace_core::{AllocError, Allocator, Arena, BestFit, Branch, FirstFit, Index, WorstFit};
use terrace_device::store::{ArenaCapacity, heap_parts};
use terrace_device::{DeviceOptions, PoolOrigin};
use terrace_models::{
    BadOption, Bfc, BfcOptions, Delay, Growing, PyTorch, PyTorchOptions, Rmm, RmmOptions, Segments, SimulatedDevice,
};

/// A kind of simulated memory source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceKind {
    /// Pages of 2 MiB, mapped and moved under reserved address space.
    Growing,
    /// Whole device allocations, which cannot grow.
    Segments,
}

impl SourceKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::Segments => "segments",
        }
    }
}

/// How to create an allocator: its source, size and fence.
#[derive(Clone, Debug)]
pub struct PoolSetup {
    /// The kind of source.
    pub source: SourceKind,
    /// The most bytes that the source hands out in all.
    pub capacity: u64,
    /// The most blocks that are live at once.
    pub blocks: usize,
    /// The allocator's fence: memory freed by one stream may be used by another after `--fence-delay` more events of
    /// the trace.
    pub fence: Delay,
}

/// The capacity of a source without a limit: 2^50 = 1 PiB, more than any machine has. A growing source keeps a bit for each
/// page of 2 MiB: at most 2^50 / 2^21 / 8 = 64 MiB, whatever the trace requests.
const CAPACITY: u64 = 1 << 50;

impl PoolSetup {
    /// Creates a setup with its own event clock, and room for a default number of blocks.
    pub fn new(source: SourceKind, capacity: Option<u64>, fence_delay: u64) -> Self {
        let (capacity, blocks) = (capacity.unwrap_or(CAPACITY).min(CAPACITY), ArenaCapacity::default().slots / 2);
        Self { source, capacity, blocks, fence: Delay::new(fence_delay) }
    }

    /// Changes the setup to have room for `blocks` blocks live at once.
    pub fn with_blocks(self, blocks: usize) -> Self {
        Self { blocks, ..self }
    }

    /// Capacity for the records of an arena: two slots for each block, one for the block and one for the free range
    /// beside it; the rest in the proportions of a default arena.
    fn room(&self) -> ArenaCapacity {
        let room = ArenaCapacity::default();
        let slots = (2 * self.blocks).max(room.slots);
        ArenaCapacity { slots, segments: room.segments * (slots / room.slots), ..room }
    }

    /// The clock of the fence: the replay sets it to the number of the current event.
    pub fn clock(&self) -> Rc<Cell<u64>> {
        self.fence.clock()
    }
}

/// A new allocator, or why it cannot be created.
pub type NewPool = Result<Box<dyn Allocator>, String>;

/// The name and constructor of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct PoolFactory {
    /// The name that `--pool` takes.
    pub name: &'static str,
    /// The source it has whatever `--source` says; `None`: the one that `--source` says.
    pub source: Option<SourceKind>,
    /// Creates the allocator.
    pub make: fn(&PoolSetup) -> NewPool,
}

/// Every allocator, in the order of the printed table.
pub const POOLS: &[PoolFactory] = &[
    PoolFactory { name: "terrace", source: None, make: terrace },
    PoolFactory { name: "best", source: None, make: best },
    PoolFactory { name: "first", source: None, make: first },
    PoolFactory { name: "worst", source: None, make: worst },
    PoolFactory { name: "buckets", source: None, make: buckets },
    PoolFactory { name: "pytorch", source: None, make: pytorch },
    PoolFactory { name: "pytorch-expandable", source: Some(SourceKind::Growing), make: expandable },
    PoolFactory { name: "rmm", source: None, make: rmm },
    PoolFactory { name: "bfc", source: None, make: bfc },
];

/// The names that `--pool` takes.
pub fn names_and_all() -> Vec<&'static str> {
    std::iter::once("all").chain(POOLS.iter().map(|entry| entry.name)).collect()
}

/// The allocators with these names, each once, in the order of the table.
pub fn select(names: &[String]) -> Vec<PoolFactory> {
    let all = names.iter().any(|name| name == "all");
    POOLS.iter().filter(|entry| all || names.iter().any(|name| name == entry.name)).copied().collect()
}

fn boxed(pool: impl Allocator + 'static) -> NewPool {
    Ok(Box::new(pool))
}

/// An arena over the setup's source; `change` adjusts the usual settings for that kind of source.
fn arena<I: Index + 'static>(
    setup: &PoolSetup,
    index: impl Fn(Box<[Branch]>) -> I,
    change: impl FnOnce(ArenaSettings) -> ArenaSettings,
) -> NewPool {
    let (fence, parts) = (setup.fence.clone(), heap_parts(setup.room(), index));
    let text = |error: AllocError| error.to_string();
    match setup.source {
        SourceKind::Growing => {
            let settings = change(ArenaSettings::growing());
            boxed(Arena::new(Growing::new(setup.capacity), fence, parts, settings).map_err(text)?)
        }
        SourceKind::Segments => {
            let settings = change(ArenaSettings::segments());
            boxed(Arena::new(Segments::new(setup.capacity), fence, parts, settings).map_err(text)?)
        }
    }
}

/// Over segments a `Device` with its usual options; over pages the default arena.
///
/// The device has its streams' caches too. The arena, best fit behind a cache of exact sizes, also resizes blocks in place, as traces
/// of host programs ask for.
pub fn terrace(setup: &PoolSetup) -> NewPool {
    match setup.source {
        SourceKind::Growing => arena(setup, BestFit::new, |settings| settings),
        SourceKind::Segments => device(setup, DeviceOptions::default()),
    }
}

/// A `Device` over a simulated driver; source, capacity and room are the setup's.
pub fn device(setup: &PoolSetup, options: DeviceOptions) -> NewPool {
    let origin = match setup.source {
        SourceKind::Growing => PoolOrigin::Pages,
        SourceKind::Segments => PoolOrigin::Segments,
    };
    let options = DeviceOptions { origin, capacity: setup.capacity, blocks: setup.room().slots, ..options };
    boxed(SimulatedDevice::open(options, setup.fence.clone()).map_err(|error| error.to_string())?)
}

/// Changes settings to have no cache of freed blocks, so that every call searches the index.
fn uncached(settings: ArenaSettings) -> ArenaSettings {
    ArenaSettings { coalesce: Coalesce::AtOnce, ..settings }
}

fn best(setup: &PoolSetup) -> NewPool {
    arena(setup, BestFit::new, uncached)
}

fn first(setup: &PoolSetup) -> NewPool {
    arena(setup, FirstFit::new, uncached)
}

fn worst(setup: &PoolSetup) -> NewPool {
    arena(setup, WorstFit::new, uncached)
}

/// Creates a pool over the setup's source: `on_source!(setup, |source| POOL)`.
macro_rules! on_source {
    ($setup:expr, |$source:ident| $pool:expr) => {
        match $setup.source {
            SourceKind::Growing => {
                let $source = Growing::new($setup.capacity);
                $pool
            }
            SourceKind::Segments => {
                let $source = Segments::new($setup.capacity);
                $pool
            }
        }
    };
}

/// Power-of-two buckets of fixed blocks from 512 bytes up, in segments of at least 2 MiB.
fn buckets(setup: &PoolSetup) -> NewPool {
    let steps = SizeClasses::new(512, 1).map_err(|error| error.to_string())?;
    let room = setup.room();
    let (blocks, segments) = (vec![BlockRecord::default(); room.slots], vec![SegmentRecord::default(); room.segments]);
    on_source!(setup, |source| boxed(BucketArena::new(source, steps, 2 << 20, blocks, segments)))
}

fn pytorch(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), PyTorchOptions::default());
    let text = |error: BadOption| error.to_string();
    on_source!(setup, |source| boxed(PyTorch::with(source, fence, options).map_err(text)?))
}

/// PyTorch's allocator with `expandable_segments:True`: pages of 2 MiB (small blocks) and 20 MiB, mapped on demand.
fn expandable(setup: &PoolSetup) -> NewPool {
    let options = PyTorchOptions { expandable: true, ..PyTorchOptions::default() };
    let pool = PyTorch::with(Growing::new(setup.capacity), setup.fence.clone(), options);
    boxed(pool.map_err(|error| error.to_string())?)
}

fn rmm(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), RmmOptions::default());
    on_source!(setup, |source| boxed(Rmm::with(source, fence, options)))
}

fn bfc(setup: &PoolSetup) -> NewPool {
    let (fence, options) = (setup.fence.clone(), BfcOptions::default());
    on_source!(setup, |source| boxed(Bfc::with(source, fence, options)))
}
