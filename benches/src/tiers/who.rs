//! Contestants.
//!
//! Promises upward: each has a title of its own, and one raw loop that it is compared with. Asks from below: nothing.

use serde::{Deserialize, Serialize};
use terrace::tiers::EngineKind;
use terrace_raw::THREADS;

/// What moves bytes between memory and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// io_uring.
    Ring,
    /// A pool of threads, each in one call.
    Threads,
}

impl Engine {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ring, Self::Threads];

    /// Its word.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Threads => "threads",
        }
    }

    /// How many requests a raw loop has in flight that was told `depth`.
    pub fn requests(self, depth: usize) -> usize {
        match self {
            Self::Ring => depth,
            Self::Threads => THREADS,
        }
    }

    /// What the manager calls it.
    pub fn kind(self) -> EngineKind {
        match self {
            Self::Ring => EngineKind::IoUring,
            Self::Threads => EngineKind::Threads,
        }
    }
}

/// How the manager is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// One thread, which has many futures in flight.
    Futures,
    /// Sixteen threads, each in a call that blocks.
    Threads,
}

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A loop without a manager.
    Raw(Engine),
    /// The manager.
    Manager(Engine, Calls),
    /// foyer, in a process of its own.
    Foyer(Engine),
}

impl Who {
    /// Whether it is a peer, which is built apart.
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Foyer(_))
    }

    /// Those that put and get pieces.
    pub const PIECES: [Self; 8] = [
        Self::Raw(Engine::Ring),
        Self::Manager(Engine::Ring, Calls::Futures),
        Self::Manager(Engine::Ring, Calls::Threads),
        Self::Foyer(Engine::Ring),
        Self::Raw(Engine::Threads),
        Self::Manager(Engine::Threads, Calls::Futures),
        Self::Manager(Engine::Threads, Calls::Threads),
        Self::Foyer(Engine::Threads),
    ];

    /// Those that move one large buffer by one call.
    pub const LARGE: [Self; 4] = [
        Self::Raw(Engine::Ring),
        Self::Manager(Engine::Ring, Calls::Threads),
        Self::Raw(Engine::Threads),
        Self::Manager(Engine::Threads, Calls::Threads),
    ];

    /// Its name.
    pub fn title(self) -> String {
        match self {
            Self::Raw(engine) => raw(engine),
            Self::Manager(engine, Calls::Futures) => format!("{}, futures", engine.title()),
            Self::Foyer(engine) => format!("foyer {}", engine.title()),
            Self::Manager(engine, Calls::Threads) => format!("{}, blocking", engine.title()),
        }
    }

    /// The engine that it uses, and so the raw loop that it is compared with.
    pub fn engine(self) -> Engine {
        match self {
            Self::Raw(engine) | Self::Manager(engine, _) | Self::Foyer(engine) => engine,
        }
    }
}

/// Name of the raw loop on an engine.
pub fn raw(engine: Engine) -> String {
    format!("raw {}", engine.title())
}
