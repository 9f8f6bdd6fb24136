//! All memory: addresses, blocks, mappings, pools.
//!
//! Device memory is memory of this process, in one range of addresses that nobody else uses. What is not allocated
//! cannot be touched; what is allocated costs nothing until it is.
//!
//! Upward: [`Memory`]; what a touch of a range may find wrong ([`check`]).
//! From below: `arena.rs` alone speaks to the system.

mod arena;
pub mod attach;
pub mod blocks;
pub mod bytes;
pub mod check;
mod exports;
pub mod hints;
pub mod info;
pub mod pool;
mod ranges;
mod variables;
pub mod vmm;

pub use arena::Arena;
pub use attach::Attachment;
pub use blocks::{Block, Holder};
pub use exports::ExportedDescriptor;
pub use hints::Hints;
pub use pool::Pool;
pub use ranges::Ranges;
pub use vmm::{Mapping, Physical};

use crate::abi::Outcome;
use crate::abi::codes::OUT_OF_MEMORY;
use crate::machine::{Kind, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of the process: the least that can be opened and closed.
pub const PAGE: u64 = 4096;

/// What lay in a range. Texts are made when somebody reads them.
pub enum Past {
    /// A block, its first byte, and the call that freed it.
    Block(Block, u64, &'static str),
    /// A mapping: its first byte and its bytes.
    Mapping(u64, u64),
    /// Reserved addresses: the first, and how many.
    Addresses(u64, u64),
}

impl Past {
    fn describe(&self) -> String {
        match self {
            Past::Block(block, start, call) => format!("{}, freed by {call}", block.describe(*start)),
            Past::Mapping(start, bytes) => format!("mapping {start:#x}+{bytes:#x}, removed by cuMemUnmap"),
            Past::Addresses(start, bytes) => format!("addresses {start:#x}+{bytes:#x}, freed by cuMemAddressFree"),
        }
    }
}

/// Memory of all devices, and host memory that the driver knows.
pub struct Memory {
    /// Addresses of the arena that are free. `None` until memory is first asked for.
    addresses: Option<Ranges>,
    /// Blocks by their first byte: in the arena, or registered host memory. They do not overlap.
    pub blocks: BTreeMap<u64, Block>,
    /// What lay where nothing lies now: past the last byte, and what it was. For messages.
    pub history: BTreeMap<u64, (u64, Past)>,
    /// Reserved addresses: past the last byte.
    pub reservations: BTreeMap<u64, u64>,
    /// Mappings by their first byte; each lies inside a reservation.
    pub mappings: BTreeMap<u64, Mapping>,
    /// Physical memory by its handle.
    pub physical: Table<Physical>,
    /// Descriptors of physical memory that are open.
    pub exports: Vec<ExportedDescriptor>,
    /// Places in the arena's file that are free.
    places: Ranges,
    /// Pools by handle.
    pub pools: Table<Pool>,
    /// What was said about managed memory.
    pub hints: Hints,
    /// Who uses managed blocks, by their first byte.
    pub attachments: BTreeMap<u64, Attachment>,
    /// Bytes of pinned host memory.
    pub pinned: u64,
    /// Counts blocks: `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub ids: u64,
    /// Handles and first bytes of reservations that were there when their device's context, lost, ended: nobody could
    /// give them back in time.
    pub orphans: BTreeSet<u64>,
    /// What was still there when its context or pool was destroyed.
    pub lost: Vec<String>,
}

/// The file behind physical memory may be so long: more than all devices of a machine have.
const FILE: u64 = 1 << 47;

/// So much of the past is remembered.
const HISTORY: usize = 4096;

impl Memory {
    /// No memory yet.
    pub fn new(generation: u64) -> Memory {
        Memory {
            addresses: None,
            blocks: BTreeMap::new(),
            history: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: Table::new(Kind::Physical, generation, false),
            exports: Vec::new(),
            places: Ranges::new(0, FILE),
            pools: Table::new(Kind::Pool, generation, false),
            hints: Hints::default(),
            attachments: BTreeMap::new(),
            pinned: 0,
            ids: 0,
            orphans: BTreeSet::new(),
            lost: Vec::new(),
        }
    }

    /// Takes addresses of the arena.
    pub fn take(&mut self, bytes: u64, align: u64, hint: u64) -> Outcome<u64> {
        if self.addresses.is_none() {
            let arena = Arena::get().ok_or(OUT_OF_MEMORY)?;
            self.addresses = Some(Ranges::new(arena.start, arena.end));
        }
        let found = self.addresses.as_mut().and_then(|addresses| addresses.take(bytes, align, hint));
        let start = found.ok_or(OUT_OF_MEMORY)?;
        self.remember_nothing(start, start + bytes);
        Ok(start)
    }

    /// Gives them back.
    pub fn give(&mut self, start: u64, bytes: u64) {
        self.addresses.iter_mut().for_each(|addresses| addresses.give(start, start + bytes));
    }

    /// Remembers what lay in a range.
    pub fn remember(&mut self, start: u64, bytes: u64, what: Past) {
        if self.history.len() >= HISTORY {
            self.history.pop_first();
        }
        self.history.insert(start, (start + bytes, what));
    }

    /// Forgets what lay in a range: something lies there again.
    pub fn remember_nothing(&mut self, start: u64, end: u64) {
        let before = self.history.range(..start).next_back().filter(|(_, (past, _))| *past > start);
        let first = before.map(|(at, _)| *at);
        let inside: Vec<u64> = first.into_iter().chain(self.history.range(start..end).map(|(at, _)| *at)).collect();
        inside.iter().for_each(|at| drop(self.history.remove(at)));
    }

    /// What lay at an address.
    pub fn past(&self, address: u64) -> Option<String> {
        let (_, (end, what)) = self.history.range(..=address).next_back()?;
        (*end > address).then(|| what.describe())
    }

    /// The next block's number.
    pub fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}
