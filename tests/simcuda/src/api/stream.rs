//! Streams.

use super::valid;
use crate::abi::codes::NOT_READY;
use crate::abi::{Out, Outcome, c_int, c_uint, c_ulonglong, c_void};
use crate::gate::exports;
use crate::machine::World;
use crate::machine::context::Here;
use crate::streams::{HostFunction, Node, Work, synchronise};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// `CUhostFn`; `None` is null.
type Callback = Option<extern "C" fn(*mut c_void)>;

exports! {
    /// A stream.
    Context fn cuStreamCreate(world, here, stream: Out<u64>, flags: c_uint) {
        valid(flags & !NON_BLOCKING == 0)?;
        stream.check()?;
        stream.put(world.streams.create(here.context, here.device, flags, 0))
    }

    /// A stream with a priority. It changes nothing here.
    Context fn cuStreamCreateWithPriority(world, here, stream: Out<u64>, flags: c_uint, priority: c_int) {
        valid(flags & !NON_BLOCKING == 0)?;
        stream.check()?;
        stream.put(world.streams.create(here.context, here.device, flags, priority.clamp(-5, 0)))
    }

    /// The handle is gone at once; what is on the stream still runs.
    Context fn cuStreamDestroy_v2(world, here, stream: u64) {
        // Default streams cannot be destroyed.
        if stream <= 2 {
            return Err(crate::abi::codes::INVALID_HANDLE);
        }
        let lane = world.named_lane(stream, "cuStreamDestroy")?;
        let _ = world.not_capturing(lane);
        world.streams.destroy(lane);
        Ok(())
    }

    /// Waits for all that is on the stream.
    Context fn cuStreamSynchronize(world, here, stream: u64) {
        let lane = world.lane(here, stream, "cuStreamSynchronize")?;
        world.not_capturing(lane)?;
        let targets = world.targets_of(lane);
        synchronise(world, &targets, "cuStreamSynchronize")?;
        world.here(here.context).map(drop)
    }

    /// Whether all that is on the stream is done.
    Context fn cuStreamQuery(world, here, stream: u64) {
        let lane = world.lane(here, stream, "cuStreamQuery")?;
        world.not_capturing(lane)?;
        let targets = world.targets_of(lane);
        if !targets.iter().all(|(lane, sequence)| world.streams.is_done(*lane, *sequence)) {
            return Err(NOT_READY);
        }
        synchronise(world, &targets, "cuStreamQuery")
    }

    /// What comes next on the stream comes after the event, of this context or another.
    Context fn cuStreamWaitEvent(world, here, stream: u64, event: u64, flags: c_uint) {
        valid(flags <= 1)?;
        let lane = world.lane(here, stream, "cuStreamWaitEvent")?;
        world.wait_event(lane, event)
    }

    /// A number for the stream that never comes again.
    Context fn cuStreamGetId(world, here, stream: u64, id: Out<c_ulonglong>) {
        let lane = world.lane(here, stream, "cuStreamGetId")?;
        id.put(lane as c_ulonglong + 1)
    }

    /// Its context.
    Context fn cuStreamGetCtx(world, here, stream: u64, context: Out<u64>) {
        let lane = world.lane(here, stream, "cuStreamGetCtx")?;
        context.put(world.streams.all.get(&lane).map_or(0, |stream| stream.context))
    }

    /// Its green context where it has one, and otherwise its context; null in place of the other.
    Context fn cuStreamGetCtx_v2(world, here, stream: u64, context: Out<u64>, green: Out<u64>) {
        let lane = world.lane(here, stream, "cuStreamGetCtx")?;
        let of = world.streams.all.get(&lane).map_or(0, |stream| stream.context);
        let found = world.green_of(of);
        context.put(if found.is_some() { 0 } else { of })?;
        green.put(found.unwrap_or(0))
    }

    /// Its device.
    Context fn cuStreamGetDevice(world, here, stream: u64, device: Out<c_int>) {
        let lane = world.lane(here, stream, "cuStreamGetDevice")?;
        device.put(world.streams.all.get(&lane).map_or(0, |stream| stream.device as c_int))
    }

    /// Its flags.
    Context fn cuStreamGetFlags(world, here, stream: u64, flags: Out<c_uint>) {
        let lane = world.lane(here, stream, "cuStreamGetFlags")?;
        flags.put(world.streams.all.get(&lane).map_or(0, |stream| stream.flags))
    }

    /// Its priority.
    Context fn cuStreamGetPriority(world, here, stream: u64, priority: Out<c_int>) {
        let lane = world.lane(here, stream, "cuStreamGetPriority")?;
        priority.put(world.streams.all.get(&lane).map_or(0, |stream| stream.priority))
    }

    /// The stream calls a function of the caller's, which may not call the driver.
    Context fn cuLaunchHostFunc(world, here, stream: u64, function: Callback, argument: usize) {
        launch(world, here, stream, function, argument)
    }

    /// As above; `mode` is how the thread that calls waits for its work: blocked 0, spinning 1. It changes nothing
    /// here.
    Context fn cuLaunchHostFunc_v2(world, here, stream: u64, function: Callback, argument: usize, mode: c_uint) {
        valid(mode <= 1)?;
        launch(world, here, stream, function, argument)
    }
}

fn launch(world: &mut World, here: Here, stream: u64, function: Callback, argument: usize) -> Outcome {
    let lane = world.lane_here(here, stream, "cuLaunchHostFunc")?;
    let function = function.ok_or(crate::abi::codes::INVALID_VALUE)?;
    let work = Work::Host(HostFunction { function, argument });
    world.submit(lane, Node::mark("cuLaunchHostFunc", work)).map(drop)
}
