//! Checks that a trace's events are consistent with earlier ones, and numbers live blocks with small integers: slots.
//!
//! Promises upward: after `Ok`, block ids are in sequence, only live blocks are used, and sizes, alignments and times
//! are within limits; each live block has a slot; slots are dense, and reused after a free.
//! Asks from below: nothing. Memory grows with the number of blocks live at once, not with the length of the trace.

use super::error::Problem;
use super::{ALIGN_MAX, SIZE_MAX};
use std::collections::HashMap;
use terrace_core::event::{Event, Kind};

/// Largest number of blocks live at once: 2^23.
///
/// The checker takes about 60 bytes for each, below 512 MiB in all; a replay takes 1 to 2 GiB more for each pool, some
/// 13 GiB for all eight pools.
pub const LIVE_MAX: u32 = 1 << 23;
/// Largest sum of the bytes of live blocks: 2^62, so that the sums of allocators that round up stay below 2^64.
const LIVE_BYTES_MAX: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Live {
    slot: u32,
    bytes: u64,
}

/// Checks events, in the order of the trace.
#[derive(Debug, Default)]
pub(super) struct Checker {
    time_us: u64,
    /// Id that the next allocation must have; lower ids were allocated, others were not.
    next_id: u64,
    /// Live blocks by id.
    live: HashMap<u64, Live>,
    /// Slots below `slots` that no live block has; `live.len() + free.len() == slots`.
    free: Vec<u32>,
    slots: u32,
    /// Sum of `bytes` over `live`.
    live_bytes: u64,
}

impl Checker {
    /// Checks the next event; returns the slot of its block, `None` for an event that names no block. O(1) expected.
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
        // The sum stays below 2^62 + 2^48: no overflow.
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
