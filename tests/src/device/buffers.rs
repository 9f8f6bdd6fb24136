//! Typed buffers: elements, views, host memory.

use super::{World, cut, ensure, ok, same, small, with};
use terrace_core::ring::RingLayout;
use terrace_device::{
    Capabilities, Device, DeviceBuffer, DeviceError, DeviceOptions, FaultReason, PinnedBuffer, UnifiedBuffer,
    UnifiedRing,
};

pub(super) fn elements(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let numbers: Vec<u32> = (0..10_000).map(|i: u32| i.wrapping_mul(2_654_435_761)).collect();
        let mut buffer = ok(DeviceBuffer::from_slice(device, &stream, &numbers))?;
        same((buffer.len(), buffer.bytes(), buffer.is_empty()), (10_000, 40_000, false), "length, bytes, empty")?;
        ensure(ok(buffer.to_vec())? == numbers, "elements written are read")?;
        same(ok(ok(buffer.slice(5..9))?.to_vec())?, numbers[5..9].to_vec(), "a view")?;
        same(ok(ok(ok(buffer.slice(100..))?.slice(..=1))?.to_vec())?, numbers[100..102].to_vec(), "a view of a view")?;
        // A value whose bytes differ, and one whose bytes are the same.
        ok(ok(buffer.slice_mut(1..7_001))?.fill(0x0102_0304))?;
        ok(ok(buffer.slice_mut(9_000..))?.fill(0x7777_7777))?;
        let all = ok(buffer.to_vec())?;
        ensure(all[0] == numbers[0] && all[7_001..9_000] == numbers[7_001..9_000], "beside what was filled")?;
        ensure(all[1..7_001].iter().all(|&element| element == 0x0102_0304), "filled with four different bytes")?;
        ensure(all[9_000..].iter().all(|&element| element == 0x7777_7777), "filled with one byte")?;
        let (mut low, mut high) = ok(buffer.as_slice_mut().split_at(4_000))?;
        same((low.len(), high.len(), high.address() - low.address()), (4_000, 6_000, 16_000), "two parts")?;
        ok(low.write(&numbers[..4_000]))?;
        ok(high.write(&numbers[4_000..]))?;
        ensure(ok(buffer.to_vec())? == numbers, "two parts written apart")?;
        let bytes: DeviceBuffer<u8> = ok(buffer.cast())?;
        same(bytes.len(), 40_000, "as bytes")?;
        same(ok(ok(bytes.slice(4..8))?.to_vec())?, numbers[1].to_ne_bytes().to_vec(), "bytes of an element")?;
        let zeros: DeviceBuffer<u64> = ok(DeviceBuffer::zeroed(device, &stream, 5_000))?;
        ensure(ok(zeros.to_vec())?.iter().all(|&element| element == 0), "zeros")?;
        same(zeros.cast::<[u8; 3]>().is_err(), true, "40,000 bytes are no whole triples")
    })
}

pub(super) fn views_stay_inside(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let mut buffer: DeviceBuffer<u32> = ok(DeviceBuffer::new(device, &stream, 100))?;
        let outside = |result: Result<(), DeviceError>, what: &str| match result {
            Err(DeviceError::OutOfBounds { .. }) => Ok(()),
            other => Err(format!("{what}: {other:?}")),
        };
        outside(buffer.slice(..101).map(drop), "one too many")?;
        outside(buffer.slice(101..).map(drop), "beyond the end")?;
        #[expect(clippy::reversed_empty_ranges, reason = "it is what is tested")]
        outside(buffer.slice(60..40).map(drop), "backwards")?;
        outside(buffer.slice(0..=usize::MAX).map(drop), "to the end of all numbers")?;
        let overflows = (std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded);
        outside(buffer.slice(overflows).map(drop), "after the end of all numbers")?;
        outside(buffer.slice_mut(usize::MAX..).map(drop), "from the end of all numbers")?;
        outside(buffer.as_slice_mut().split_at(101).map(drop), "a split beyond the end")?;
        outside(buffer.as_slice_mut().write(&[0; 101]), "too many elements")?;
        outside(buffer.as_slice().read(&mut [0; 101]), "too many elements to read")?;
        let other: DeviceBuffer<u32> = ok(DeviceBuffer::new(device, &stream, 99))?;
        outside(buffer.copy_from(&other).map(drop), "another length")?;
        ok(buffer.slice(100..).map(drop))?;
        let none: Result<DeviceBuffer<u32>, _> = DeviceBuffer::new(device, &stream, 0);
        ensure(matches!(none, Err(DeviceError::BadRequest { .. })), "no elements")?;
        let huge: Result<DeviceBuffer<u64>, _> = DeviceBuffer::new(device, &stream, usize::MAX);
        ensure(matches!(huge, Err(DeviceError::BadRequest { .. })), "more bytes than 2^64")?;
        let huge = [
            ("pinned, near 2^64 bytes", PinnedBuffer::<u64>::new(device, &stream, usize::MAX / 8).err()),
            ("pinned, 2^62 bytes", PinnedBuffer::<u8>::new(device, &stream, 1 << 62).err()),
            ("pinned, rounded up beyond 2^64", device.allocate_pinned(&stream, u64::MAX - 5, 2 << 20).err()),
            ("unified, 2^61 bytes", UnifiedBuffer::<u8>::new(device, &stream, 1 << 61).err()),
        ];
        let given = huge.iter().find(|(_, error)| error.is_none()).map(|(what, _)| what);
        same(given, None, "memory that no machine has")?;
        let layout = RingLayout::new(1 << 30, 1 << 30).map(|layout| UnifiedRing::new(device, &stream, layout).is_ok());
        ensure(layout != Ok(true), "a ring of 2^60 bytes")
    })
}

/// Host memory that the device reaches, when it can.
fn pinned(device: &Device, stream: &terrace_device::Stream, len: usize) -> Result<Option<PinnedBuffer<u8>>, String> {
    match PinnedBuffer::new(device, stream, len) {
        Ok(buffer) => Ok(Some(buffer)),
        Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Bytes of a large copy.
const LARGE: usize = cut(3 << 20, 3 << 10);

pub(super) fn pinned_copies(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let (one, two) = (ok(device.stream())?, ok(device.stream())?);
        let Some(mut staging) = pinned(device, &one, LARGE)? else { return Ok(()) };
        ensure(staging.iter().all(|&byte| byte == 0), "fresh pinned memory is zero")?;
        for (i, byte) in staging.iter_mut().enumerate() {
            *byte = ((i * 31) >> 3) as u8;
        }
        let content = staging.to_vec();
        let mut buffer: DeviceBuffer<u8> = ok(DeviceBuffer::new(device, &two, LARGE))?;
        let transfer = ok(staging.copy_to(&mut buffer))?;
        let mut staging = ok(transfer.wait())?;
        staging.fill(0);
        let staging = ok(ok(staging.copy_from(&buffer))?.wait())?;
        ensure(*staging == content[..], "there and back")?;
        // Dropped on its way: the memory is not the host's before the copy is done.
        for round in 0..cut(20u8, 2) {
            let Some(mut first) = pinned(device, &one, LARGE / 3)? else { return Ok(()) };
            first.fill(round);
            drop(ok(first.copy_to(&mut buffer))?);
            let Some(mut second) = pinned(device, &one, LARGE / 3)? else { return Ok(()) };
            second.fill(0xee);
            let mut back = vec![0; LARGE / 3];
            ok(ok(buffer.slice(..LARGE / 3))?.read(&mut back))?;
            ensure(back.iter().all(|&byte| byte == round), format_args!("round {round}: bytes of a later use"))?;
        }
        // Shorter by one, though the block behind it has the room.
        let mut short: DeviceBuffer<u8> = ok(DeviceBuffer::new(device, &two, LARGE - 1))?;
        ensure(matches!(staging.copy_to(&mut short), Err(DeviceError::OutOfBounds { .. })), "a buffer too short")
    })
}

/// 20.4 GiB pin no power of two; the pool takes little beyond what is live.
pub(super) fn pinned_sizes(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let (mut kept, mut asked) = (Vec::new(), 0);
        for i in 0..40usize {
            let bytes = 300_000 + i * 70_001;
            asked += bytes as u64;
            match pinned(device, &stream, bytes)? {
                Some(buffer) => kept.push(buffer),
                None => return Ok(()),
            }
        }
        let stats = device.stats().pinned;
        ensure(
            stats.in_use - asked < 40 * 256 && stats.reserved * 100 <= asked * 105,
            format_args!(
                "{stats:?}: more than whole granules, or than 1.05 times the {asked} bytes that were asked for"
            ),
        )?;
        drop(kept);
        device.trim();
        same(device.stats().pinned.reserved, 0, "pinned memory in the end")
    })
}

pub(super) fn unified(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, DeviceOptions { ..small() }, |device| {
        let stream = ok(device.stream())?;
        let made: Result<UnifiedBuffer<u64>, _> = UnifiedBuffer::new(device, &stream, cut(50_000, 500));
        if !device.description().capabilities.contains(Capabilities::MANAGED) {
            let refused =
                matches!(made, Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported);
            return ensure(refused, "a device without managed memory says so");
        }
        let mut shared = ok(made)?;
        ensure(ok(shared.lease())?.iter().all(|&element| element == 0), "fresh managed memory is zero")?;
        ok(shared.lease())?.iter_mut().enumerate().for_each(|(i, element)| *element = i as u64);
        ensure(ok(shared.lease())?.iter().enumerate().all(|(i, &element)| element == i as u64), "what the CPU wrote")?;
        drop(shared);
        device.trim();
        same(device.stats().managed.reserved, 0, "managed memory in the end")
    })
}

/// Streams and memory of two devices do not meet but by copies, which go by way of the host.
pub(super) fn mixed_devices(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let other = Device::host();
        let (mine, theirs) = (ok(device.stream())?, ok(other.stream())?);
        let foreign = |result: Result<(), DeviceError>, what: &str| match result {
            Err(DeviceError::OtherDevice { .. }) => Ok(()),
            other => Err(format!("{what}: {other:?}")),
        };
        foreign(DeviceBuffer::<u32>::new(device, &theirs, 10).map(drop), "a buffer on a stream of another device")?;
        foreign(PinnedBuffer::<u32>::new(device, &theirs, 10).map(drop), "pinned memory, likewise")?;
        foreign(UnifiedBuffer::<u32>::new(device, &theirs, 10).map(drop), "managed memory, likewise")?;
        let mut target: DeviceBuffer<u32> = ok(DeviceBuffer::new(device, &mine, 10))?;
        let staging = ok(PinnedBuffer::<u32>::new(&other, &theirs, 10))?;
        foreign(staging.copy_to(&mut target).map(drop), "pinned memory of one device to another")?;
        let staging = ok(PinnedBuffer::<u32>::new(&other, &theirs, 10))?;
        foreign(staging.copy_from(&target).map(drop), "to pinned memory of one device from another")?;
        if world.bytes {
            ok(target.copy_from(&ok(DeviceBuffer::from_slice(&other, &theirs, &[5; 10]))?))?;
            same(ok(target.to_vec())?, vec![5; 10], "copied from another device")?;
        }
        Ok(())
    })
}
