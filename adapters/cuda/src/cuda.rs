//! The type [`Cuda`]: a device and the driver objects that it owns.
//!
//! Promises upward: the context of each other device is retained at most once.
//! Asks from below: `context`, which retains and releases contexts. `open` makes a [`Cuda`] and drops it.

use crate::context::{PrimaryContext, device};
use crate::result_codes;
use std::sync::OnceLock;
use terrace_device::{Description, Fault};

/// A CUDA device, and a reference to its primary context; or a device of a driver that mirrors CUDA's.
///
/// The caller must free all memory, streams and events before dropping this value. Whatever is not freed stays
/// allocated until the last library of the process releases the primary context.
pub struct Cuda {
    pub(crate) primary: PrimaryContext,
    /// A stream that this value owns, for the driver's pool and for probes.
    pub(crate) stream: u64,
    /// The driver's pool, if the device has [`Capabilities::DRIVER_POOL`](terrace_device::Capabilities::DRIVER_POOL).
    pub(crate) pool: Option<u64>,
    /// Contexts of other devices by ordinal, retained at first use.
    pub(crate) peers: Box<[OnceLock<PrimaryContext>]>,
    pub(crate) description: Description,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cuda").field(&self.description).finish()
    }
}

impl Cuda {
    /// The context of another device, retained at first use.
    pub(crate) fn peer_context(&self, ordinal: u32) -> Result<&PrimaryContext, Fault> {
        if ordinal == self.description.ordinal {
            return Ok(&self.primary);
        }
        let unknown = || self.primary.functions.dialect.fault("cuDeviceGet", result_codes::INVALID_DEVICE);
        let slot = self.peers.get(ordinal as usize).ok_or_else(unknown)?;
        if let Some(peer) = slot.get() {
            return Ok(peer);
        }
        let functions = self.primary.functions;
        self.primary.check_process("cuDeviceGet")?;
        let peer = PrimaryContext::retain(functions, device(functions, ordinal)?)?;
        // If two threads race here, the loser drops its own reference, and so releases the context that it retained.
        Ok(slot.get_or_init(|| peer))
    }

    /// Whether another device can access this device's memory.
    pub(crate) fn is_accessible_from(&self, ordinal: u32) -> Result<bool, Fault> {
        self.can_access_peer(ordinal, true)
    }

    /// Whether this device can access the other's memory; with `back`, whether the other can access this one's.
    pub(crate) fn can_access_peer(&self, ordinal: u32, back: bool) -> Result<bool, Fault> {
        let Ok(peers) = &self.primary.functions.peers else { return Ok(false) };
        let mut can = 0;
        self.primary.check_process("cuDeviceGet")?;
        let (own, other) = (self.primary.device, device(self.primary.functions, ordinal)?);
        let (from, to) = if back { (other, own) } else { (own, other) };
        self.primary.call("cuDeviceCanAccessPeer", |_| {
            // SAFETY: the out parameter lives through the call.
            unsafe { (peers.cuDeviceCanAccessPeer)(&raw mut can, from, to) }
        })?;
        Ok(can != 0)
    }
}
