//! Primary contexts, and the context of each thread.

use crate::abi::codes::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, UNSUPPORTED_LIMIT};
use crate::abi::{Out, Outcome, c_int, c_uint, c_ulonglong};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Context, Fault, Held, World, current};
use crate::memory::Holder;
use crate::order::Lane;
use crate::streams::{synchronise, wait_for};

/// What `cuCtxGetApiVersion` has said since CUDA 3.2.
const API_VERSION: c_uint = 3020;

/// `CU_LIMIT_STACK_SIZE`, `PRINTF_FIFO_SIZE`, `MALLOC_HEAP_SIZE`, `DEV_RUNTIME_SYNC_DEPTH`,
/// `DEV_RUNTIME_PENDING_LAUNCH_COUNT`, `MAX_L2_FETCH_GRANULARITY`, `PERSISTING_L2_CACHE_SIZE`: by number, as they
/// begin.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 128, 0];

exports! {
    /// One more holder of the device's context, which begins with the first.
    Driver fn cuDevicePrimaryCtxRetain(world, here, context: Out<u64>, device: c_int) {
        let device = world.ordinal(device)?;
        context.check()?;
        context.put(retain_primary(world, device))
    }

    /// One holder less. With the last one everything in the context ends.
    Driver fn cuDevicePrimaryCtxRelease_v2(world, here, device: c_int) {
        let device = world.ordinal(device)?;
        release_primary(world, device, "cuDevicePrimaryCtxRelease")
    }

    /// Ends the context, however many hold it.
    Driver fn cuDevicePrimaryCtxReset_v2(world, here, device: c_int) {
        let device = world.ordinal(device)?;
        let primary = world.devices[device].context;
        primary.map_or(Ok(()), |handle| destroy(world, handle, device, "cuDevicePrimaryCtxReset"))
    }

    /// Flags for the next context.
    Driver fn cuDevicePrimaryCtxSetFlags_v2(world, here, device: c_int, flags: c_uint) {
        let device = world.ordinal(device)?;
        world.devices[device].flags = flags;
        Ok(())
    }

    /// Flags, and whether the context is there.
    Driver fn cuDevicePrimaryCtxGetState(world, here, device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let device = world.ordinal(device)?;
        flags.put(world.devices[device].flags)?;
        active.put(world.devices[device].context.is_some().into())
    }

    /// The thread's context; null for none.
    Driver fn cuCtxGetCurrent(world, here, context: Out<u64>) {
        context.put(current::top(world.generation))
    }

    /// Replaces the thread's context; null takes it off.
    Driver fn cuCtxSetCurrent(world, here, context: u64) {
        if context != 0 {
            exists(world, context, "cuCtxSetCurrent")?;
        }
        current::set(world.generation, context)
    }

    /// Puts a context on the thread's stack.
    Driver fn cuCtxPushCurrent_v2(world, here, context: u64) {
        exists(world, context, "cuCtxPushCurrent")?;
        current::push(world.generation, context)
    }

    /// Takes the thread's context off.
    Driver fn cuCtxPopCurrent_v2(world, here, context: Out<u64>) {
        context.put_if_wanted(current::pop(world.generation)?);
        Ok(())
    }

    /// The thread's device.
    Context fn cuCtxGetDevice(world, here, device: Out<c_int>) {
        device.put(here.device as c_int)
    }

    /// A context's device; of the thread's for null.
    Driver fn cuCtxGetDevice_v2(world, here, device: Out<c_int>, context: u64) {
        let context = if context == 0 { current::top(world.generation) } else { context };
        device.put(world.contexts.get(context).ok_or(INVALID_CONTEXT)?.device as c_int)
    }

    /// A number for the context that never comes again.
    Driver fn cuCtxGetId(world, here, context: u64, id: Out<c_ulonglong>) {
        let context = if context == 0 { current::top(world.generation) } else { context };
        world.contexts.get(context).ok_or(INVALID_CONTEXT)?;
        id.put(context)
    }

    /// Flags of the thread's context.
    Context fn cuCtxGetFlags(world, here, flags: Out<c_uint>) {
        let own = world.contexts.get(here.context).and_then(|context| context.own);
        flags.put(own.unwrap_or(world.devices[here.device].flags))
    }

    /// The version of the interface.
    Driver fn cuCtxGetApiVersion(world, here, context: u64, version: Out<c_uint>) {
        version.put(API_VERSION)
    }

    /// Waits for everything in the thread's context.
    Context fn cuCtxSynchronize(world, here) {
        finish(world, here)
    }

    /// Waits for everything in a context; in the thread's for null.
    Driver fn cuCtxSynchronize_v2(world, here, context: u64) {
        let context = if context == 0 { current::top(world.generation) } else { context };
        let of = world.here(context)?;
        finish(world, of)
    }

    /// The least and the greatest priority of streams.
    Context fn cuCtxGetStreamPriorityRange(world, here, least: Out<c_int>, greatest: Out<c_int>) {
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }

    /// A limit of the context.
    Context fn cuCtxGetLimit(world, here, value: Out<usize>, limit: c_int) {
        let first = *usize::try_from(limit).ok().and_then(|at| LIMITS.get(at)).ok_or(UNSUPPORTED_LIMIT)?;
        let set = world.contexts.get(here.context).and_then(|context| context.limits.get(&limit)).copied();
        value.put(set.unwrap_or(first))
    }

    /// Sets it. Nothing here depends on it.
    Context fn cuCtxSetLimit(world, here, limit: c_int, value: usize) {
        usize::try_from(limit).ok().and_then(|at| LIMITS.get(at)).ok_or(UNSUPPORTED_LIMIT)?;
        let context = world.contexts.get_mut(here.context).ok_or(INVALID_CONTEXT)?;
        context.limits.insert(limit, value);
        Ok(())
    }
}

/// One more holder of a device's primary context.
pub(super) fn retain_primary(world: &mut World, device: usize) -> u64 {
    if let Some(handle) = world.devices[device].context {
        world.contexts.get_mut(handle).into_iter().for_each(|found| found.retained += 1);
        return handle;
    }
    let handle = world.contexts.insert(Context::new(device, None));
    world.devices[device].context = Some(handle);
    handle
}

/// One holder less; with the last one the context ends.
pub(super) fn release_primary(held: &mut Held, device: usize, call: &str) -> Outcome {
    let handle = held.devices[device].context.ok_or(INVALID_CONTEXT)?;
    let left = held.contexts.get_mut(handle).map_or(0, |context| {
        context.retained -= 1;
        context.retained
    });
    if left == 0 { destroy(held, handle, device, call) } else { Ok(()) }
}

fn finish(world: &mut Held, of: Here) -> Outcome {
    let lanes: Vec<Lane> = world.targets_of_context(of.context).iter().map(|(lane, _)| *lane).collect();
    lanes.into_iter().try_for_each(|lane| world.not_capturing(lane))?;
    world.forbidden_in_capture()?;
    let targets = world.targets_of_context(of.context);
    synchronise(world, &targets, "cuCtxSynchronize")?;
    world.here(of.context).map(drop)
}

pub(super) fn exists(world: &mut Held, context: u64, call: &str) -> Outcome {
    if world.contexts.get(context).is_some() {
        return Ok(());
    }
    let text = format!("{call} of {}", world.contexts.fate(context));
    world.report.add(Fault::BadHandle, text);
    Err(CONTEXT_IS_DESTROYED)
}

/// Ends a context and all in it. What nobody gave back before is a leak; of a lost context nobody could. Memory of
/// pools ends with a device's primary context only.
pub(super) fn destroy(held: &mut Held, handle: u64, device: usize, call: &str) -> Outcome {
    let targets = held.targets_of_context(handle);
    wait_for(held, &targets, call)?;
    let world: &mut World = held;
    let primary = world.contexts.get(handle).ok_or(INVALID_CONTEXT)?.own.is_none();
    let lost = world.is_lost(handle);
    let ends = |holder| primary || !matches!(holder, Holder::Pool(_));
    let blocks = world.memory.blocks.iter().filter(|(_, block)| block.context == handle && block.freed.is_none());
    let blocks = blocks.filter(|(_, block)| ends(block.holder));
    let blocks: Vec<(u64, bool, String)> = blocks
        .map(|(start, block)| (*start, matches!(block.holder, Holder::Pool(_)), block.describe(*start)))
        .collect();
    for (start, pooled, what) in blocks {
        // Variables go with their modules.
        let variable = world.memory.blocks.get(&start).is_some_and(|block| matches!(block.holder, Holder::Variable(_)));
        world.memory.lost.extend((!lost && !variable).then(|| format!("{what}, when its context ended")));
        if pooled {
            world.pool_free_now(start, "the end of its context");
        } else {
            world.free_block(start, "the end of its context");
        }
    }
    let green = world.contexts.iter().filter(|(_, context)| context.green.is_some_and(|green| green.primary == handle));
    let green: Vec<(u64, u64)> = green.filter_map(|(at, context)| Some((at, context.green?.handle))).collect();
    for (context, green) in green {
        world.memory.lost.extend((!lost).then(|| format!("green context {green:#x}, when its device's context ended")));
        end_objects(world, context, lost);
        world.contexts.remove(context);
        world.green.all.remove(green);
    }
    end_objects(world, handle, lost);
    if lost && primary {
        let of_device = world.memory.physical.iter().filter(|(_, memory)| memory.device == device);
        let handles: Vec<u64> = of_device.map(|(handle, _)| handle).collect();
        let reserved: Vec<u64> = world.memory.reservations.keys().copied().collect();
        world.memory.orphans.extend(handles.into_iter().chain(reserved));
    }
    world.contexts.remove(handle);
    if primary {
        world.devices[device].context = None;
    }
    Ok(())
}

fn end_objects(world: &mut World, context: u64, lost: bool) {
    let of_context = |stream: &crate::streams::Stream| stream.context == context;
    let lanes: Vec<Lane> =
        world.streams.all.iter().filter(|(_, stream)| of_context(stream)).map(|(lane, _)| *lane).collect();
    for lane in lanes {
        let Some(stream) = world.streams.all.get(&lane) else { continue };
        let leaks = !lost && stream.handle != 0 && !stream.destroyed;
        let what = format!("{}, when its context ended", stream.describe(lane));
        world.memory.lost.extend(leaks.then_some(what));
        world.streams.destroy(lane);
    }
    end_default_streams(world, context);
    let events = world.events.iter().filter(|(_, event)| event.context == context).map(|(handle, _)| handle);
    let lines: Vec<String> = events.map(|event| format!("event {event:#x}, when its context ended")).collect();
    let modules = world.modules.iter().filter(|(_, module)| module.context == context && module.library.is_none());
    let modules = modules.map(|(handle, _)| handle);
    let modules = modules.map(|module| format!("module {module:#x}, when its context ended"));
    let links = world.links.iter().filter(|(_, link)| link.context == context);
    let links = links.map(|(handle, _)| format!("link {handle:#x}, when its context ended"));
    let lines: Vec<String> = lines.into_iter().chain(modules).chain(links).filter(|_| !lost).collect();
    world.memory.lost.extend(lines);
    world.events.retain(|event| event.context != context);
    world.modules.retain(|module| module.context != context);
    world.links.retain(|link| link.context != context);
    world.forget_functions();
}

/// Ends the default streams of a context. Those with a handle stay.
pub(super) fn end_default_streams(world: &mut World, context: u64) {
    let lanes = world.streams.all.iter().filter(|(_, stream)| stream.context == context && stream.handle == 0);
    let lanes: Vec<Lane> = lanes.map(|(lane, _)| *lane).collect();
    lanes.into_iter().for_each(|lane| world.streams.destroy(lane));
    world.streams.legacy.remove(&context);
    world.streams.threads.retain(|(of, _), _| *of != context);
}

/// For families that a profile has not.
pub(super) fn offered(offered: bool) -> Outcome {
    if offered { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// For arguments that are not as they must be.
pub(super) fn valid(valid: bool) -> Outcome {
    if valid { Ok(()) } else { Err(INVALID_VALUE) }
}
