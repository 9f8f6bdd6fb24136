//! A device: what it holds of the driver.
//!
//! Promises upward: the contexts of other devices, each retained once.
//! Asks from below: `primary`, which retains and releases contexts. `open` fills and ends what stands here.

use crate::context::{PrimaryContext, device};
use crate::result_codes;
use std::sync::OnceLock;
use terrace_device::{Description, Fault};

/// A CUDA device, and a reference to its primary context.
///
/// Everything that was taken from it must be given back before it is dropped: what is left then stays with the context, which
/// lives until the last library of the process gives it up.
pub struct Cuda {
    pub(crate) primary: PrimaryContext,
    /// Our own stream, for the driver's pool and for trials.
    pub(crate) stream: u64,
    /// The driver's pool, where the device has [`Capabilities::DRIVER_POOL`].
    pub(crate) pool: Option<u64>,
    /// Contexts of other devices by ordinal, from the first use on.
    pub(crate) peers: Box<[OnceLock<PrimaryContext>]>,
    pub(crate) description: Description,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cuda").field(&self.description).finish()
    }
}

impl Cuda {
    /// The context of another device, kept from its first use on.
    pub(crate) fn peer_context(&self, ordinal: u32) -> Result<&PrimaryContext, Fault> {
        if ordinal == self.description.ordinal {
            return Ok(&self.primary);
        }
        let slot =
            self.peers.get(ordinal as usize).ok_or(result_codes::fault("cuDeviceGet", result_codes::INVALID_DEVICE))?;
        if let Some(peer) = slot.get() {
            return Ok(peer);
        }
        let functions = self.primary.functions;
        self.primary.check_process("cuDeviceGet")?;
        let peer = PrimaryContext::retain(functions, device(functions, ordinal)?)?;
        // Of two threads that come here at once, one gives its reference back.
        Ok(slot.get_or_init(|| peer))
    }

    /// Whether another device can use this one's memory.
    pub(crate) fn is_accessible_from(&self, ordinal: u32) -> Result<bool, Fault> {
        self.can_access_peer(ordinal, true)
    }

    /// Whether this device can use another's memory; or, if `back`, the other way round.
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
