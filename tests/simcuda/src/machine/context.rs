//! Devices and their primary contexts.
//!
//! Upward: a context lives while it is retained; a lost one gives its error to every call until it is released for the
//! last time.

use super::World;
use crate::abi::codes::{INVALID_CONTEXT, INVALID_DEVICE};
use crate::abi::{Code, Outcome, c_int, c_uint};
use std::collections::BTreeSet;

/// A device.
#[derive(Default)]
pub struct Device {
    /// The primary context, while it is retained.
    pub context: Option<u64>,
    /// Flags for the next one.
    pub flags: c_uint,
    /// Bytes of its memory in use, without what contexts take for themselves.
    pub used: u64,
    /// The pool that `cuMemAllocAsync` takes from, once somebody asked for it.
    pub pool: Option<u64>,
    /// The pool it has had from the start.
    pub default_pool: Option<u64>,
}

/// A primary context.
pub struct Context {
    /// Its device.
    pub device: usize,
    /// `cuDevicePrimaryCtxRetain` minus `cuDevicePrimaryCtxRelease`: at least 1.
    pub retained: u64,
    /// The error that every call gives from now on.
    pub lost: Option<Code>,
    /// Devices whose memory operations of this context may use.
    pub peers: BTreeSet<usize>,
    /// By `CUlimit`, those that were set.
    pub limits: std::collections::BTreeMap<c_int, usize>,
}

/// Where a call is made: the thread's current context.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// The context.
    pub context: u64,
    /// Its device.
    pub device: usize,
}

impl World {
    /// A device by its number from outside.
    pub fn ordinal(&self, device: c_int) -> Outcome<usize> {
        usize::try_from(device).ok().filter(|device| *device < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    /// A context that is not lost.
    pub fn here(&self, context: u64) -> Outcome<Here> {
        let found = self.contexts.get(context).ok_or(INVALID_CONTEXT)?;
        found.lost.map_or(Ok(Here { context, device: found.device }), Err)
    }

    /// The error of the device's primary context, where it is lost: memory that belongs to no context fails with it.
    pub fn device_works(&self, device: usize) -> Outcome {
        let context = self.devices.get(device).and_then(|device| device.context);
        context.and_then(|context| self.contexts.get(context)).and_then(|context| context.lost).map_or(Ok(()), Err)
    }

    /// Every call in this context gives `code` from now on; the first code stays.
    pub fn lose(&mut self, context: u64, code: Code) {
        if let Some(context) = self.contexts.get_mut(context) {
            context.lost.get_or_insert(code);
        }
    }

    /// Whether operations of a context on `from` reach memory of device `to`.
    pub fn reaches(&self, context: u64, from: usize, to: usize) -> bool {
        from == to || self.contexts.get(context).is_some_and(|context| context.peers.contains(&to))
    }

    /// Whether the context is lost or gone.
    pub fn is_lost(&self, context: u64) -> bool {
        self.contexts.get(context).is_none_or(|context| context.lost.is_some())
    }
}
