//! The simulated machine: one state behind one lock.
//!
//! Upward: [`lock`] gives the [`World`]; [`DONE`] wakes whoever waits for operations of streams. Streams' threads do
//! not hold the lock while they move bytes, and nobody holds it while waiting.
//! From below: what the folders `memory`, `order` and `streams` keep, each behind its own type.

pub mod context;
pub mod current;
mod green;
mod handles;
pub mod leaks;
mod module;
pub mod profile;
mod profiles;
mod report;
mod tally;

pub use context::{Context, Device};
pub use green::{GreenContext, GreenContexts, GreenPart, Multiprocessors};
pub use handles::{Kind, Table};
pub use module::{KernelLibrary, LibraryKernel, Module, ModuleImage, ModuleVariable, PendingLink};
pub use profile::Profile;
pub use report::{Fault, Report};
pub use tally::Tally;

use crate::memory::Memory;
use crate::order::Races;
use crate::streams::{Captures, Event, Streams};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::LazyLock;

/// Everything there is.
pub struct World {
    /// Counts resets. Threads that remember something of an older world forget it.
    pub generation: u64,
    /// What kind of machine this is.
    pub profile: Profile,
    /// Whether `cuInit` succeeded.
    pub initialised: bool,
    /// By ordinal.
    pub devices: Vec<Device>,
    /// Primary contexts that are retained, and contexts that programs made.
    pub contexts: Table<Context>,
    /// Green contexts.
    pub green: GreenContexts,
    /// All memory.
    pub memory: Memory,
    /// Streams and what they have to do.
    pub streams: Streams,
    /// Events.
    pub events: Table<Event>,
    /// Captures under way, graphs, graphs ready to launch.
    pub captures: Captures,
    /// Modules.
    pub modules: Table<Module>,
    /// Libraries.
    pub libraries: Table<KernelLibrary>,
    /// Kernels of libraries that programs asked for.
    pub kernels: Table<LibraryKernel>,
    /// Links.
    pub links: Table<PendingLink>,
    /// Functions: number of the kernel, and the module.
    pub functions: Table<(usize, u64)>,
    /// The order of operations.
    pub races: Races,
    /// Calls, and failures that are armed.
    pub tally: Tally,
    /// What callers did wrong.
    pub report: Report,
}

impl World {
    /// A machine of this kind that nobody has used.
    pub fn new(profile: Profile, generation: u64) -> World {
        let reuse = profile.reuse_handles;
        World {
            generation,
            devices: (0..profile.devices).map(|_| Device::default()).collect(),
            initialised: false,
            contexts: Table::new(Kind::Context, generation, false),
            green: GreenContexts::new(generation),
            memory: Memory::new(generation),
            streams: Streams::new(generation, reuse),
            events: Table::new(Kind::Event, generation, reuse),
            captures: Captures::new(generation),
            modules: Table::new(Kind::Module, generation, false),
            libraries: Table::new(Kind::Library, generation, false),
            kernels: Table::new(Kind::Kernel, generation, false),
            links: Table::new(Kind::Link, generation, false),
            functions: Table::new(Kind::Function, generation, false),
            races: Races::default(),
            tally: Tally::default(),
            report: Report::default(),
            profile,
        }
    }
}

/// The lock on the world.
pub type Held = MutexGuard<'static, World>;

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new(Profile::default(), 1)));

/// Signalled when an operation of a stream is done.
pub static DONE: Condvar = Condvar::new();

/// The world.
pub fn lock() -> Held {
    WORLD.lock()
}
