//! Addresses and physical memory.

use super::{offered, valid};
use crate::abi::attributes::{ALLOCATION_PINNED, LOCATION_DEVICE, handle_type};
use crate::abi::codes::{INVALID_DEVICE, INVALID_VALUE};
use crate::abi::{Access, In, Location, Out, Outcome, Properties, c_int, c_ulonglong};
use crate::gate::exports;
use crate::latency::length;
use crate::machine::{Fault, Held, World, current};
use crate::streams::settle;

exports! {
    /// Addresses; at `hint` where they are free.
    Driver fn cuMemAddressReserve(
        world, here, pointer: Out<u64>, bytes: usize, align: usize, hint: u64, flags: c_ulonglong,
    ) {
        usable(world)?;
        valid(flags == 0)?;
        length(bytes);
        pointer.check()?;
        pointer.put(world.reserve(bytes as u64, align as u64, hint)?)
    }

    /// Gives them back, all at once and with nothing mapped.
    Driver fn cuMemAddressFree(world, here, pointer: u64, bytes: usize) {
        usable(world)?;
        length(bytes);
        world.unreserve(pointer, bytes as u64)
    }

    /// Physical memory. Descriptors of files are the way to share it.
    Driver fn cuMemCreate(world, here, handle: Out<u64>, bytes: usize, properties: In<Properties>, flags: c_ulonglong) {
        usable(world)?;
        length(bytes);
        handle.check()?;
        valid(flags == 0)?;
        let asked = properties.get()?;
        let device = device_of(world, asked)?;
        shareable(asked.handle_types, handle_type::POSIX_FILE_DESCRIPTOR)?;
        world.device_works(device)?;
        handle.put(world.create(device, bytes as u64, asked)?)
    }

    /// Gives it back, when nothing shows it any more.
    Driver fn cuMemRelease(world, here, handle: u64) {
        usable(world)?;
        works(world, world.memory.physical.get(handle).map(|memory| memory.device))?;
        world.release(handle)
    }

    /// Shows a whole handle at reserved addresses; nobody may touch them yet.
    Driver fn cuMemMap(world, here, pointer: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) {
        usable(world)?;
        length(bytes);
        valid(flags == 0 && offset == 0)?;
        works(world, world.memory.physical.get(handle).map(|memory| memory.device))?;
        world.map(pointer, bytes as u64, handle)
    }

    /// Takes whole mappings away. Operations on them must be done, and the host must know it.
    Driver fn cuMemUnmap(world, here, pointer: u64, bytes: usize) {
        usable(world)?;
        length(bytes);
        unmap(world, pointer, bytes as u64)
    }

    /// Lets devices use whole mappings.
    Driver fn cuMemSetAccess(world, here, pointer: u64, bytes: usize, access: In<Access>, count: usize) {
        usable(world)?;
        length(bytes);
        let starts = world.whole_mappings(pointer, bytes as u64)?;
        for wanted in access.all(count)? {
            valid(wanted.location.kind == LOCATION_DEVICE && matches!(wanted.flags, 0 | 1 | 3))?;
            let device = world.ordinal(wanted.location.id)?;
            world.device_works(device)?;
            let stranger = starts.iter().filter_map(|start| world.memory.mappings.get(start));
            if stranger.into_iter().any(|mapping| mapping.device != device) && !world.profile.peers {
                return Err(INVALID_DEVICE);
            }
            settle(world, pointer, bytes as u64)?;
            world.set_access(&starts, device, wanted.flags)?;
        }
        Ok(())
    }

    /// What a device may do with a mapping.
    Driver fn cuMemGetAccess(world, here, flags: Out<c_ulonglong>, location: In<Location>, pointer: u64) {
        usable(world)?;
        let device = world.ordinal(location.get()?.id)?;
        let (_, mapping) = world.mapping_at(pointer).ok_or(INVALID_VALUE)?;
        flags.put(mapping.access.get(&device).copied().unwrap_or(0) as c_ulonglong)
    }

    /// Sizes that physical memory comes in: the least (0) or the best (1).
    Driver fn cuMemGetAllocationGranularity(world, here, bytes: Out<usize>, properties: In<Properties>, option: c_int) {
        usable(world)?;
        device_of(world, properties.get()?)?;
        match option {
            0 => bytes.put(world.profile.granularity as usize),
            1 => bytes.put(world.profile.recommended_granularity as usize),
            _ => Err(INVALID_VALUE),
        }
    }

    /// What physical memory was made with.
    Driver fn cuMemGetAllocationPropertiesFromHandle(world, here, properties: Out<Properties>, handle: u64) {
        usable(world)?;
        properties.put(world.memory.physical.get(handle).ok_or(INVALID_VALUE)?.properties)
    }

    /// A descriptor of physical memory, which lives while it is open.
    Driver fn cuMemExportToShareableHandle(
        world, here, descriptor: Out<c_int>, handle: u64, kind: c_int, flags: c_ulonglong,
    ) {
        usable(world)?;
        descriptor.check()?;
        valid(flags == 0)?;
        works(world, world.memory.physical.get(handle).map(|memory| memory.device))?;
        descriptor.put(world.export(handle, kind)?)
    }

    /// One more holder of the memory behind a descriptor: the same handle.
    ///
    /// Memory of other processes is not supported.
    Driver fn cuMemImportFromShareableHandle(world, here, handle: Out<u64>, descriptor: usize, kind: c_int) {
        usable(world)?;
        handle.check()?;
        valid(kind.count_ones() == 1)?;
        shareable(kind, handle_type::POSIX_FILE_DESCRIPTOR)?;
        handle.put(world.import(descriptor)?)
    }

    /// One more holder of the memory behind an address.
    Driver fn cuMemRetainAllocationHandle(world, here, handle: Out<u64>, pointer: u64) {
        usable(world)?;
        let found = world.mapping_at(pointer).ok_or(INVALID_VALUE)?.1.handle;
        world.memory.physical.get_mut(found).ok_or(INVALID_VALUE)?.references += 1;
        handle.put(found)
    }
}

/// Whether there is such a thing, and the thread's context, if it has one, is not lost.
fn usable(world: &World) -> Outcome {
    offered(world.profile.vmm)?;
    match current::top(world.generation) {
        0 => Ok(()),
        context => world.loss(context).map_or(Ok(()), Err),
    }
}

fn works(world: &World, device: Option<usize>) -> Outcome {
    device.map_or(Ok(()), |device| world.device_works(device))
}

/// Refuses bits that are no ways to share memory, and ways that are not among those that are offered.
pub(super) fn shareable(kinds: c_int, offers: c_int) -> Outcome {
    use handle_type::{FABRIC, POSIX_FILE_DESCRIPTOR, WIN32, WIN32_KMT};
    valid(kinds & !(POSIX_FILE_DESCRIPTOR | WIN32 | WIN32_KMT | FABRIC) == 0)?;
    offered(kinds & !offers == 0)
}

fn device_of(world: &World, properties: Properties) -> Outcome<usize> {
    valid(properties.kind == ALLOCATION_PINNED && properties.location.kind == LOCATION_DEVICE)?;
    world.ordinal(properties.location.id)
}

fn unmap(held: &mut Held, pointer: u64, bytes: u64) -> Outcome {
    let Ok(starts) = held.whole_mappings(pointer, bytes) else {
        if let Some(past) = held.memory.past(pointer).filter(|_| held.mapping_at(pointer).is_none()) {
            let text = format!("cuMemUnmap of {pointer:#x}+{bytes:#x}: {past}");
            held.report.add(Fault::DoubleFree, text);
        }
        return Err(INVALID_VALUE);
    };
    let devices: Vec<usize> = starts.iter().filter_map(|start| Some(held.memory.mappings.get(start)?.device)).collect();
    devices.into_iter().try_for_each(|device| held.device_works(device))?;
    if let Some(conflict) = held.races.pending(pointer, bytes) {
        let mark = conflict.mark;
        let text = format!(
            "cuMemUnmap of {pointer:#x}+{bytes:#x} while {} #{} of stream {} may still touch {:#x}",
            mark.operation, mark.count, mark.lane, conflict.start
        );
        held.report.add(Fault::FreeWhilePending, text);
    }
    settle(held, pointer, bytes)?;
    starts.iter().for_each(|start| held.unmap(*start));
    Ok(())
}
