//! Host memory that the driver pins, or that callers register.

use super::memory::{find_to_free, free_when_idle};
use super::{offered, valid};
use crate::abi::codes::{HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY};
use crate::abi::{Out, Outcome, c_uint};
use crate::functions::Function;
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, World};
use crate::memory::{Arena, Block, Holder};

/// `CU_MEMHOSTALLOC_PORTABLE`, `DEVICEMAP` and `WRITECOMBINED`.
const ALLOCATE_FLAGS: c_uint = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `DEVICEMAP`, `IOMEMORY` and `READ_ONLY`.
const REGISTER_FLAGS: c_uint = 15;

exports! {
    /// Pinned memory.
    Context fn cuMemAllocHost_v2(world, here, pointer: Out<u64>, bytes: usize) {
        allocate(world, here, pointer, bytes, 0)
    }

    /// Pinned memory with flags.
    Context fn cuMemHostAlloc(world, here, pointer: Out<u64>, bytes: usize, flags: c_uint) {
        valid(flags & !ALLOCATE_FLAGS == 0)?;
        allocate(world, here, pointer, bytes, flags)
    }

    /// Frees pinned memory, when the operations on it are done.
    Context fn cuMemFreeHost(world, here, pointer: u64) {
        world.forbidden_in_capture()?;
        free_when_idle(world, here, pointer, Function::cuMemFreeHost, |holder| matches!(holder, Holder::Pinned(_)))
    }

    /// The device's address of pinned or registered memory: the same.
    Context fn cuMemHostGetDevicePointer_v2(world, here, device: Out<u64>, pointer: u64, flags: c_uint) {
        valid(flags == 0 && world.block_at(pointer).is_some_and(|(_, block)| block.is_host()))?;
        device.put(pointer)
    }

    /// Flags of pinned memory.
    Context fn cuMemHostGetFlags(world, here, flags: Out<c_uint>, pointer: u64) {
        match world.block_at(pointer).map(|(_, block)| block.holder) {
            Some(Holder::Pinned(found) | Holder::Registered(found)) => flags.put(found),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Pins memory of the caller's.
    Context fn cuMemHostRegister_v2(world, here, pointer: u64, bytes: usize, flags: c_uint) {
        offered(world.profile.register)?;
        valid(pointer != 0 && bytes != 0 && flags & !REGISTER_FLAGS == 0)?;
        world.forbidden_in_capture()?;
        register(world, here, pointer, bytes as u64, flags)
    }

    /// Ends that, when the operations on it are done. Nothing promises that it waits for them: a program that
    /// unregisters memory in flight is reported.
    Context fn cuMemHostUnregister(world, here, pointer: u64) {
        let registered = |holder| matches!(holder, Holder::Registered(_));
        if !world.memory.blocks.get(&pointer).is_some_and(|block| registered(block.holder)) {
            let _ = find_to_free(world, pointer, "cuMemHostUnregister", registered);
            return Err(HOST_MEMORY_NOT_REGISTERED);
        }
        report_in_flight(world, pointer);
        free_when_idle(world, here, pointer, Function::cuMemHostUnregister, registered)
    }
}

/// A finding, where an operation on registered memory is not done.
fn report_in_flight(world: &mut World, pointer: u64) {
    let Some(block) = world.memory.blocks.get(&pointer) else { return };
    let (bytes, what) = (block.bytes, block.describe(pointer));
    if let Some((lane, sequence)) = world.touching(pointer, bytes).first() {
        let text = format!("cuMemHostUnregister of {what} while operation {sequence} of stream {lane} uses it");
        world.report.add(Fault::FreeWhilePending, text);
    }
}

/// Takes pinned bytes, where a limit leaves so many.
fn pin(world: &mut World, bytes: u64) -> Outcome {
    let limit = world.profile.pinned_limit;
    if limit != 0 && world.memory.pinned.saturating_add(bytes) > limit {
        return Err(OUT_OF_MEMORY);
    }
    world.memory.pinned += bytes;
    Ok(())
}

fn allocate(world: &mut World, here: Here, pointer: Out<u64>, bytes: usize, flags: c_uint) -> Outcome {
    pointer.check()?;
    valid(bytes != 0)?;
    world.forbidden_in_capture()?;
    pin(world, bytes as u64)?;
    let start = world.allocate(here, bytes as u64, Holder::Pinned(flags));
    let start = start.inspect_err(|_| world.memory.pinned -= bytes as u64)?;
    pointer.put(start)
}

fn register(world: &mut World, here: Here, start: u64, bytes: u64, flags: c_uint) -> Outcome {
    let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let below = world.memory.blocks.range(..end).next_back();
    if Arena::has(start) || below.is_some_and(|(at, block)| at + block.bytes > start) {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    pin(world, bytes)?;
    let id = world.memory.next_id();
    let block = Block {
        bytes,
        base: start,
        span: bytes,
        charged: 0,
        holder: Holder::Registered(flags),
        context: world.root(here.context),
        device: here.device,
        id,
        allocated: None,
        freed: None,
    };
    world.memory.blocks.insert(start, block);
    world.races.ledger.forget(start, bytes);
    Ok(())
}
