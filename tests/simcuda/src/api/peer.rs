//! Devices that use each other's memory.

use super::valid;
use crate::abi::attributes::peer as attribute;
use crate::abi::codes::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
};
use crate::abi::{Out, c_int, c_uint};
use crate::gate::exports;

exports! {
    /// Whether a device reaches the memory of another.
    Driver fn cuDeviceCanAccessPeer(world, here, can: Out<c_int>, device: c_int, other: c_int) {
        let (device, other) = (world.ordinal(device)?, world.ordinal(other)?);
        can.put((device != other && world.profile.peers).into())
    }

    /// How well.
    Driver fn cuDeviceGetP2PAttribute(world, here, value: Out<c_int>, number: c_int, from: c_int, to: c_int) {
        let (from, to) = (world.ordinal(from)?, world.ordinal(to)?);
        if from == to {
            return Err(INVALID_DEVICE);
        }
        value.put(match number {
            attribute::PERFORMANCE_RANK => 0,
            attribute::ACCESS_SUPPORTED => world.profile.peers.into(),
            attribute::NATIVE_ATOMIC_SUPPORTED | attribute::CUDA_ARRAY_ACCESS_SUPPORTED => 0,
            _ => return Err(INVALID_VALUE),
        })
    }

    /// Operations of the thread's context may use memory of another context from now on.
    Context fn cuCtxEnablePeerAccess(world, here, other: u64, flags: c_uint) {
        valid(flags == 0)?;
        let (own, other) = (world.root(here.context), world.root(other));
        let device = world.contexts.get(other).filter(|_| other != own).ok_or(INVALID_CONTEXT)?.device;
        // `cuDeviceCanAccessPeer` says so of a device and itself.
        if device == here.device || !world.profile.peers {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        let context = world.contexts.get_mut(own).ok_or(INVALID_CONTEXT)?;
        if context.peers.insert(other) { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// They may not any more.
    Context fn cuCtxDisablePeerAccess(world, here, other: u64) {
        let (own, other) = (world.root(here.context), world.root(other));
        world.contexts.get(other).ok_or(INVALID_CONTEXT)?;
        let context = world.contexts.get_mut(own).ok_or(INVALID_CONTEXT)?;
        if context.peers.remove(&other) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
    }
}
