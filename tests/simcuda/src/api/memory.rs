//! Device memory, a block a call.

use super::valid;
use crate::abi::codes::INVALID_VALUE;
use crate::abi::{Out, Outcome};
use crate::functions::Function;
use crate::gate::{exports, of_thread};
use crate::machine::context::Here;
use crate::machine::{Fault, Held, current};
use crate::memory::{Arena, Holder};
use crate::streams::wait_for;

exports! {
    /// Free and all memory of the thread's device.
    Context fn cuMemGetInfo_v2(world, here, free: Out<usize>, total: Out<usize>) {
        free.put_if_wanted(world.free_memory(here.device) as usize);
        total.put_if_wanted(world.profile.total as usize);
        Ok(())
    }

    /// A block.
    Context fn cuMemAlloc_v2(world, here, pointer: Out<u64>, bytes: usize) {
        pointer.check()?;
        world.forbidden_in_capture()?;
        pointer.put(world.allocate(here, bytes as u64, Holder::Device)?)
    }

    /// Frees a block of any call that allocates device memory, when the operations on it are done.
    ///
    /// The thread's context may be another than the block's, or none.
    Driver fn cuMemFree_v2(world, here, pointer: u64) {
        let here = place(world, pointer)?;
        world.forbidden_in_capture()?;
        free_when_idle(world, here, pointer, Function::cuMemFree_v2, freed_here)
    }

    /// The block that has this byte.
    Context fn cuMemGetAddressRange_v2(world, here, base: Out<u64>, bytes: Out<usize>, pointer: u64) {
        let found = world.block_at(pointer).filter(|(_, block)| block.freed.is_none());
        let found = found.map(|(start, block)| (start, block.bytes));
        let mapped = || world.mapping_at(pointer).map(|(start, mapping)| (start, mapping.bytes));
        let (start, length) = found.or_else(mapped).ok_or(crate::abi::codes::NOT_FOUND)?;
        base.put_if_wanted(start);
        bytes.put_if_wanted(length as usize);
        Ok(())
    }
}

/// What `cuMemFree` frees.
fn freed_here(holder: Holder) -> bool {
    matches!(holder, Holder::Device | Holder::Managed | Holder::Pool(_))
}

/// The block's context; for memory of a pool, which is the device's, the thread's where it has one.
fn place(held: &mut Held, pointer: u64) -> Outcome<Here> {
    let thread = if current::top(held.generation) == 0 { None } else { Some(of_thread(held)?) };
    find_to_free(held, pointer, Function::cuMemFree_v2.name(), freed_here)?;
    let block = held.memory.blocks.get(&pointer).ok_or(INVALID_VALUE)?;
    let pooled = matches!(block.holder, Holder::Pool(_));
    thread.filter(|_| pooled).map_or_else(|| held.here(block.context), Ok)
}

/// Frees a block once nothing on it runs. The real call waits for more, so a wait is counted where anything in the
/// context is under way; the host learns nothing by it, for nothing promises that it waits.
pub(super) fn free_when_idle(
    held: &mut Held,
    here: Here,
    pointer: u64,
    function: Function,
    mine: impl Fn(Holder) -> bool,
) -> Outcome {
    find_to_free(held, pointer, function.name(), mine)?;
    let all = held.targets_of_context(here.context);
    if !all.iter().all(|(lane, sequence)| held.streams.is_done(*lane, *sequence)) {
        held.tally.waited(function);
    }
    let Some(bytes) = held.memory.blocks.get(&pointer).map(|block| block.bytes) else { return Ok(()) };
    let targets = held.touching(pointer, bytes);
    wait_for(held, &targets, function.name())?;
    held.here(here.context)?;
    match held.memory.blocks.get(&pointer).map(|block| block.holder) {
        Some(Holder::Pool(_)) => held.pool_free_now(pointer, function.name()),
        _ => held.free_block(pointer, function.name()),
    }
    Ok(())
}

/// Refuses what is no block, or not one of this call's, and says which mistake it was.
pub(super) fn find_to_free(held: &mut Held, pointer: u64, call: &str, mine: impl Fn(Holder) -> bool) -> Outcome {
    if let Some(block) = held.memory.blocks.get(&pointer).filter(|block| mine(block.holder)) {
        let Some(earlier) = &block.freed else { return Ok(()) };
        let text = format!("{call} of {}, freed by {earlier}", block.describe(pointer));
        held.report.add(Fault::DoubleFree, text);
        return Err(INVALID_VALUE);
    }
    let (fault, text) = match (held.block_at(pointer), held.memory.past(pointer)) {
        (Some((start, block)), _) if start == pointer => {
            (Fault::BadHandle, format!("{call} of {}", block.describe(start)))
        }
        (Some((start, block)), _) => {
            (Fault::BadHandle, format!("{call} of {pointer:#x}, which is inside {}", block.describe(start)))
        }
        (None, Some(past)) => (Fault::DoubleFree, format!("{call} of {pointer:#x} of {past}")),
        (None, None) => {
            let whose = if Arena::has(pointer) { "was never allocated" } else { "is no device memory" };
            (Fault::BadHandle, format!("{call} of {pointer:#x}, which {whose}"))
        }
    };
    held.report.add(fault, text);
    valid(false)
}
