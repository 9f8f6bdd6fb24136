//! Managed memory: one address on host and device.

use super::pool::not_in_graph;
use super::{offered, valid};
use crate::abi::attributes::{CPU, INVALID_DEVICE as NOWHERE, LOCATION_DEVICE, advise, range};
use crate::abi::codes::{INVALID_DEVICE, INVALID_VALUE};
use crate::abi::{Location, Out, Outcome, c_int, c_uint};
use crate::gate::exports;
use crate::machine::World;
use crate::machine::context::Here;
use crate::memory::check::Hand;
use crate::memory::hints::Said;
use crate::memory::{Arena, Attachment, Holder, attach};
use crate::order::Touch;
use crate::streams::{Node, Work};

exports! {
    /// A managed block. Flags are `CU_MEM_ATTACH_GLOBAL` 1 or `CU_MEM_ATTACH_HOST` 2.
    Context fn cuMemAllocManaged(world, here, pointer: Out<u64>, bytes: usize, flags: c_uint) {
        offered(world.profile.managed)?;
        valid(matches!(flags, 1 | 2))?;
        pointer.check()?;
        world.forbidden_in_capture()?;
        let start = world.allocate(here, bytes as u64, Holder::Managed)?;
        world.memory.attachments.insert(start, Attachment { first: flags, now: flags, lane: 0 });
        pointer.put(start)
    }

    /// A whole managed block is used by all streams, by none, or by this one, from now on. Where the device reads the
    /// host's pages, memory that nobody registered may be named too; it stays as it is.
    Context fn cuStreamAttachMemAsync(world, here, stream: u64, pointer: u64, bytes: usize, flags: c_uint) {
        valid(matches!(flags, attach::GLOBAL | attach::HOST | attach::SINGLE))?;
        // The null stream is no stream of its own.
        valid(flags != attach::SINGLE || stream > 1)?;
        let lane = world.lane_here(here, stream, "cuStreamAttachMemAsync")?;
        not_in_graph(world, lane)?;
        let block = world.memory.blocks.get(&pointer).filter(|block| block.holder == Holder::Managed);
        let whole = block.map(|block| bytes == 0 || bytes as u64 == block.bytes);
        let host = world.profile.pageable && bytes > 0 && !Arena::has(pointer) && pointer != 0;
        valid(whole.unwrap_or(host))?;
        if whole.is_some() {
            world.attach(pointer, flags, lane);
        }
        world.submit(lane, Node::mark("cuStreamAttachMemAsync", Work::Nothing)).map(drop)
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

    /// What was said about all pages of a range: 1 or 0, or a device, or -2 where pages differ.
    Context fn cuMemRangeGetAttribute(
        world, here, data: Out<c_int>, size: usize, attribute: c_int, pointer: u64, bytes: usize,
    ) {
        data.check()?;
        managed(world, pointer, bytes as u64)?;
        valid(size > 0 && size.is_multiple_of(size_of::<c_int>()))?;
        let values = told(&world.memory.hints.of(pointer, bytes as u64), attribute, size / size_of::<c_int>())?;
        values.into_iter().enumerate().try_for_each(|(at, value)| data.after(at).put(value))
    }
}

/// An attribute of a range in words of its own, `room` of them.
fn told(pages: &[Said], attribute: c_int, room: usize) -> Outcome<Vec<c_int>> {
    let same = |place: fn(&Said) -> c_int| {
        let first = pages.first().map_or(NOWHERE, place);
        if pages.iter().all(|said| place(said) == first) { first } else { NOWHERE }
    };
    let one = match attribute {
        range::READ_MOSTLY => c_int::from(pages.iter().all(|said| said.read_mostly)),
        range::PREFERRED_LOCATION => same(|said| said.preferred),
        range::LAST_PREFETCH_LOCATION => same(|said| said.prefetched),
        range::ACCESSED_BY => {
            let all =
                pages.iter().map(|said| said.accessed_by.clone()).reduce(|all, of| &all & &of).unwrap_or_default();
            return Ok(all.into_iter().chain(std::iter::repeat(NOWHERE)).take(room).collect());
        }
        _ => return Err(INVALID_VALUE),
    };
    valid(room == 1)?;
    Ok(vec![one])
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
    world.memory.hints.prefetched(touch.start, touch.bytes, device);
    let node = Node::new("cuMemPrefetchAsync", Hand::Copy, vec![touch], Work::Nothing);
    world.submit(lane, node).map(drop)
}

fn advised(world: &mut World, start: u64, bytes: u64, advice: c_int, device: c_int) -> Outcome {
    valid((advise::SET_READ_MOSTLY..=advise::UNSET_ACCESSED_BY).contains(&advice))?;
    managed(world, start, bytes)?;
    let about_device = matches!(advice, advise::SET_PREFERRED_LOCATION | advise::SET_ACCESSED_BY);
    if about_device {
        concurrent(world, device)?;
    }
    world.memory.hints.advise(start, bytes, advice, device);
    Ok(())
}
