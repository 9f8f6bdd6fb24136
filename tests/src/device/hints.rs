//! Hints about managed memory, and leases to read it: they change no byte.

use super::{World, cut, ensure, ok, same, small, with};
use terrace_device::{Advice, Capabilities, Device, DeviceError, FaultReason, Hint, Stream, UnifiedBuffer};

/// Elements of managed memory.
const LEN: usize = cut(100_000, 3_000);

/// Managed memory, where the device has it.
fn unified(device: &Device, stream: &Stream, len: usize) -> Result<Option<UnifiedBuffer<u32>>, String> {
    match UnifiedBuffer::new(device, stream, len) {
        Ok(buffer) => Ok(Some(buffer)),
        Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// What this device does with hints.
fn expected(device: &Device) -> Hint {
    let can = device.description().capabilities;
    let takes = can.contains(Capabilities::CONCURRENT_MANAGED) && !can.contains(Capabilities::SYNCHRONOUS);
    if takes { Hint::Given } else { Hint::Ignored }
}

pub(super) fn given_or_ignored(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let Some(mut shared) = unified(device, &stream, LEN)? else { return Ok(()) };
        ok(shared.lease())?.iter_mut().enumerate().for_each(|(i, element)| *element = i as u32);
        let expected = expected(device);
        same(ok(shared.prefetch_to_device(..))?, expected, "a prefetch of all to the device")?;
        // A driver that moves managed memory on request may know no advice (OpenCL): then it ignores all.
        let advised = ok(shared.advise(.., Advice::AccessedByDevice))?;
        ensure(advised == expected || advised == Hint::Ignored, "advice that a device takes which takes no hints")?;
        for advice in [Advice::ReadMostly, Advice::PreferDevice, Advice::PreferHost, Advice::AccessedByDevice] {
            same(ok(shared.advise(.., advice))?, advised, "advice about all")?;
            same(ok(shared.advise(10..20, advice.undo()))?, advised, "undone for a part")?;
        }
        same(ok(shared.prefetch_to_host(1000..LEN / 2))?, expected, "a prefetch of a part to the host")?;
        same(ok(shared.prefetch_to_host(5..5))?, Hint::Ignored, "a prefetch of nothing")?;
        let outside = |result: Result<Hint, DeviceError>| matches!(result, Err(DeviceError::OutOfBounds { .. }));
        ensure(outside(shared.prefetch_to_device(..LEN + 1)), "a prefetch beyond the end")?;
        ensure(outside(shared.advise(LEN + 1.., Advice::ReadMostly)), "advice beyond the end")?;
        let whole = ok(shared.lease())?.iter().enumerate().all(|(i, &element)| element == i as u32);
        ensure(whole, "hints change no byte")
    })
}

/// Two leases to read at once, and what was put on the stream is waited for.
pub(super) fn read_leases(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let Some(mut shared) = unified(device, &stream, LEN)? else { return Ok(()) };
        ok(shared.as_slice_mut().fill(0x0a0b_0c0d))?;
        let (one, two) = (ok(shared.lease_ref())?, ok(shared.lease_ref())?);
        same((one.len(), two.len()), (LEN, LEN), "elements under a lease")?;
        ensure(one.iter().chain(two.iter()).all(|&element| element == 0x0a0b_0c0d), "what the device filled")?;
        same(ok(ok(shared.as_slice().slice(3..5))?.to_vec())?, vec![0x0a0b_0c0d; 2], "a copy of a part")
    })
}
