//! Whether events make sense one after the other, and small numbers for live blocks.
//!
//! Promises upward: after `Ok`, block ids are in sequence, only live blocks are used, sizes, alignments and times
//! are sane; each live block has a slot, slots are dense and used again.
//! Asks from below: nothing. Memory grows with the blocks live at once, never with the length of the trace.

use super::error::Problem;
use super::{ALIGN_MAX, SIZE_MAX};
use std::collections::HashMap;
use terrace_core::event::{Event, Kind};

/// Most blocks live at once: 2^23.
///
/// At about 60 bytes here that is below 512 MiB; a replay takes 1 to 2 GiB more for each pool, some 13 GiB for all
/// eight.
pub const LIVE_MAX: u32 = 1 << 23;
/// Most bytes live at once: 2^62, so that sums of allocators with rounding stay below 2^64.
const LIVE_BYTES_MAX: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Live {
    slot: u32,
    bytes: u64,
}

/// Checks events in order.
#[derive(Debug, Default)]
pub(super) struct Checker {
    time_us: u64,
    /// Id of the next allocation; ids below were given, ids from here on were not.
    next_id: u64,
    /// The blocks live now, by id.
    live: HashMap<u64, Live>,
    /// Slots below `slots` that no live block has; `live.len() + free.len() == slots`.
    free: Vec<u32>,
    slots: u32,
    /// Sum of `bytes` over `live`.
    live_bytes: u64,
}

impl Checker {
    /// Checks the next event and gives the slot of its block, `None` for events that name no block. O(1) expected.
    pub(super) fn check(&mut self, event: &Event) -> Result<Option<u32>, Problem> {
        if event.time_us < self.time_us {
            return Err(Problem::TimeBack(event.time_us, self.time_us));
        }
        self.time_us = event.time_us;
        match event.kind {
            Kind::Allocate => self.allocate(event).map(Some),
            Kind::Reallocate => self.reallocate(event).map(Some),
            Kind::Free => self.free(event.id).map(Some),
            Kind::Transfer => self.find(event.id).map(|live| Some(live.slot)),
            Kind::Take | Kind::GiveBack | Kind::Map | Kind::Unmap | Kind::Mark => Ok(None),
        }
    }

    fn allocate(&mut self, event: &Event) -> Result<u32, Problem> {
        if event.id != self.next_id {
            return Err(Problem::OutOfSequence(event.id, self.next_id));
        }
        check_request(event)?;
        self.grow(0, event.bytes)?;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots == LIVE_MAX => return Err(Problem::TooMuchLive),
            None => {
                self.slots += 1;
                self.slots - 1
            }
        };
        self.live.insert(event.id, Live { slot, bytes: event.bytes });
        self.next_id += 1;
        Ok(slot)
    }

    fn reallocate(&mut self, event: &Event) -> Result<u32, Problem> {
        let old = self.find(event.id)?;
        check_request(event)?;
        self.grow(old.bytes, event.bytes)?;
        self.live.insert(event.id, Live { bytes: event.bytes, ..old });
        Ok(old.slot)
    }

    fn free(&mut self, id: u64) -> Result<u32, Problem> {
        let Some(live) = self.live.remove(&id) else {
            return Err(if id < self.next_id { Problem::DoubleFree(id) } else { Problem::UnknownId(id) });
        };
        self.live_bytes -= live.bytes;
        self.free.push(live.slot);
        Ok(live.slot)
    }

    fn find(&self, id: u64) -> Result<Live, Problem> {
        let missing = if id < self.next_id { Problem::UseAfterFree(id) } else { Problem::UnknownId(id) };
        self.live.get(&id).copied().ok_or(missing)
    }

    fn grow(&mut self, old: u64, new: u64) -> Result<(), Problem> {
        // Both below 2^62 + 2^48: no overflow.
        self.live_bytes = self.live_bytes - old + new;
        if self.live_bytes > LIVE_BYTES_MAX { Err(Problem::TooMuchLive) } else { Ok(()) }
    }
}

fn check_request(event: &Event) -> Result<(), Problem> {
    match event.bytes {
        0 => Err(Problem::ZeroSize),
        bytes if bytes > SIZE_MAX => Err(Problem::HugeSize(bytes)),
        _ if !event.align.is_power_of_two() || event.align > ALIGN_MAX => Err(Problem::BadAlign(event.align)),
        _ => Ok(()),
    }
}
