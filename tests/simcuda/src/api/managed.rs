//! Managed memory: one address on host and device.

use super::{offered, valid};
use crate::abi::attributes::{CPU, LOCATION_DEVICE, advise};
use crate::abi::codes::{INVALID_DEVICE, INVALID_VALUE};
use crate::abi::{Location, Out, Outcome, c_int, c_uint};
use crate::gate::exports;
use crate::machine::World;
use crate::machine::context::Here;
use crate::memory::Holder;
use crate::memory::check::Hand;
use crate::order::Touch;
use crate::streams::{Node, Work};

exports! {
    /// A managed block. Flags are `CU_MEM_ATTACH_GLOBAL` 1 or `CU_MEM_ATTACH_HOST` 2.
    Context fn cuMemAllocManaged(world, here, pointer: Out<u64>, bytes: usize, flags: c_uint) {
        offered(world.profile.managed)?;
        valid(matches!(flags, 1 | 2))?;
        pointer.check()?;
        world.forbidden_in_capture()?;
        pointer.put(world.allocate(here, bytes as u64, Holder::Managed)?)
    }

    /// Moves managed memory ahead of its use.
    Context fn cuMemPrefetchAsync(world, here, pointer: u64, bytes: usize, device: c_int, stream: u64) {
        prefetch(world, here, Touch::read(pointer, bytes as u64), device, stream)
    }

    /// As above, to a location.
    Context fn cuMemPrefetchAsync_v2(
        world, here, pointer: u64, bytes: usize, location: Location, flags: c_uint, stream: u64,
    ) {
        valid(flags == 0)?;
        prefetch(world, here, Touch::read(pointer, bytes as u64), device_of(location), stream)
    }

    /// Says how managed memory will be used.
    Context fn cuMemAdvise(world, here, pointer: u64, bytes: usize, advice: c_int, device: c_int) {
        advised(world, pointer, bytes as u64, advice, device)
    }

    /// As above, with a location.
    Context fn cuMemAdvise_v2(world, here, pointer: u64, bytes: usize, advice: c_int, location: Location) {
        advised(world, pointer, bytes as u64, advice, device_of(location))
    }
}

/// The device of a location; the host's number for any place of the host.
fn device_of(location: Location) -> c_int {
    if location.kind == LOCATION_DEVICE { location.id } else { CPU }
}

/// Refuses what is not all in one managed block.
fn managed(world: &World, start: u64, bytes: u64) -> Outcome {
    let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let found = world.block_at(start).filter(|(_, block)| block.holder == Holder::Managed);
    valid(bytes > 0 && found.is_some_and(|(at, block)| end <= at + block.bytes))
}

/// Only devices that may use managed memory while the host does take prefetches and hints about themselves.
fn concurrent(world: &World, device: c_int) -> Outcome {
    if device != CPU {
        world.ordinal(device)?;
    }
    if world.profile.concurrent_managed { Ok(()) } else { Err(INVALID_DEVICE) }
}

fn prefetch(world: &mut World, here: Here, touch: Touch, device: c_int, stream: u64) -> Outcome {
    let lane = world.lane_here(here, stream, "cuMemPrefetchAsync")?;
    managed(world, touch.start, touch.bytes)?;
    concurrent(world, device)?;
    let node = Node::new("cuMemPrefetchAsync", Hand::Copy, vec![touch], Work::Nothing);
    world.submit(lane, node).map(drop)
}

fn advised(world: &World, start: u64, bytes: u64, advice: c_int, device: c_int) -> Outcome {
    valid((advise::SET_READ_MOSTLY..=advise::UNSET_ACCESSED_BY).contains(&advice))?;
    managed(world, start, bytes)?;
    let about_device = matches!(advice, advise::SET_PREFERRED_LOCATION | advise::SET_ACCESSED_BY);
    if about_device { concurrent(world, device) } else { Ok(()) }
}
