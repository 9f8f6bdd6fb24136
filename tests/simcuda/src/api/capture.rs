//! Capture, and graphs.

use super::valid;
use crate::abi::attributes::status;
use crate::abi::codes::{INVALID_HANDLE, NOT_SUPPORTED};
use crate::abi::{Out, Outcome, c_int, c_ulonglong};
use crate::gate::exports;
use crate::machine::{Fault, Held, World, current};
use crate::order::Lane;

exports! {
    /// From now on the stream's operations go into a graph.
    Context fn cuStreamBeginCapture_v2(world, here, stream: u64, mode: c_int) {
        valid((0..=2).contains(&mode))?;
        let lane = world.lane(here, stream, "cuStreamBeginCapture")?;
        world.begin_capture(lane, mode)
    }

    /// The graph; null where something spoiled it.
    Context fn cuStreamEndCapture(world, here, stream: u64, graph: Out<u64>) {
        graph.put(0)?;
        let lane = world.lane(here, stream, "cuStreamEndCapture")?;
        graph.put(world.end_capture(lane)?)
    }

    /// Whether the stream captures: no 0, yes 1, yes but spoiled 2.
    Context fn cuStreamIsCapturing(world, here, stream: u64, state: Out<c_int>) {
        let lane = world.lane(here, stream, "cuStreamIsCapturing")?;
        state.put(capturing(world, lane).0)
    }

    /// That, and a number for the capture that never comes again.
    Context fn cuStreamGetCaptureInfo(world, here, stream: u64, state: Out<c_int>, id: Out<c_ulonglong>) {
        let lane = world.lane(here, stream, "cuStreamGetCaptureInfo")?;
        let (found, capture) = capturing(world, lane);
        id.put_if_wanted(capture);
        state.put(found)
    }

    /// As above. The graph under way and its nodes are not shown: null and none.
    Context fn cuStreamGetCaptureInfo_v2(
        world, here, stream: u64, state: Out<c_int>, id: Out<c_ulonglong>, graph: Out<u64>, nodes: Out<u64>,
        count: Out<usize>,
    ) {
        info(world, here.context, stream, state, id)?;
        graph.put_if_wanted(0);
        nodes.put_if_wanted(0);
        count.put_if_wanted(0);
        Ok(())
    }

    /// As above, with edges.
    Context fn cuStreamGetCaptureInfo_v3(
        world, here, stream: u64, state: Out<c_int>, id: Out<c_ulonglong>, graph: Out<u64>, nodes: Out<u64>,
        edges: Out<u64>, count: Out<usize>,
    ) {
        info(world, here.context, stream, state, id)?;
        graph.put_if_wanted(0);
        nodes.put_if_wanted(0);
        edges.put_if_wanted(0);
        count.put_if_wanted(0);
        Ok(())
    }

    /// Replaces what this thread lets captures forbid.
    Driver fn cuThreadExchangeStreamCaptureMode(world, here, mode: Out<c_int>) {
        let new = mode.now()?;
        valid((0..=2).contains(&new))?;
        mode.put(current::exchange_mode(new))
    }

    /// A graph made ready.
    Context fn cuGraphInstantiateWithFlags(world, here, exec: Out<u64>, graph: u64, flags: c_ulonglong) {
        exec.check()?;
        let Some(nodes) = world.captures.graphs.get(graph).cloned() else {
            return bad(world, "cuGraphInstantiate", |world| world.captures.graphs.fate(graph));
        };
        exec.put(world.captures.execs.insert(nodes))
    }

    /// Runs a graph's operations again, as operations of this stream.
    Context fn cuGraphLaunch(world, here, exec: u64, stream: u64) {
        let lane = world.lane_here(here, stream, "cuGraphLaunch")?;
        let Some(nodes) = world.captures.execs.get(exec).cloned() else {
            return bad(world, "cuGraphLaunch", |world| world.captures.execs.fate(exec));
        };
        nodes.into_iter().try_for_each(|node| world.submit(lane, node).map(drop))
    }

    /// How many operations it has; which they are is not told.
    Driver fn cuGraphGetNodes(world, here, graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let Some(has) = world.captures.graphs.get(graph).map(Vec::len) else {
            return bad(world, "cuGraphGetNodes", |world| world.captures.graphs.fate(graph));
        };
        if !nodes.is_null() {
            return Err(NOT_SUPPORTED);
        }
        count.put(has)
    }

    /// Ends a graph; what was made ready of it stays.
    Context fn cuGraphDestroy(world, here, graph: u64) {
        if world.captures.graphs.remove(graph).is_some() {
            return Ok(());
        }
        bad(world, "cuGraphDestroy", |world| world.captures.graphs.fate(graph))
    }

    /// Ends a graph that was made ready; its operations under way still run.
    Context fn cuGraphExecDestroy(world, here, exec: u64) {
        if world.captures.execs.remove(exec).is_some() {
            return Ok(());
        }
        bad(world, "cuGraphExecDestroy", |world| world.captures.execs.fate(exec))
    }
}

fn capturing(world: &World, lane: Lane) -> (c_int, u64) {
    let Some(id) = world.streams.all.get(&lane).and_then(|stream| stream.capture) else { return (status::NONE, 0) };
    let spoiled = world.captures.live.get(id).is_none_or(|capture| capture.invalid);
    (if spoiled { status::INVALIDATED } else { status::ACTIVE }, id)
}

fn info(world: &mut World, context: u64, stream: u64, state: Out<c_int>, id: Out<c_ulonglong>) -> Outcome {
    let here = world.here(context)?;
    let lane = world.lane(here, stream, "cuStreamGetCaptureInfo")?;
    let (found, capture) = capturing(world, lane);
    id.put_if_wanted(capture);
    state.put(found)
}

fn bad(world: &mut Held, call: &str, fate: impl Fn(&World) -> String) -> Outcome {
    let text = format!("{call} of {}", fate(world));
    world.report.add(Fault::BadHandle, text);
    Err(INVALID_HANDLE)
}
