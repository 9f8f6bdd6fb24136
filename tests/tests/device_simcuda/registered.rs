//! The user's own memory, as the driver sees it pinned: once, and not unpinned in flight.

use super::{open, small};
use terrace_device::{DeviceBuffer, DeviceError, RegisteredBuffer};
use terrace_tests::simcuda::{Session, Simulator};

fn unpinned(session: &Session) -> u64 {
    session.calls(Some("cuMemHostUnregister"))
}

/// The fence is waited for before the memory is unpinned: the simulator reports who unpins memory in flight.
#[test]
fn memory_dropped_in_flight_is_unpinned_after_its_copy() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let pinned = RegisteredBuffer::new(&device, &one, vec![9_u8; 1 << 20]).expect("pinned");
    let mut buffer = DeviceBuffer::<u8>::new(&device, &two, 1 << 20).expect("memory");
    let before = unpinned(&session);
    session.hold();
    drop(pinned.copy_to(&mut buffer).expect("queued"));
    assert_eq!((unpinned(&session) - before, device.stats().held), (0, 1), "held while the copy is under way");
    session.release();
    assert_eq!(buffer.to_vec().expect("copied"), vec![9; 1 << 20]);
    device.trim();
    assert_eq!((unpinned(&session) - before, device.stats().held), (1, 0), "unpinned when it was done");
}

/// A copy that nobody waits for any more: the memory stays as it is, pinned, for good.
#[test]
fn memory_forgotten_in_flight_is_never_freed() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks();
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let pinned = RegisteredBuffer::new(&device, &stream, vec![9_u8; 1 << 16]).expect("pinned");
    let mut buffer = DeviceBuffer::<u8>::new(&device, &stream, 1 << 16).expect("memory");
    let before = unpinned(&session);
    std::mem::forget(pinned.copy_to(&mut buffer).expect("queued"));
    device.trim();
    assert_eq!((buffer.to_vec().expect("copied")[7], unpinned(&session) - before), (9, 0));
}

#[test]
fn memory_that_is_pinned_already_is_refused_and_stays_so() {
    let _session = Simulator::exclusive(r#"{"profile": "two-peers"}"#);
    let (first, second) = (open(0, small()).expect("a device"), open(1, small()).expect("another"));
    let (here, there) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let mut elements = vec![1_u32; 5000];
    let parts = (elements.as_mut_ptr(), elements.len(), elements.capacity());
    let pinned = RegisteredBuffer::new(&first, &here, elements).expect("pinned");
    // SAFETY: the same `Vec` a second time, which the driver refuses: it comes back, and is forgotten.
    let twice = unsafe { Vec::from_raw_parts(parts.0, parts.1, parts.2) };
    let refused = RegisteredBuffer::new(&second, &there, twice).expect_err("pinned already");
    let said = matches!(&refused.error, DeviceError::Driver { fault, .. } if fault.code == 712);
    std::mem::forget(refused.back);
    assert!(said, "{:?}", refused.error);
    assert_eq!(pinned.into_vec().expect("unpinned"), vec![1; 5000]);
}

/// The driver refuses to unpin: the elements come back from `into_vec`; dropped, they are left alone.
#[test]
fn a_refusal_to_unpin_loses_no_elements() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks();
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let pinned = RegisteredBuffer::new(&device, &stream, vec![4_u16; 3000]).expect("pinned");
    session.fail("cuMemHostUnregister", 1, 999);
    let elements = pinned.into_vec().expect("a refusal that passes is overcome");
    let pinned = RegisteredBuffer::new(&device, &stream, elements).expect("pinned again");
    session.lose(0, 719);
    let refused = pinned.into_vec().expect_err("the device is lost");
    assert!(matches!(refused.error, DeviceError::Lost { .. }), "{:?}", refused.error);
    assert_eq!(refused.back, vec![4; 3000]);
}

/// The device goes first: what is in flight is waited for, then unpinned.
#[test]
fn a_device_that_ends_unpins_what_is_held() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let pinned = RegisteredBuffer::new(&device, &stream, vec![9_u8; 1 << 20]).expect("pinned");
    let mut buffer = DeviceBuffer::<u8>::new(&device, &stream, 1 << 20).expect("memory");
    let before = unpinned(&session);
    session.hold();
    drop(pinned.copy_to(&mut buffer).expect("queued"));
    session.release();
    drop((buffer, stream, device));
    assert_eq!(unpinned(&session) - before, 1);
}
