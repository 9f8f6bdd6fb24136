//! Buffers on two sides: every residence and every way between, random programs, full devices, wrong ranges.

use super::{World, ensure, ok, same, small, with};
use crate::Random;
use terrace_core::residence::ResidenceError;
use terrace_device::{
    BufferSide, Capabilities, Device, DeviceBuffer, DeviceError, DeviceOptions, FallbackBuffer, FaultReason, Stream,
};

/// A buffer of zeros; `None` where the device has no pinned memory, whose refusal says so.
fn buffer(device: &Device, stream: &Stream, len: usize) -> Result<Option<FallbackBuffer<u32>>, String> {
    match FallbackBuffer::new(device, stream, len) {
        Ok(buffer) => Ok(Some(buffer)),
        Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// A case with a buffer of `len` elements.
fn on_buffer(
    world: &World<'_>,
    options: DeviceOptions,
    len: usize,
    case: impl FnOnce(&Device, &Stream, &mut FallbackBuffer<u32>) -> Result<(), String>,
) -> Result<(), String> {
    with(world, options, |device| {
        let stream = ok(device.stream())?;
        match buffer(device, &stream, len)? {
            Some(mut buffer) => case(device, &stream, &mut buffer),
            None => Ok(()),
        }
    })
}

fn refused(result: Result<u64, DeviceError>, what: &str) -> Result<(), String> {
    same(result, Err(DeviceError::Residence(ResidenceError::LastCopy)), what)
}

/// One step, the side it leads to on two memories, and the copies to device and host that it took.
fn expect(buffer: &FallbackBuffer<u32>, side: BufferSide, copies: (u64, u64), what: &str) -> Result<(), String> {
    let stats = buffer.stats();
    let shared = buffer.side() == BufferSide::Shared;
    let (side, copies) = if shared { (BufferSide::Shared, (0, 0)) } else { (side, copies) };
    same((buffer.side(), (stats.copies_to_device, stats.copies_to_host)), (side, copies), what)
}

pub(super) fn sides(world: &World<'_>) -> Result<(), String> {
    on_buffer(world, small(), 10_000, |device, _, buffer| {
        let shared = device.description().capabilities.contains(Capabilities::INTEGRATED);
        same(buffer.side(), if shared { BufferSide::Shared } else { BufferSide::Host }, "fresh")?;
        ensure(ok(buffer.host())?.iter().all(|&element| element == 0), "fresh elements are zero")?;
        expect(buffer, BufferSide::Host, (0, 0), "read by the host")?;
        refused(buffer.evict_host(), "the only copy, on the host")?;
        same(buffer.evict_device(), Ok(0), "nothing on the device")?;
        ok(buffer.host_mut(..))?.fill(1);
        ok(buffer.on_device())?;
        expect(buffer, BufferSide::Both, (1, 0), "host only, asked by the device")?;
        ok(buffer.on_device())?;
        ok(buffer.host())?;
        expect(buffer, BufferSide::Both, (1, 0), "on both, asked by both")?;
        // Two ranges far apart, one of them twice.
        ok(buffer.host_mut(10..20))?.fill(2);
        ok(buffer.host_mut(15..25))?.fill(3);
        ok(buffer.host_mut(9_000..=9_000))?[0] = 4;
        ok(buffer.host_mut(5_000..5_000))?;
        expect(buffer, BufferSide::HostDirty, (1, 0), "written by the host")?;
        refused(buffer.evict_host(), "the only newest copy, on the host")?;
        let all = ok(ok(buffer.on_device())?.to_vec())?;
        expect(buffer, BufferSide::Both, (3, 0), "host dirty, asked by the device: a copy for each range")?;
        let right = |all: &[u32]| all[..10] == [1; 10] && all[10..15] == [2; 5] && all[15..25] == [3; 10];
        ensure(!world.bytes || right(&all) && all[9_000] == 4 && all[9_001] == 1, "what the device sees")?;
        same(buffer.stats().bytes_to_device, if shared { 0 } else { 40_000 + 60 + 4 }, "bytes to the device")?;
        ok(ok(buffer.on_device_mut())?.fill(5))?;
        expect(buffer, BufferSide::DeviceDirty, (3, 0), "written by the device")?;
        if !shared {
            refused(buffer.evict_device(), "the only newest copy, on the device")?;
            ensure(ok(buffer.evict_host())? >= 40_000, "an old copy may go")?;
            same(buffer.side(), BufferSide::Device, "device dirty, without the host")?;
            refused(buffer.evict_device(), "the only copy, on the device")?;
            same(buffer.evict_host(), Ok(0), "nothing on the host")?;
        }
        ensure(!world.bytes || ok(buffer.host())?.iter().all(|&element| element == 5), "what the host sees")?;
        ok(buffer.host_mut(0..1))?[0] = 6;
        expect(buffer, BufferSide::HostDirty, (3, 1), "device only, written by the host")?;
        ok(buffer.evict_device())?;
        expect(buffer, BufferSide::Host, (3, 1), "an old copy on the device may go")?;
        ok(ok(buffer.on_device_mut())?.into_slice(1..3)).and_then(|mut slice| ok(slice.fill(7)))?;
        expect(buffer, BufferSide::DeviceDirty, (4, 1), "host only, written by the device")?;
        let host = ok(buffer.host())?;
        ensure(!world.bytes || host[..4] == [6, 7, 7, 5], "both wrote")?;
        expect(buffer, BufferSide::Both, (4, 2), "device dirty, asked by the host")?;
        same(buffer.stats().bytes_to_host, if shared { 0 } else { 80_000 }, "bytes to the host")
    })
}

/// A step of a random program, which may be taken again when it failed: the same bytes come of it.
pub fn step(
    buffer: &mut FallbackBuffer<u32>,
    model: &mut [u32],
    (kind, from, to, value): (u64, usize, usize, u32),
) -> Result<bool, DeviceError> {
    match kind {
        0 => return Ok(buffer.host()? == model),
        1 | 2 => {
            buffer.host_mut(from..to)?.fill(value);
            model[from..to].fill(value);
        }
        3 => return Ok(buffer.on_device()?.slice(from..to)?.to_vec()? == model[from..to]),
        4 => _ = buffer.on_device()?,
        5 | 6 => {
            buffer.on_device_mut()?.into_slice(from..to)?.fill(value)?;
            model[from..to].fill(value);
        }
        // Refused for the last copy, which is as good.
        7 => _ = buffer.evict_device(),
        _ => _ = buffer.evict_host(),
    }
    Ok(true)
}

/// What a random step does: kind, range, value.
pub fn choose(random: &mut Random, len: usize) -> (u64, usize, usize, u32) {
    let (from, value) = (random.below(len as u64) as usize, random.next() as u32);
    let to = from + random.below((len - from + 1) as u64) as usize;
    // Mostly a few elements, so that ranges stay apart.
    let to = if random.once_in(4) { to } else { to.min(from + 20) };
    (random.below(9), from, to, value)
}

pub(super) fn programs(world: &World<'_>) -> Result<(), String> {
    const LEN: usize = 5_000;
    if !world.bytes {
        return Ok(());
    }
    let mut fallbacks = 0;
    // Every second device is small, and full now and then.
    for seed in 0..12 {
        let options = if seed % 2 == 0 { small() } else { DeviceOptions { capacity: 8 << 20, ..small() } };
        on_buffer(world, options, LEN, |device, stream, buffer| {
            let (mut random, mut model, mut hog) = (Random::new(seed), vec![0; LEN], Vec::new());
            let mut seen = std::collections::BTreeSet::new();
            for at in 0..400 {
                if seed % 2 == 1 && random.once_in(10) {
                    let most = |bytes| std::iter::from_fn(move || device.allocate(stream, bytes).ok());
                    hog = if hog.is_empty() { most(1 << 20).chain(most(16 << 10)).collect() } else { Vec::new() };
                }
                let chosen = choose(&mut random, LEN);
                ensure(ok(step(buffer, &mut model, chosen))?, format_args!("seed {seed}, step {at}: {chosen:?}"))?;
                seen.insert(format!("{:?}", buffer.side()));
            }
            ensure(ok(buffer.host())? == model, format_args!("seed {seed}: the bytes in the end"))?;
            let shared = device.description().capabilities.contains(Capabilities::INTEGRATED);
            let all = if shared { 1 } else { 5 };
            same(seen.len(), all, "residences that the program came through")?;
            fallbacks += if shared { 1 } else { buffer.stats().fallbacks };
            let room = seed % 2 == 0;
            ensure(!room || shared || buffer.stats().fallbacks == 0, "a fallback though there is room")
        })?;
    }
    ensure(fallbacks > 0, "no program came to a full device")
}

/// A device that is full, and then is not.
pub(super) fn full(world: &World<'_>) -> Result<(), String> {
    const MIB: u64 = 1 << 20;
    const LEN: usize = 1 << 20;
    // The second time with the device's own fallback on, whose pinned memory the buffer does not need.
    for fallback in [false, true] {
        let options = DeviceOptions { capacity: 32 * MIB, blocks: 1 << 12, fallback: false, ..small() };
        on_buffer(world, options, LEN, |device, stream, buffer| {
            if buffer.side() == BufferSide::Shared {
                return Ok(());
            }
            let mut blocks = Vec::new();
            while let Ok(block) = device.allocate(stream, 2 * MIB) {
                blocks.push(block);
            }
            device.set_fallback(fallback);
            ok(buffer.host_mut(..))?.fill(3);
            ok(ok(buffer.on_device_mut())?.into_slice(..10)).and_then(|mut slice| ok(slice.fill(4)))?;
            same((buffer.is_fallback(), buffer.side()), (true, BufferSide::Host), "on a full device")?;
            same(buffer.stats().fallbacks, 1, "fallbacks counted")?;
            let host = ok(buffer.host())?;
            ensure(!world.bytes || host[..10] == [4; 10] && host[10] == 3, "the device wrote the host's memory")?;
            let reserved = device.stats().pinned.in_use;
            // Full as it is, it is not asked each time.
            let failed = device.stats().pool.failed + device.stats().pool.fallbacks;
            (0..1_000).try_for_each(|_| ok(buffer.on_device()).map(drop))?;
            let asked = device.stats().pool.failed + device.stats().pool.fallbacks - failed;
            ensure(asked < 12, format_args!("1,000 calls asked the full device {asked} times"))?;
            same(device.stats().pinned.in_use, reserved, "pinned memory while it falls back")?;
            drop(blocks);
            device.set_fallback(false);
            // It is asked again in the end, without being told.
            (0..1_100).try_for_each(|_| ok(buffer.on_device()).map(drop))?;
            same((buffer.is_fallback(), buffer.side()), (false, BufferSide::Both), "when there is room again")?;
            let all = ok(ok(buffer.on_device())?.to_vec())?;
            ensure(!world.bytes || all[..10] == [4; 10] && all[10..] == vec![3; LEN - 10], "what came to the device")
        })?;
    }
    // Larger than the device's memory will ever be.
    let options = DeviceOptions { capacity: MIB, ..small() };
    on_buffer(world, options, LEN, |_, _, buffer| {
        ok(buffer.on_device_mut())?;
        ensure(buffer.side() == BufferSide::Shared || buffer.is_fallback(), "4 MiB on a device of 1 MiB")
    })
}

pub(super) fn bad_input(world: &World<'_>) -> Result<(), String> {
    on_buffer(world, small(), 100, |device, stream, buffer| {
        let outside = |result: Result<usize, DeviceError>, what: &str| match result {
            Err(DeviceError::OutOfBounds { .. }) => Ok(()),
            other => Err(format!("{what}: {other:?}")),
        };
        let before = (buffer.side(), buffer.stats());
        outside(buffer.host_mut(..101).map(|s| s.len()), "one too many")?;
        outside(buffer.host_mut(101..).map(|s| s.len()), "beyond the end")?;
        #[expect(clippy::reversed_empty_ranges, reason = "it is what is tested")]
        outside(buffer.host_mut(60..40).map(|s| s.len()), "backwards")?;
        outside(buffer.host_mut(0..=usize::MAX).map(|s| s.len()), "to the end of all numbers")?;
        outside(buffer.host_mut(usize::MAX..).map(|s| s.len()), "from the end of all numbers")?;
        let overflows = (std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded);
        outside(buffer.host_mut(overflows).map(|s| s.len()), "after the end of all numbers")?;
        same((buffer.side(), buffer.stats()), before, "residence and counters after ranges that were refused")?;
        outside(ok(buffer.on_device())?.slice(99..=100).map(|s| s.len()), "a view beyond the end")?;
        outside(ok(buffer.on_device_mut())?.into_slice(..=usize::MAX).map(|s| s.len()), "a view without end")?;
        for len in [0, usize::MAX, usize::MAX / 4] {
            let made: Result<FallbackBuffer<u32>, _> = FallbackBuffer::new(device, stream, len);
            let bad = matches!(made, Err(DeviceError::BadRequest { .. } | DeviceError::OutOfMemory(_)));
            ensure(bad, format_args!("{len} elements: {made:?}"))?;
        }
        let other = Device::host();
        let theirs = ok(other.stream())?;
        let mixed: Result<FallbackBuffer<u32>, _> = FallbackBuffer::new(device, &theirs, 100);
        ensure(matches!(mixed, Err(DeviceError::OtherDevice { .. })), "a stream of another device")?;
        // Elements of another device come by way of the host.
        if world.bytes {
            let from = ok(DeviceBuffer::from_slice(&other, &theirs, &[9u32; 100]))?;
            ok(ok(buffer.on_device_mut())?.copy_from(&from.as_slice()))?;
            ensure(ok(buffer.host())? == [9; 100], "copied from another device")?;
            let short = ok(DeviceBuffer::from_slice(&other, &theirs, &[9u32; 99]))?;
            let refused = ok(buffer.on_device_mut())?.copy_from(&short.as_slice()).map(|_| 0);
            outside(refused, "from a buffer of another device that is too short")?;
        }
        Ok(())
    })
}

/// While a graph is captured nothing may be waited for or copied behind its back; what is there may be used.
pub(super) fn captured(world: &World<'_>) -> Result<(), String> {
    on_buffer(world, small(), 100, |device, stream, buffer| {
        let captured = |result: Result<(), DeviceError>, what: &str| match result {
            Err(DeviceError::Capture(_)) => Ok(()),
            other => Err(format!("{what}: {other:?}")),
        };
        let shared = buffer.side() == BufferSide::Shared;
        let pool = ok(device.graph_pool())?;
        let capture = ok(stream.capture(&pool))?;
        if !shared {
            captured(buffer.on_device().map(drop), "device memory for a graph, and a copy")?;
        }
        ok(buffer.host_mut(..))?.fill(1);
        drop(capture);
        ok(buffer.on_device_mut())?;
        let capture = ok(stream.capture(&pool))?;
        captured(buffer.host().map(drop), "the device wrote: the host would wait")?;
        ok(buffer.on_device_mut())?;
        drop(capture);
        ensure(!world.bytes || ok(buffer.host())? == [1; 100], "after the capture")
    })
}
