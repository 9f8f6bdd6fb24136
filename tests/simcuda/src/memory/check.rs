//! Whether an operation may touch a range.
//!
//! Upward: [`World::may_touch`] says what is wrong; [`World::is_open`] whether the bytes can be touched at all.
//! From below: blocks, mappings, contexts.

use super::{Arena, Holder};
use crate::abi::attributes::{ACCESS_READ, ACCESS_READ_WRITE};
use crate::machine::context::Here;
use crate::machine::{Fault, World};
use crate::order::{Clock, Touch};

/// Who touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hand {
    /// A kernel or a memset: runs on the device.
    Device,
    /// A copy: reaches memory of all devices and of the host.
    Copy,
    /// A copy whose caller named the device of each end: reaches what that device reaches.
    Between,
}

/// What is wrong with a touch.
pub type Wrong = (Fault, String);

impl World {
    /// Checks a touch by an operation of context `here` that knows `clock`.
    pub fn may_touch(&self, here: Here, hand: Hand, touch: Touch, clock: &Clock) -> Result<(), Wrong> {
        if touch.bytes == 0 {
            return Ok(());
        }
        if touch.start.checked_add(touch.bytes).is_none() {
            return Err((Fault::OutOfBounds, format!("{:#x}+{} wraps around", touch.start, touch.bytes)));
        }
        if let Some((start, block)) = self.memory.blocks.range(..=touch.start).next_back() {
            if touch.start - start < block.bytes {
                return self.may_touch_block(here, hand, touch, clock, *start);
            }
            // Past the end of a block, in what was taken for it.
            if touch.start < block.base + block.span {
                let text = format!("{:#x} is past the end of {}", touch.start, block.describe(*start));
                return Err((Fault::OutOfBounds, text));
            }
        }
        if self.mapping_at(touch.start).is_some() {
            return self.may_touch_mappings(here, hand, touch);
        }
        self.nothing_there(hand, touch.start)
    }

    fn may_touch_block(&self, here: Here, hand: Hand, touch: Touch, clock: &Clock, start: u64) -> Result<(), Wrong> {
        let Some(block) = self.memory.blocks.get(&start) else { return Ok(()) };
        let what = block.describe(start);
        if let Some(call) = &block.freed {
            return Err((Fault::UseAfterFree, format!("{what}, freed by {call}")));
        }
        if touch.start + touch.bytes > start + block.bytes {
            let text = format!("{:#x}+{} goes past the end of {what}", touch.start, touch.bytes);
            return Err((Fault::OutOfBounds, text));
        }
        if let Some((lane, count)) = block.allocated.filter(|(lane, count)| clock.of(*lane) < *count) {
            let text = format!("{what}, whose allocation is operation {count} of stream {lane}, may not be done");
            return Err((Fault::UseBeforeAllocation, text));
        }
        let allowed = match block.holder {
            Holder::Managed | Holder::Pinned(_) | Holder::Registered(_) => true,
            Holder::Device | Holder::Variable(_) => hand != Hand::Device || self.reaches(here.context, block.context),
            Holder::Pool(pool) => {
                let pool = self.memory.pools.get(pool);
                let set = || pool.and_then(|pool| pool.access.get(&here.device)).is_some_and(|flags| *flags != 0);
                here.device == block.device || hand != Hand::Device || set()
            }
        };
        if allowed {
            return Ok(());
        }
        let Here { context, device } = here;
        Err((Fault::WrongContext, format!("{what} cannot be reached from context {context:#x} of device {device}")))
    }

    fn may_touch_mappings(&self, here: Here, hand: Hand, touch: Touch) -> Result<(), Wrong> {
        let end = touch.start + touch.bytes;
        let wanted = if touch.writes { ACCESS_READ_WRITE } else { ACCESS_READ };
        let mut at = touch.start;
        while at < end {
            let Some((start, mapping)) = self.mapping_at(at) else {
                return Err((Fault::OutOfBounds, format!("{at:#x} is mapped to nothing")));
            };
            let device = if hand == Hand::Between { mapping.device } else { here.device };
            if mapping.access.get(&device).is_none_or(|flags| flags & wanted != wanted) {
                let text = format!("device {device} has no such access to mapping {start:#x}");
                return Err((Fault::NoAccess, text));
            }
            at = start + mapping.bytes;
        }
        Ok(())
    }

    /// Host memory that nobody registered may be copied; a kernel reaches it on some machines.
    fn nothing_there(&self, hand: Hand, address: u64) -> Result<(), Wrong> {
        if let Some(past) = self.memory.past(address) {
            return Err((Fault::UseAfterFree, format!("{address:#x} of {past}")));
        }
        let reserved = self.memory.reservations.range(..=address).next_back().is_some_and(|(_, end)| *end > address);
        if reserved {
            return Err((Fault::OutOfBounds, format!("{address:#x} is reserved and mapped to nothing")));
        }
        let host = !Arena::has(address) && address >= super::PAGE;
        if host && (hand != Hand::Device || self.profile.pageable) {
            return Ok(());
        }
        Err((Fault::OutOfBounds, format!("{address:#x} belongs to no allocation")))
    }

    /// Whether every byte can be touched now. What lies outside the arena is its owner's matter.
    pub fn is_open(&self, touch: Touch) -> bool {
        let end = touch.start.saturating_add(touch.bytes);
        let mut at = touch.start;
        while at < end && Arena::has(at) {
            let block = self.memory.blocks.range(..=at).next_back().map(|(_, block)| block.base + block.span);
            let mapping = self.mapping_at(at).filter(|(_, mapping)| {
                mapping
                    .access
                    .values()
                    .any(|flags| flags & ACCESS_READ_WRITE == ACCESS_READ_WRITE || !touch.writes && *flags != 0)
            });
            at = match (block.filter(|past| *past > at), mapping) {
                (Some(past), _) => past,
                (None, Some((start, mapping))) => start + mapping.bytes,
                (None, None) => return false,
            };
        }
        true
    }
}
