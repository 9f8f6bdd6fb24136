//! Streams: who may have what when.

use super::{World, ensure, ok, same, small, with};
use terrace_device::DeviceError;

pub(super) fn again(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        for bytes in [256, 4096, 100_000, 3 << 20] {
            let block = ok(device.allocate(&stream, bytes))?;
            let address = block.address();
            drop(block);
            let events = device.stats().events;
            let block = ok(device.allocate(&stream, bytes))?;
            same(block.address(), address, "the block a stream just freed")?;
            same(device.stats().events, events, "events for a stream that is alone")?;
        }
        Ok(())
    })
}

pub(super) fn foreign(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let other = terrace_device::Device::host();
        let (mine, theirs) = (ok(device.stream())?, ok(other.stream())?);
        let refused = |result: Result<(), DeviceError>| match result {
            Err(DeviceError::OtherDevice { of, .. }) => same(of, other.name().to_string(), "whose stream it is"),
            result => Err(format!("a stream of another device: {result:?}")),
        };
        refused(device.allocate(&theirs, 100).map(drop))?;
        refused(mine.wait_for(&theirs))?;
        let block = ok(device.allocate(&mine, 100))?;
        refused(block.used_on(&theirs))?;
        let pool = ok(device.graph_pool())?;
        refused(theirs.capture(&pool).map(drop))
    })
}

pub(super) fn graphs(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let pool = ok(device.graph_pool())?;
        let before = ok(device.allocate(&stream, 10_000))?;
        let cached = before.address();
        drop(before);
        let capture = ok(stream.capture(&pool))?;
        ensure(matches!(stream.capture(&pool), Err(DeviceError::Capture(_))), "a second capture")?;
        let inside = ok(device.allocate(&stream, 10_000))?;
        let (from, to) = (inside.address(), inside.address() + inside.bytes());
        ensure(from != cached, "within a capture, not from the stream's cache")?;
        drop(inside);
        let again = ok(device.allocate(&stream, 10_000))?;
        same(again.address(), from, "within a capture, the pool's memory is used again")?;
        drop(again);
        drop(capture);
        for _ in 0..50 {
            let block = ok(device.allocate(&stream, 10_000))?;
            ensure(
                block.address() + block.bytes() <= from || to <= block.address(),
                "a graph's memory, given out elsewhere",
            )?;
        }
        let kept = device.stats().graphs.reserved;
        ensure(kept > 0, "the pool keeps its memory")?;
        device.trim();
        same(device.stats().graphs.reserved, kept, "what a graph has after a trim, which may be launched again")?;
        let capture = ok(stream.capture(&pool))?;
        let large = ok(device.allocate(&stream, 30 << 20))?;
        let apart = large.address() + large.bytes() <= from || to <= large.address();
        ensure(device.stats().graphs.reserved > kept && apart, "a second capture takes nothing from the first")?;
        drop(large);
        drop(capture);
        drop(pool);
        device.trim();
        let left = device.stats().graphs;
        same((left.reserved, left.metadata), (0, 0), "reserved by graphs and known of them in the end")
    })
}

pub(super) fn held(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let (one, two) = (ok(device.stream())?, ok(device.stream())?);
        let block = ok(device.allocate(&one, 1 << 20))?;
        ok(block.used_on(&two))?;
        ok(block.used_on(&two))?;
        ok(block.used_on(&one))?;
        drop(block);
        same(device.stats().held, 1, "blocks held for another stream")?;
        ok(two.synchronize())?;
        device.trim();
        same(device.stats().held, 0, "blocks held when that stream is done")?;
        // What others are done with comes before fresh memory.
        for _ in 0..200 {
            let block = ok(device.allocate(&one, 1 << 20))?;
            ok(block.used_on(&two))?;
            drop(block);
            ok(two.synchronize())?;
        }
        let taken = device.stats().pool.peak_reserved;
        ensure(taken <= 32 << 20, format_args!("{taken} bytes taken for 200 times a MiB, one at a time"))
    })
}
