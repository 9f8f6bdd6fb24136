//! Numbers blocks and streams that a log names by addresses and handles.
//!
//! Promises upward: the events that come of it are consistent, whatever the log says: blocks count up from 0, and only live ones
//! are freed; what the log contradicts is counted.
//! Asks from below: nothing. Memory grows with the number of blocks live at once, and of streams.

use std::collections::HashMap;
use std::fmt::Write;
use terrace_core::Owner;

/// Live blocks by address, and streams by handle.
#[derive(Debug, Default)]
pub(super) struct AddressTable {
    /// The id of the live block at each address.
    live: HashMap<u64, u64>,
    /// The id of the next block.
    next: u64,
    streams: HashMap<u64, u32>,
    /// Frees of addresses at which no block was live.
    unknown: u64,
    /// Allocations at the address of a block that was not freed before.
    again: u64,
}

impl AddressTable {
    /// Bytes that a live block takes in the table and in the reader's checks, while both grow.
    pub(super) const BLOCK: u64 = 256;

    /// Numbers a block that was allocated. Also returns the block that was live there: the log lost its free.
    pub(super) fn allocate(&mut self, address: u64) -> (u64, Option<u64>) {
        let id = self.next;
        self.next += 1;
        let old = self.live.insert(address, id);
        self.again += u64::from(old.is_some());
        (id, old)
    }

    /// The block that was freed; `None`, and counted, where none was live.
    pub(super) fn free(&mut self, address: u64) -> Option<u64> {
        let id = self.live.remove(&address);
        self.unknown += u64::from(id.is_none());
        id
    }

    /// The block that is live at an address.
    #[cfg(feature = "track")]
    pub(super) fn find(&self, address: u64) -> Option<u64> {
        self.live.get(&address).copied()
    }

    /// The number of a stream: 0 for the default stream, others by first use.
    pub(super) fn owner(&mut self, stream: u64) -> Owner {
        let next = self.streams.len() as u32 + 1;
        Owner(if stream == 0 { 0 } else { *self.streams.entry(stream).or_insert(next) })
    }

    /// Says what was left out and added; nothing if the log was whole.
    pub(super) fn remark(&self, text: &mut String) {
        if self.unknown > 0 {
            let _ = write!(text, "{} frees of unknown addresses are left out; ", self.unknown);
        }
        if self.again > 0 {
            let _ = write!(text, "{} blocks were allocated again without a free, which is added; ", self.again);
        }
    }
}
