//! Contexts that a program makes for itself, beside the primary context of a device.
//!
//! Each has streams, events, modules, limits and memory of its own: launches and memsets of one context do not reach
//! what `cuMemAlloc` gave another, also on the same device, and copies do. Memory of pools, pages, managed memory and
//! the host's is every context's.

use super::context::{destroy, exists};
use super::valid;
use crate::abi::codes::{INVALID_CONTEXT, NOT_SUPPORTED, UNSUPPORTED_EXEC_AFFINITY};
use crate::abi::{ContextParameters, In, Out, Outcome, c_int, c_uint};
use crate::gate::exports;
use crate::machine::{Context, World, current};

/// `CU_CTX_FLAGS_MASK`, and the ways to wait, of which there is one at most.
const FLAGS: c_uint = 0xFF;
const WAYS: [c_uint; 4] = [0, 1, 2, 4];

exports! {
    /// A new context, which becomes the thread's; the one before it is back when the new one is popped or ends.
    Driver fn cuCtxCreate_v2(world, here, context: Out<u64>, flags: c_uint, device: c_int) {
        create(world, context, flags, device)
    }

    /// As above; limits to a part of the device's processors need a server that shares it, and there is none.
    Driver fn cuCtxCreate_v3(world, here, context: Out<u64>, limits: In<u8>, count: c_int, flags: c_uint, device: c_int) {
        whole_device(limits, count)?;
        create(world, context, flags, device)
    }

    /// As above, with further parameters in one place. Nothing here shares a device with a program for graphics.
    Driver fn cuCtxCreate_v4(
        world, here, context: Out<u64>, parameters: In<ContextParameters>, flags: c_uint, device: c_int,
    ) {
        if !parameters.is_null() {
            let asked = parameters.get()?;
            whole_device(asked.limits, asked.count)?;
            if !asked.graphics.is_null() {
                return Err(NOT_SUPPORTED);
            }
        }
        create(world, context, flags, device)
    }

    /// Ends such a context and all in it, but not memory of `cuMemAllocAsync` and `cuMemCreate`, which is the device's.
    /// The thread loses it where it is the thread's; other threads keep a context that is destroyed.
    Driver fn cuCtxDestroy_v2(world, here, context: u64) {
        exists(world, context, "cuCtxDestroy").map_err(|_| INVALID_CONTEXT)?;
        let found = world.contexts.get(context).filter(|context| context.own.is_some());
        let device = found.ok_or(INVALID_CONTEXT)?.device;
        destroy(world, context, device, "cuCtxDestroy")?;
        if current::top(world.generation) == context {
            current::pop(world.generation)?;
        }
        Ok(())
    }
}

fn whole_device(limits: In<u8>, count: c_int) -> Outcome {
    valid(limits.is_null() == (count == 0))?;
    if limits.is_null() { Ok(()) } else { Err(UNSUPPORTED_EXEC_AFFINITY) }
}

fn create(world: &mut World, context: Out<u64>, flags: c_uint, device: c_int) -> Outcome {
    context.check()?;
    valid(flags & !FLAGS == 0 && WAYS.contains(&(flags & 7)))?;
    let device = world.ordinal(device)?;
    world.room_for_context(device)?;
    let handle = world.contexts.insert(Context::new(device, Some(flags)));
    if let Err(code) = current::push(world.generation, handle) {
        world.contexts.remove(handle);
        return Err(code);
    }
    context.put(handle)
}
