//! Green contexts: a part of a device's multiprocessors, in the address space of its primary context.
//!
//! Upward: [`World::root`] says whose memory, events and modules those of a context are. Work takes as long in a part
//! of a device as in all of it.

use super::{Kind, Table, World};

/// Multiprocessors of a device.
#[derive(Clone, Copy, Debug)]
pub struct Multiprocessors {
    /// Their device.
    pub device: usize,
    /// The first of them.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// The split that they come from; 0 where they may be split.
    pub split: u64,
}

/// A green context.
pub struct GreenContext {
    /// What `cuCtxFromGreenCtx` gives.
    pub context: u64,
    /// What it runs on.
    pub part: Multiprocessors,
}

/// What a context that stands for a green one is part of.
#[derive(Clone, Copy)]
pub struct GreenPart {
    /// The primary context of its device.
    pub primary: u64,
    /// The green context.
    pub handle: u64,
}

/// All green contexts, and what they are made from.
pub struct GreenContexts {
    /// By handle.
    pub all: Table<GreenContext>,
    /// Descriptors of `cuDevResourceGenerateDesc`, which never end.
    pub descriptors: Table<Multiprocessors>,
    /// Counts splits.
    pub splits: u64,
}

impl GreenContexts {
    /// None yet.
    pub fn new(generation: u64) -> GreenContexts {
        let all = Table::new(Kind::Green, generation, false);
        GreenContexts { all, descriptors: Table::new(Kind::Descriptor, generation, false), splits: 0 }
    }
}

impl World {
    /// The context whose memory, events and modules a context uses: a green one uses its primary context's.
    pub fn root(&self, context: u64) -> u64 {
        self.contexts.get(context).and_then(|found| found.green).map_or(context, |green| green.primary)
    }

    /// The green context that a context stands for.
    pub fn green_of(&self, context: u64) -> Option<u64> {
        self.contexts.get(context).and_then(|found| found.green).map(|green| green.handle)
    }
}
