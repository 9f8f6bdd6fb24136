//! Devices and their contexts.
//!
//! Upward: a primary context lives while it is retained, one that a program made until it is destroyed; a lost one
//! gives its error to every call until then.

use super::{GreenPart, World};
use crate::abi::codes::{INVALID_CONTEXT, INVALID_DEVICE, OUT_OF_MEMORY};
use crate::abi::{Code, Outcome, c_int, c_uint};
use std::collections::{BTreeMap, BTreeSet};

/// A device.
#[derive(Default)]
pub struct Device {
    /// The primary context, while it is retained.
    pub context: Option<u64>,
    /// Flags for the next one.
    pub flags: c_uint,
    /// Bytes of its memory in use, without what contexts take for themselves.
    pub used: u64,
    /// Bytes that other programs use.
    pub occupied: u64,
    /// The pool that `cuMemAllocAsync` takes from, once somebody asked for it.
    pub pool: Option<u64>,
    /// The pool it has had from the start.
    pub default_pool: Option<u64>,
}

/// A context.
pub struct Context {
    /// Its device.
    pub device: usize,
    /// The flags of `cuCtxCreate`; `None` for the device's primary context and green ones.
    pub own: Option<c_uint>,
    /// Set where it stands for a green context.
    pub green: Option<GreenPart>,
    /// `cuDevicePrimaryCtxRetain` minus `cuDevicePrimaryCtxRelease`: at least 1. Always 1 of others.
    pub retained: u64,
    /// The error that every call gives from now on.
    pub lost: Option<Code>,
    /// Other contexts whose memory operations of this one may use.
    pub peers: BTreeSet<u64>,
    /// By `CUlimit`, those that were set.
    pub limits: BTreeMap<c_int, usize>,
}

impl Context {
    /// A context that was just made.
    pub fn new(device: usize, own: Option<c_uint>) -> Context {
        Context { device, own, green: None, retained: 1, lost: None, peers: BTreeSet::new(), limits: BTreeMap::new() }
    }
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
        let device = self.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
        self.loss(context).map_or(Ok(Here { context, device }), Err)
    }

    /// The error of a lost context; a green one is lost with its device's primary context.
    pub fn loss(&self, context: u64) -> Option<Code> {
        self.contexts.get(self.root(context)).and_then(|context| context.lost)
    }

    /// Refuses one more context where the device has no memory left that it would take for itself.
    pub fn room_for_context(&self, device: usize) -> Outcome {
        if self.left(device) < self.profile.overhead { Err(OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// The error of the device's primary context, where it is lost: memory that belongs to no context fails with it.
    pub fn device_works(&self, device: usize) -> Outcome {
        let context = self.devices.get(device).and_then(|device| device.context);
        context.and_then(|context| self.contexts.get(context)).and_then(|context| context.lost).map_or(Ok(()), Err)
    }

    /// Every call in this context gives `code` from now on; the first code stays.
    pub fn lose(&mut self, context: u64, code: Code) {
        if let Some(context) = self.contexts.get_mut(self.root(context)) {
            context.lost.get_or_insert(code);
        }
    }

    /// Whether operations of a context reach memory that was allocated in another.
    pub fn reaches(&self, context: u64, other: u64) -> bool {
        let root = self.root(context);
        root == other || self.contexts.get(root).is_some_and(|context| context.peers.contains(&other))
    }

    /// Whether the context is lost or gone.
    pub fn is_lost(&self, context: u64) -> bool {
        self.contexts.get(context).is_none() || self.loss(context).is_some()
    }
}
