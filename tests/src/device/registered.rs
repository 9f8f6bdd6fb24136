//! The user's own memory, pinned in place.

use super::{World, cut, ensure, ok, same, small, with};
use terrace_device::{Capabilities, DeviceBuffer, DeviceError, FaultReason, RegisteredBuffer};

const ELEMENTS: usize = cut(100_000, 1_000);

pub(super) fn there_and_back(world: &World<'_>) -> Result<(), String> {
    if !world.bytes {
        return Ok(());
    }
    with(world, small(), |device| {
        let (one, two) = (ok(device.stream())?, ok(device.stream())?);
        if !device.description().capabilities.contains(Capabilities::REGISTRATION) {
            return Ok(());
        }
        let mut elements: Vec<u32> = Vec::with_capacity(ELEMENTS + 23_456);
        elements.extend((0..ELEMENTS as u32).map(|i: u32| i.wrapping_mul(2_654_435_761)));
        let (content, place) = (elements.clone(), (elements.as_ptr(), elements.capacity()));
        let mut pinned = ok(RegisteredBuffer::new(device, &one, elements).map_err(DeviceError::from))?;
        ensure(*pinned == content[..], "pinning changes no byte")?;
        pinned[7] = 7;
        let mut buffer: DeviceBuffer<u32> = ok(DeviceBuffer::new(device, &two, ELEMENTS))?;
        let transfer = ok(pinned.copy_to(&mut buffer).map_err(DeviceError::from))?;
        let mut pinned = ok(transfer.wait())?;
        same(ok(buffer.to_vec())?[5..9].to_vec(), vec![content[5], content[6], 7, content[8]], "copied to the device")?;
        pinned.fill(0);
        let pinned = ok(ok(pinned.copy_from(&buffer).map_err(DeviceError::from))?.wait())?;
        let elements = ok(pinned.into_vec().map_err(DeviceError::from))?;
        same((elements.as_ptr(), elements.capacity()), place, "the same `Vec`")?;
        ensure(elements[8..] == content[8..] && elements[7] == 7, "and back")?;
        // Dropped on its way: the copy is done before the memory is freed.
        let pinned = ok(RegisteredBuffer::new(device, &one, content.clone()).map_err(DeviceError::from))?;
        drop(ok(pinned.copy_to(&mut buffer).map_err(DeviceError::from))?);
        ensure(ok(buffer.to_vec())? == content, "what was dropped in flight arrived")
    })
}

pub(super) fn refusals(world: &World<'_>) -> Result<(), String> {
    with(world, small(), |device| {
        let stream = ok(device.stream())?;
        let none = RegisteredBuffer::<u64>::new(device, &stream, Vec::new()).err();
        ensure(
            matches!(none, Some(refused) if matches!(refused.error, DeviceError::BadRequest { .. })),
            "no elements",
        )?;
        if !device.description().capabilities.contains(Capabilities::REGISTRATION) {
            let Err(refused) = RegisteredBuffer::new(device, &stream, vec![5_u64; 100]) else {
                return Err("a device that cannot pin memory did".into());
            };
            let why =
                matches!(&refused.error, DeviceError::Driver { fault, .. } if fault.reason == FaultReason::Unsupported);
            ensure(why, "the reason")?;
            return same(refused.back, vec![5; 100], "the memory comes back");
        }
        let pinned = ok(RegisteredBuffer::new(device, &stream, vec![5_u64; 100]).map_err(DeviceError::from))?;
        let mut short: DeviceBuffer<u64> = ok(DeviceBuffer::new(device, &stream, 99))?;
        let Err(refused) = pinned.copy_to(&mut short) else { return Err("a buffer too short took it all".into()) };
        ensure(matches!(refused.error, DeviceError::OutOfBounds { .. }), "a buffer too short")?;
        let other = ok((world.open)(small()))?;
        let mut strange: DeviceBuffer<u64> = ok(DeviceBuffer::new(&other, &ok(other.stream())?, 100))?;
        let Err(refused) = refused.back.copy_to(&mut strange) else { return Err("another device took it".into()) };
        ensure(matches!(refused.error, DeviceError::OtherDevice { .. }), "a buffer of another device")?;
        let elements = ok(refused.back.into_vec().map_err(DeviceError::from))?;
        same(elements, vec![5; 100], "the memory comes back")?;
        let wrong = RegisteredBuffer::new(device, &ok(other.stream())?, vec![6_u64; 10]).err();
        ensure(matches!(wrong, Some(refused) if refused.back == [6; 10]), "a stream of another device")
    })
}
