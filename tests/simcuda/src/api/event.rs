//! Events.

use super::valid;
use crate::abi::codes::{INVALID_HANDLE, NOT_READY};
use crate::abi::{Out, Outcome, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, Held, World};
use crate::streams::{Event, Node, Work, synchronise};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_EVENT_BLOCKING_SYNC`, that and `CU_EVENT_INTERPROCESS`.
const FLAGS: c_uint = 7;

exports! {
    /// An event that was never recorded.
    Context fn cuEventCreate(world, here, event: Out<u64>, flags: c_uint) {
        // Events for other processes keep no time.
        valid(flags & !FLAGS == 0 && (flags & 4 == 0 || flags & NO_TIMING != 0))?;
        event.check()?;
        let context = world.root(here.context);
        let new = Event { context, flags, recorded: None, captured: None, serial: 0, time: None };
        event.put(world.events.insert(new))
    }

    /// The handle is gone; a recording of it that was not reached yet does no harm.
    Context fn cuEventDestroy_v2(world, here, event: u64) {
        world.event(event, "cuEventDestroy")?;
        world.events.remove(event);
        Ok(())
    }

    /// The event stands for this place in the stream from now on. Both must be of one context.
    Context fn cuEventRecord(world, here, event: u64, stream: u64) {
        record(world, here, event, stream)
    }

    /// As above. Flag 1 is for graphs that other code waits for; it changes nothing here.
    Context fn cuEventRecordWithFlags(world, here, event: u64, stream: u64, flags: c_uint) {
        valid(flags <= 1)?;
        record(world, here, event, stream)
    }

    /// Whether the event was reached. One that was never recorded was.
    Context fn cuEventQuery(world, here, event: u64) {
        let Some(place) = world.reached(event, "cuEventQuery")? else { return Ok(()) };
        if !world.streams.is_done(place.lane, place.sequence) {
            return Err(NOT_READY);
        }
        world.races.learn(&place.clock);
        world.here(here.context).map(drop)
    }

    /// Waits until it is.
    Context fn cuEventSynchronize(world, here, event: u64) {
        let Some(place) = world.reached(event, "cuEventSynchronize")? else { return Ok(()) };
        synchronise(world, &[(place.lane, place.sequence)], "cuEventSynchronize")?;
        world.races.learn(&place.clock);
        world.here(here.context).map(drop)
    }

    /// Milliseconds between two events.
    Context fn cuEventElapsedTime(world, here, milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(world, milliseconds, start, end)
    }

    /// The same.
    Context fn cuEventElapsedTime_v2(world, here, milliseconds: Out<f32>, start: u64, end: u64) {
        elapsed(world, milliseconds, start, end)
    }
}

fn record(world: &mut World, here: Here, event: u64, stream: u64) -> Outcome {
    let lane = world.lane(here, stream, "cuEventRecord")?;
    let context = world.streams.all.get(&lane).map_or(0, |stream| stream.context);
    let root = world.root(context);
    if world.event(event, "cuEventRecord")?.context != root {
        let text = format!("cuEventRecord of {event:#x} on stream {lane} of another context");
        world.report.add(Fault::WrongContext, text);
        return Err(INVALID_HANDLE);
    }
    world.submit(lane, Node::mark("cuEventRecord", Work::Record(event, 0))).map(drop)
}

fn elapsed(world: &mut Held, milliseconds: Out<f32>, start: u64, end: u64) -> Outcome {
    milliseconds.check()?;
    let mut times = [None; 2];
    for (time, event) in times.iter_mut().zip([start, end]) {
        let place = world.reached(event, "cuEventElapsedTime")?.ok_or(INVALID_HANDLE)?;
        let found = world.event(event, "cuEventElapsedTime")?;
        if found.flags & NO_TIMING != 0 {
            return Err(INVALID_HANDLE);
        }
        *time = found.time;
        if !world.streams.is_done(place.lane, place.sequence) {
            return Err(NOT_READY);
        }
    }
    let [Some(start), Some(end)] = times else { return Err(NOT_READY) };
    let forward = end.saturating_duration_since(start).as_secs_f32();
    let backward = start.saturating_duration_since(end).as_secs_f32();
    milliseconds.put((forward - backward) * 1000.0)
}
