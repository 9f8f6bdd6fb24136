//! Copies.
//!
//! Copies without a stream run on the legacy default stream. Those from or to the host return when they are done; those
//! between places of devices do not. Copies on a stream from host memory that nobody registered take the bytes before
//! they return; those to such memory return when they are done.

use crate::abi::codes::INVALID_CONTEXT;
use crate::abi::{Code, CopyAttributes, In, Out, Outcome};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Fault, Held, World};
use crate::memory::Arena;
use crate::memory::check::Hand;
use crate::order::{Lane, Touch};
use crate::streams::{Node, Work, synchronise};
use std::sync::Arc;

exports! {
    /// From anywhere to anywhere.
    Context fn cuMemcpy(world, here, to: u64, from: u64, bytes: usize) {
        let wait = on_host(world, to) || on_host(world, from);
        copy(world, here, "cuMemcpy", to, from, bytes as u64, wait)
    }

    /// From the host.
    Context fn cuMemcpyHtoD_v2(world, here, to: u64, from: In<u8>, bytes: usize) {
        copy(world, here, "cuMemcpyHtoD", to, from.address(), bytes as u64, true)
    }

    /// To the host.
    Context fn cuMemcpyDtoH_v2(world, here, to: Out<u8>, from: u64, bytes: usize) {
        copy(world, here, "cuMemcpyDtoH", to.address(), from, bytes as u64, true)
    }

    /// On the device: returns before it is done.
    Context fn cuMemcpyDtoD_v2(world, here, to: u64, from: u64, bytes: usize) {
        copy(world, here, "cuMemcpyDtoD", to, from, bytes as u64, false)
    }

    /// Between contexts: returns before it is done.
    Context fn cuMemcpyPeer(world, here, to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) {
        peers(world, "cuMemcpyPeer", [(to, to_context), (from, from_context)])?;
        let lane = world.streams.legacy_of(here.context, here.device);
        world.submit(lane, between("cuMemcpyPeer", to, from, bytes as u64))?;
        world.here(here.context).map(drop)
    }

    /// From anywhere to anywhere, on a stream.
    Context fn cuMemcpyAsync(world, here, to: u64, from: In<u8>, bytes: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemcpyAsync")?;
        on_stream(world, lane, "cuMemcpyAsync", to, from, bytes)
    }

    /// From the host, on a stream.
    Context fn cuMemcpyHtoDAsync_v2(world, here, to: u64, from: In<u8>, bytes: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemcpyHtoDAsync")?;
        on_stream(world, lane, "cuMemcpyHtoDAsync", to, from, bytes)
    }

    /// To the host, on a stream.
    Context fn cuMemcpyDtoHAsync_v2(world, here, to: u64, from: In<u8>, bytes: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemcpyDtoHAsync")?;
        on_stream(world, lane, "cuMemcpyDtoHAsync", to, from, bytes)
    }

    /// On the device, on a stream.
    Context fn cuMemcpyDtoDAsync_v2(world, here, to: u64, from: In<u8>, bytes: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemcpyDtoDAsync")?;
        on_stream(world, lane, "cuMemcpyDtoDAsync", to, from, bytes)
    }

    /// Between contexts, on a stream.
    Context fn cuMemcpyPeerAsync(
        world, here, to: u64, to_context: u64, from: In<u8>, from_context: u64, bytes: usize, stream: u64,
    ) {
        let lane = world.lane_here(here, stream, "cuMemcpyPeerAsync")?;
        peers(world, "cuMemcpyPeerAsync", [(to, to_context), (from.address(), from_context)])?;
        world.submit(lane, between("cuMemcpyPeerAsync", to, from.address(), bytes as u64)).map(drop)
    }
}

exports! {
    /// Many copies on a stream, in any order among themselves. Never on the legacy default stream, nor in a graph.
    Context fn cuMemcpyBatchAsync(
        world, here, to: In<u64>, from: In<In<u8>>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
        first: In<usize>, kinds: usize, failed: Out<usize>, stream: u64,
    ) {
        failed.put_if_wanted(usize::MAX);
        let lane = batch(world, here, count, attributes, first, kinds, stream)?;
        many(world, lane, to, from, sizes, count).map_err(|(at, code)| {
            failed.put_if_wanted(at);
            code
        })
    }

    /// As above; it does not say which copy failed.
    Context fn cuMemcpyBatchAsync_v2(
        world, here, to: In<u64>, from: In<In<u8>>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
        first: In<usize>, kinds: usize, stream: u64,
    ) {
        let lane = batch(world, here, count, attributes, first, kinds, stream)?;
        many(world, lane, to, from, sizes, count).map_err(|(_, code)| code)
    }
}

/// The stream of a batch whose counts and attributes are as they must be.
fn batch(
    world: &mut World,
    here: Here,
    count: usize,
    attributes: In<CopyAttributes>,
    first: In<usize>,
    kinds: usize,
    stream: u64,
) -> Outcome<Lane> {
    super::valid(count > 0 && (1..=count).contains(&kinds) && stream > 1)?;
    let (attributes, first) = (attributes.all(kinds)?, first.all(kinds)?);
    let orders = attributes.iter().all(|kind| (1..=3).contains(&kind.order));
    super::valid(orders && first[0] == 0 && first.is_sorted_by(|a, b| a < b) && first.iter().all(|&at| at < count))?;
    let lane = world.lane_here(here, stream, "cuMemcpyBatchAsync")?;
    super::valid(world.streams.all.get(&lane).is_some_and(|stream| stream.capture.is_none()))?;
    Ok(lane)
}

/// Copies a batch. An error comes with the number of the copy, or `usize::MAX` where it is no single one's.
fn many(
    world: &mut Held,
    lane: Lane,
    to: In<u64>,
    from: In<In<u8>>,
    sizes: In<usize>,
    count: usize,
) -> Result<(), (usize, Code)> {
    let whole = |code| (usize::MAX, code);
    let to = to.all(count).map_err(whole)?;
    let from = from.all(count).map_err(whole)?;
    let sizes = sizes.all(count).map_err(whole)?;
    unordered(world, &to, &sizes);
    let known = (0..count).all(|at| !pageable(world, to[at]) && !pageable(world, from[at].address()));
    if known {
        let copies = (0..count).map(|at| (to[at], from[at].address(), sizes[at] as u64)).collect();
        return world.submit(lane, together("cuMemcpyBatchAsync", copies)).map(drop).map_err(whole);
    }
    (0..count).try_for_each(|at| {
        on_stream(world, lane, "cuMemcpyBatchAsync", to[at], from[at], sizes[at]).map_err(|code| (at, code))
    })
}

/// Reports targets of one batch that overlap: which of the copies wins is not defined.
fn unordered(world: &mut World, to: &[u64], sizes: &[usize]) {
    let mut targets: Vec<(u64, u64)> = to.iter().zip(sizes).map(|(&to, &bytes)| (to, to + bytes as u64)).collect();
    targets.sort_unstable();
    if let Some(pair) = targets.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        let text = format!("cuMemcpyBatchAsync writes {:#x} and {:#x}, which overlap", pair[0].0, pair[1].0);
        world.report.add(Fault::Race, text);
    }
}

/// Whether an address is the host's: pinned, registered or neither.
pub(super) fn on_host(world: &World, address: u64) -> bool {
    world.block_at(address).map_or(!Arena::has(address), |(_, block)| block.is_host())
}

/// Whether it is the host's and the driver does not know it.
pub(super) fn pageable(world: &World, address: u64) -> bool {
    !Arena::has(address) && world.block_at(address).is_none()
}

fn node(name: &'static str, to: u64, from: u64, bytes: u64) -> Node {
    let touches = vec![Touch::read(from, bytes), Touch::write(to, bytes)];
    Node::new(name, Hand::Copy, touches, Work::Copy { to, from, bytes })
}

fn between(name: &'static str, to: u64, from: u64, bytes: u64) -> Node {
    Node { hand: Hand::Between, ..node(name, to, from, bytes) }
}

/// Copies that are one operation.
pub(super) fn together(name: &'static str, copies: Vec<(u64, u64, u64)>) -> Node {
    let touches = copies.iter().flat_map(|&(to, from, bytes)| [Touch::read(from, bytes), Touch::write(to, bytes)]);
    Node::new(name, Hand::Copy, touches.collect(), Work::Copies(copies))
}

fn copy(held: &mut Held, here: Here, name: &'static str, to: u64, from: u64, bytes: u64, wait: bool) -> Outcome {
    let lane = held.streams.legacy_of(here.context, here.device);
    let sequence = held.submit(lane, node(name, to, from, bytes))?;
    if wait {
        synchronise(held, &[(lane, sequence)], name)?;
    }
    held.here(here.context).map(drop)
}

pub(super) fn on_stream(
    held: &mut Held,
    lane: Lane,
    name: &'static str,
    to: u64,
    from: In<u8>,
    bytes: usize,
) -> Outcome {
    let captures = held.streams.all.get(&lane).is_some_and(|stream| stream.capture.is_some());
    let mut node = node(name, to, from.address(), bytes as u64);
    // A graph reads what stands there when it is replayed.
    if !captures && bytes > 0 && !from.is_null() && pageable(held, from.address()) {
        node.touches.remove(0);
        node.work = Work::Put { to, staged: Arc::new(from.stage(bytes)) };
    }
    let sequence = held.submit(lane, node)?;
    if !captures && bytes > 0 && pageable(held, to) {
        synchronise(held, &[(lane, sequence)], name)?;
    }
    Ok(())
}

/// Each address must be of the context that the caller says it is.
fn peers(world: &mut World, call: &str, ends: [(u64, u64); 2]) -> Outcome {
    for (address, context) in ends {
        let device = world.contexts.get(context).ok_or(INVALID_CONTEXT)?.device;
        let other = world.block_at(address).filter(|(_, block)| !block.is_host() && block.device != device);
        let closed = world.mapping_at(address).filter(|(_, mapping)| !mapping.access.contains_key(&device));
        let what = other.map(|(start, block)| block.describe(start));
        let Some(what) = what.or(closed.map(|(start, _)| format!("mapping {start:#x}"))) else { continue };
        let text = format!("{call} says that {what} is memory of device {device}");
        world.report.add(Fault::WrongContext, text);
        return super::valid(false);
    }
    Ok(())
}
