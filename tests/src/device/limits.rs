//! Memory that runs out: what is tried, and what is said.

use super::{World, cut, ensure, ok, same, small, with};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace_device::{DeviceBlock, DeviceError, DeviceOptions, PoolOrigin};

const MIB: u64 = 1 << 20;
/// Bytes of the blocks that fill a stream's cache; under Miri larger ones, so that few fill the device.
const CACHED: u64 = cut(4 << 10, 256 << 10);

/// Segments of 2 MiB up to 32 MiB in all, and records for all of it in small blocks: the same on every device.
fn tight() -> DeviceOptions {
    DeviceOptions { origin: PoolOrigin::Segments, capacity: 32 * MIB, segment: 2 * MIB, blocks: 1 << 14, ..small() }
}

/// The same, where each stream caches `stream_cache` bytes in blocks of [`CACHED`] bytes.
fn caching(stream_cache: u64) -> DeviceOptions {
    let tight = tight();
    let small_threshold = tight.small_threshold.max(CACHED);
    DeviceOptions { stream_cache, pooled_per_bucket: 4096, small_threshold, ..tight }
}

/// Allocates until nothing is left.
fn exhaust(
    device: &terrace_device::Device,
    stream: &terrace_device::Stream,
    bytes: u64,
) -> (Vec<DeviceBlock>, DeviceError) {
    let mut blocks = Vec::new();
    loop {
        match device.allocate(stream, bytes) {
            Ok(block) => blocks.push(block),
            Err(error) => return (blocks, error),
        }
    }
}

pub(super) fn capacity(world: &World<'_>) -> Result<(), String> {
    with(world, tight(), |device| {
        let stream = ok(device.stream())?;
        let (blocks, error) = exhaust(device, &stream, MIB);
        same(blocks.len(), 32, "blocks of a MiB in 32 MiB")?;
        let DeviceError::OutOfMemory(what) = error else { return Err(format!("{error:?}")) };
        same((what.asked, what.in_use, what.capacity), (MIB, 32 * MIB, 32 * MIB), "asked, in use, capacity")?;
        let text = what.to_string();
        ensure(text.contains("1048576") && text.contains("33554432"), format_args!("the message: {text}"))?;
        same(device.stats().pool.failed, 1, "failures counted")?;
        drop(blocks);
        // Not one spurious failure: what just came free serves at once.
        let large = ok(device.allocate(&stream, 20 * MIB));
        drop(large?);
        device.set_capacity(64 * MIB);
        let (blocks, _) = exhaust(device, &stream, MIB);
        same(blocks.len(), 64, "blocks of a MiB after the capacity was raised")
    })
}

pub(super) fn hook(world: &World<'_>) -> Result<(), String> {
    with(world, tight(), |device| {
        let stream = ok(device.stream())?;
        let spare = Arc::new(Mutex::new(Vec::new()));
        let (mut blocks, _) = exhaust(device, &stream, MIB);
        spare.lock().map_err(|_| "no thread panicked")?.extend(blocks.split_off(28));
        let asked = Arc::new(AtomicU64::new(0));
        let (theirs, count) = (Arc::clone(&spare), Arc::clone(&asked));
        device.on_out_of_memory(move |what| {
            count.fetch_add(what.asked, Ordering::Relaxed);
            theirs.lock().is_ok_and(|mut blocks| blocks.pop().is_some())
        });
        let block = ok(device.allocate(&stream, MIB))?;
        same(asked.load(Ordering::Relaxed), MIB, "the hook was asked once, and helped")?;
        drop(block);
        let (more, error) = exhaust(device, &stream, MIB);
        ensure(matches!(error, DeviceError::OutOfMemory(_)), format_args!("when it has no more: {error}"))?;
        same(more.len(), 4, "blocks that the hook gave up, one after another")?;
        // One that says it helped, and did not, is not asked for ever; one that allocates is not asked by itself.
        let (again, there) = (Arc::new(AtomicU64::new(0)), device.clone());
        let (count, theirs) = (Arc::clone(&again), stream.clone());
        device.on_out_of_memory(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            drop(there.allocate(&theirs, 64 * MIB));
            true
        });
        ensure(device.allocate(&stream, MIB).is_err(), "nothing came free")?;
        ensure(again.load(Ordering::Relaxed) <= 2, "asked while nothing came free")?;
        // It owns the device: without this nothing would ever be given back.
        device.forget_hook();
        drop((blocks, more));
        Ok(())
    })
}

pub(super) fn fallback(world: &World<'_>) -> Result<(), String> {
    with(world, tight(), |device| {
        let stream = ok(device.stream())?;
        let (blocks, _) = exhaust(device, &stream, MIB);
        device.set_fallback(true);
        let mut host = ok(device.allocate(&stream, MIB))?;
        same((host.is_fallback(), blocks[0].is_fallback()), (true, false), "who is on the host")?;
        same(device.stats().pool.fallbacks, 1, "fallbacks counted")?;
        if world.bytes {
            ok(host.write(5, b"on the host"))?;
            let mut back = [0; 11];
            ok(host.read(5, &mut back))?;
            same(&back, b"on the host", "bytes of a fallback block")?;
        }
        device.set_fallback(false);
        let (none, _) = exhaust(device, &stream, MIB);
        same(none.len(), 0, "blocks with the fallback off")?;
        drop(host);
        device.set_fallback(true);
        drop(blocks);
        let block = ok(device.allocate(&stream, MIB))?;
        ensure(!block.is_fallback(), "the device comes first when it has memory again")
    })
}

pub(super) fn caches(world: &World<'_>) -> Result<(), String> {
    with(world, caching(16 * MIB), |device| {
        let (one, two) = (ok(device.stream())?, ok(device.stream())?);
        let (blocks, _) = exhaust(device, &one, CACHED);
        drop(blocks);
        ensure(device.stats().pool.pooled >= 8 * MIB, "the first stream's cache is full of it")?;
        let large = ok(device.allocate(&two, 30 * MIB))?;
        drop(large);
        Ok(())
    })
}

pub(super) fn pressure(world: &World<'_>) -> Result<(), String> {
    use terrace_core::pressure::Level;
    with(world, caching(MIB), |device| {
        let stream = ok(device.stream())?;
        // How much the cache keeps of 4 MiB that are freed.
        let kept = || -> Result<u64, String> {
            let blocks: Result<Vec<_>, _> = (0..4 * MIB / CACHED).map(|_| device.allocate(&stream, CACHED)).collect();
            drop(ok(blocks)?);
            let kept = device.stats().pool.pooled;
            device.coalesce();
            Ok(kept)
        };
        same(kept()?, MIB, "as the options say")?;
        device.adapt();
        ensure(kept()? > MIB, "more while the device is empty")?;
        same(device.pressure(), Level::Normal, "pressure on an empty device")?;
        let large = ok(device.allocate(&stream, 27 * MIB))?;
        ensure(device.pressure() >= Level::High, format_args!("{:?} at 27 of 32 MiB", device.pressure()))?;
        (0..4).for_each(|_| device.adapt());
        ensure(kept()? < MIB, "less while it is full")?;
        drop(large);
        ensure(device.shrink(64 * MIB) == 0, "nothing to shrink below what is taken")?;
        same(device.shrink(device.stats().pool.reserved), 0, "just what is taken")?;
        ensure(device.shrink(0) > 0, "everything to shrink")
    })
}
