//! Setting memory.
//!
//! Without a stream it runs on the legacy default stream, and returns before it is done unless the memory is the host's.

use crate::abi::{Outcome, c_uint};
use crate::gate::exports;
use crate::machine::context::Here;
use crate::machine::{Held, World};
use crate::memory::Holder;
use crate::memory::check::Hand;
use crate::order::{Lane, Touch};
use crate::streams::{Node, Work, synchronise};

exports! {
    /// Bytes.
    Context fn cuMemsetD8_v2(world, here, to: u64, value: u8, bytes: usize) {
        now(world, here, bytes_node("cuMemsetD8", to, value, bytes))
    }

    /// Bytes, on a stream.
    Context fn cuMemsetD8Async(world, here, to: u64, value: u8, bytes: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemsetD8Async")?;
        on_stream(world, lane, bytes_node("cuMemsetD8Async", to, value, bytes))
    }

    /// Words.
    Context fn cuMemsetD32_v2(world, here, to: u64, value: c_uint, count: usize) {
        now(world, here, words_node("cuMemsetD32", to, value, count))
    }

    /// Words, on a stream.
    Context fn cuMemsetD32Async(world, here, to: u64, value: c_uint, count: usize, stream: u64) {
        let lane = world.lane_here(here, stream, "cuMemsetD32Async")?;
        on_stream(world, lane, words_node("cuMemsetD32Async", to, value, count))
    }
}

fn bytes_node(name: &'static str, to: u64, value: u8, bytes: usize) -> Node {
    let bytes = bytes as u64;
    Node::new(name, Hand::Device, vec![Touch::write(to, bytes)], Work::Fill { to, value, bytes })
}

fn words_node(name: &'static str, to: u64, value: u32, count: usize) -> Node {
    let count = count as u64;
    let touches = vec![Touch::write(to, count.saturating_mul(4))];
    Node::new(name, Hand::Device, touches, Work::FillWords { to, value, count })
}

fn on_stream(world: &mut World, lane: Lane, node: Node) -> Outcome {
    // Words stand at multiples of their size.
    if let Work::FillWords { to, .. } = node.work {
        super::valid(to % 4 == 0)?;
    }
    world.submit(lane, node).map(drop)
}

fn now(held: &mut Held, here: Here, node: Node) -> Outcome {
    let lane = held.streams.legacy_of(here.context, here.device);
    let to = node.touches.first().map_or(0, |touch| touch.start);
    let host = held.block_at(to).is_some_and(|(_, block)| block.is_host() || block.holder == Holder::Managed);
    let name = node.name;
    on_stream(held, lane, node)?;
    if host {
        let targets = held.targets_of(lane);
        synchronise(held, &targets, name)?;
    }
    Ok(())
}
