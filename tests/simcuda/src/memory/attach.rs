//! Which streams use managed memory, on devices that do not use it while the host does.
//!
//! Upward: [`World::attach`] says so of a block, [`World::detached`] what is wrong with a touch by a stream. Calls decide,
//! as they do about all order: an operation that is on a stream already may still run.
//! From below: blocks and streams.

use super::check::{Hand, Wrong};
use crate::abi::c_uint;
use crate::machine::{Fault, World};
use crate::order::{Lane, Touch};

/// `CU_MEM_ATTACH_GLOBAL`: all streams use the memory.
pub const GLOBAL: c_uint = 1;
/// `CU_MEM_ATTACH_HOST`: no stream does.
pub const HOST: c_uint = 2;
/// `CU_MEM_ATTACH_SINGLE`: one stream does.
pub const SINGLE: c_uint = 4;

/// Who uses a managed block.
#[derive(Clone, Copy)]
pub struct Attachment {
    /// As it was when the block was made, and is again when the one stream has ended.
    pub first: c_uint,
    /// As it is now.
    pub now: c_uint,
    /// The one stream.
    pub lane: Lane,
}

impl World {
    /// From now on the block is used so.
    pub fn attach(&mut self, start: u64, now: c_uint, lane: Lane) {
        let first = self.memory.attachments.get(&start).map_or(GLOBAL, |attachment| attachment.first);
        self.memory.attachments.insert(start, Attachment { first, now, lane });
    }

    /// What is wrong with a touch by an operation that runs on the device.
    pub fn detached(&self, lane: Lane, hand: Hand, touch: Touch) -> Result<(), Wrong> {
        if self.profile.concurrent_managed || hand != Hand::Device || touch.bytes == 0 {
            return Ok(());
        }
        let Some((start, block)) = self.block_at(touch.start) else { return Ok(()) };
        let Some(attachment) = self.memory.attachments.get(&start) else { return Ok(()) };
        let ended = self.streams.all.get(&attachment.lane).is_none_or(|stream| stream.destroyed);
        let now = if attachment.now == SINGLE && ended { attachment.first } else { attachment.now };
        if now == GLOBAL || now == SINGLE && attachment.lane == lane {
            return Ok(());
        }
        let whose = if now == HOST { "the host".into() } else { format!("stream {}", attachment.lane) };
        Err((Fault::NoAccess, format!("{} is attached to {whose}", block.describe(start))))
    }
}
