//! Blocks: where they lie, how they come and go.

use super::{World, ensure, ok, same, small, with};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_device::{DeviceError, DeviceOptions, PoolOrigin};

pub(super) fn apart(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let mut blocks = Vec::new();
        for i in 0..400u64 {
            let (bytes, align) = (1 + i * i * 7 % 300_000, 1 << (i % 22));
            let block = ok(device.allocate_aligned(&stream, bytes, align))?;
            ensure(
                block.address().is_multiple_of(align.max(256)),
                format_args!("{block:?} is not aligned to {align}"),
            )?;
            ensure(block.bytes() >= bytes, format_args!("{block:?} is smaller than {bytes}"))?;
            blocks.push(block);
            if i % 3 == 0 {
                blocks.swap_remove((i as usize * 31) % blocks.len());
            }
        }
        let mut ranges: Vec<_> = blocks.iter().map(|block| (block.address(), block.bytes())).collect();
        ranges.sort_unstable();
        let segments = DeviceOptions { origin: PoolOrigin::Segments, ..small() };
        let segmented = ok((world.open)(segments))?;
        let own = ok(segmented.stream())?;
        for align in [512, 64 << 10, 2 << 20] {
            let block = ok(segmented.allocate_aligned(&own, align, align))?;
            ensure(block.address().is_multiple_of(align), format_args!("{block:?} in a segment, aligned to {align}"))?;
        }
        let overlap = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
        same(overlap, None, "live blocks that overlap")
    })
}

pub(super) fn bad_requests(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        for (bytes, align) in [(0, 1), (1, 0), (1, 3), (1, 4 << 20), (u64::MAX, 1), (u64::MAX - 255, 256), (1 << 63, 1)]
        {
            match device.allocate_aligned(&stream, bytes, align) {
                Err(DeviceError::BadRequest { bytes: said, rule, .. }) => {
                    same(said, bytes, rule)?;
                }
                other => return Err(format!("{bytes} bytes at {align}: {other:?}")),
            }
        }
        let bad = DeviceOptions { granule: 100, ..small() };
        let opened = (world.open)(bad).err();
        ensure(matches!(opened, Some(DeviceError::BadOption(_))), format_args!("a granule of 100: {opened:?}"))
    })
}

pub(super) fn outlives(world: &World<'_>) -> Result<(), String> {
    let device = ok((world.open)(small()))?;
    let stream = ok(device.stream())?;
    let blocks: Vec<_> = [100, 5_000, 1 << 20].map(|bytes| device.allocate(&stream, bytes)).into_iter().collect();
    let mut blocks = blocks.into_iter().map(ok).collect::<Result<Vec<_>, _>>()?;
    drop(blocks.remove(0));
    drop(stream);
    drop(blocks.remove(0));
    // Its stream lives as long as it does.
    ok(blocks[0].fill(0, 1000, 7))?;
    let mut back = [0; 1000];
    ok(blocks[0].read(0, &mut back))?;
    ensure(!world.bytes || back == [7; 1000], "a block without its stream's handle")?;
    let watched = device.clone();
    drop(device);
    drop(blocks);
    watched.trim();
    same((watched.stats().pool.live_blocks, watched.stats().pool.reserved), (0, 0), "live blocks, reserved bytes")?;
    let stream = ok(watched.stream())?;
    drop(watched);
    // The stream alone keeps everything alive that it needs.
    drop(stream);
    Ok(())
}

pub(super) fn statistics(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let (mut blocks, mut taken) = (Vec::new(), 0);
        for i in 0..500u64 {
            blocks.push(ok(device.allocate(&stream, 1 + i * 97 % 40_000))?);
            taken += blocks.last().map_or(0, |block| block.bytes());
            if i % 2 == 0 {
                blocks.swap_remove((i as usize * 7) % blocks.len());
            }
            let stats = device.stats().pool;
            let live: u64 = blocks.iter().map(|block| block.bytes()).sum();
            same(stats.in_use, live, "bytes in use")?;
            same(stats.live_blocks, blocks.len() as u64, "live blocks")?;
            same(stats.allocations - stats.frees, stats.live_blocks, "allocations less frees")?;
            same(stats.hits + stats.misses, stats.allocations, "hits and misses")?;
            same(stats.allocated_bytes, taken, "bytes allocated so far")?;
            same(stats.freed_bytes, taken - live, "bytes freed so far")?;
            ensure(stats.in_use <= stats.reserved, "in use is at most reserved")?;
            ensure(stats.reserved <= stats.peak_reserved, "reserved is at most its peak")?;
        }
        drop((blocks, stream));
        same(device.stats().pool.allocated_bytes, taken, "bytes allocated so far, those by a closed stream too")?;
        ensure(device.stats().cache_hits > 0, "sizes repeat, so the cache has hits")
    })
}

pub(super) fn wrapped(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let inner = ok(device.allocate(&stream, 4096))?;
        same(inner.is_foreign(), false, "a block of the pool is foreign")?;
        let gone = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&gone);
        let release = Box::new(move |address, bytes| _ = count.fetch_add(address + bytes, Ordering::Relaxed));
        // SAFETY: the range is a live block of this device, which outlives the wrapped one.
        let block = ok(unsafe { device.wrap(&stream, inner.address(), 4096, Some(release)) })?;
        same((block.address(), block.bytes(), block.is_foreign()), (inner.address(), 4096, true), "the wrapped block")?;
        let before = device.stats().pool.live_blocks;
        drop(block);
        ok(stream.synchronize())?;
        device.trim();
        same(gone.load(Ordering::Relaxed), inner.address() + 4096, "what the release was told, once")?;
        same(device.stats().pool.live_blocks, before, "wrapped memory is not the pool's")?;
        // SAFETY: as above.
        let unowned = ok(unsafe { device.wrap(&stream, inner.address(), 4096, None) })?;
        drop(unowned);
        // SAFETY: refused before anything is used.
        let none = unsafe { device.wrap(&stream, 4096, 0, None) };
        ensure(matches!(none, Err(DeviceError::BadRequest { .. })), "no bytes to wrap")
    })
}

pub(super) fn goes_back(world: &World<'_>) -> Result<(), String> {
    for origin in [PoolOrigin::Auto, PoolOrigin::Segments] {
        with(world, DeviceOptions { origin, ..small() }, |device| {
            let streams = [ok(device.stream())?, ok(device.stream())?];
            for round in 0..20u64 {
                let blocks: Result<Vec<_>, _> = (0..40u64)
                    .map(|i| device.allocate(&streams[(i % 2) as usize], 1 + i * 50_021 * (round + 1) % 3_000_000))
                    .collect();
                drop(ok(blocks)?);
            }
            ensure(device.stats().pool.reserved > 0, "something was taken")?;
            let given = device.trim();
            ensure(given > 0, "something was given back")
        })?;
    }
    Ok(())
}

pub(super) fn origins(world: &World<'_>) -> Result<(), String> {
    for origin in
        [PoolOrigin::Auto, PoolOrigin::Pages, PoolOrigin::Segments, PoolOrigin::DriverPool, PoolOrigin::Managed]
    {
        match (world.open)(DeviceOptions { origin, ..small() }) {
            Err(DeviceError::Driver { fault, .. }) => {
                same(fault.reason, terrace_device::FaultReason::Unsupported, &format!("{origin:?}"))?;
            }
            Err(other) => return Err(format!("{origin:?}: {other}")),
            Ok(device) => {
                let stream = ok(device.stream())?;
                let block = ok(device.allocate(&stream, 3 << 20))?;
                drop(block);
                device.trim();
                same(device.stats().pool.reserved, 0, "reserved in the end")?;
            }
        }
    }
    Ok(())
}
