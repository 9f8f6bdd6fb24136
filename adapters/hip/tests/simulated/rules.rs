//! Where HIP differs from CUDA.

use super::open;
use terrace_cuda::{Cuda, OpenErrorReason};
use terrace_device::{Backend, Capabilities, Device, DeviceError, DeviceOptions, FaultReason, MemoryKind};
use terrace_hip::Hip;
use terrace_tests::simcuda::HipSession;

const MIB: u64 = 1 << 20;

#[test]
fn a_device_has_by_hip_what_it_has_by_cuda() {
    for profile in ["discrete", "orin", "two-peers", "wsl2"] {
        let _session = HipSession::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        let (hip, cuda) = (Hip::open(0).expect("a device"), Cuda::open(0).expect("the same"));
        let (by_hip, by_cuda) = (hip.description(), cuda.description());
        assert_eq!((by_hip.backend, by_hip.driver.as_str()), ("hip", "ROCm 7.1"));
        assert_eq!(by_hip.capabilities, by_cuda.capabilities, "{profile}: {:?}, {:?}", by_hip.notes, by_cuda.notes);
        assert_eq!(
            (by_hip.total, by_hip.page_bytes, &by_hip.peers),
            (by_cuda.total, by_cuda.page_bytes, &by_cuda.peers)
        );
        assert_eq!(Hip::count(), Cuda::count());
    }
}

#[test]
fn errors_have_hip_s_names() {
    let session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    let hip = Hip::open(0).expect("a device");
    session.fail("cuMemAlloc_v2", 1, 2);
    let fault = hip.take(MemoryKind::Device, MIB).expect_err("refused");
    assert_eq!((fault.call, fault.name, fault.reason), ("hipMalloc", "hipErrorOutOfMemory", FaultReason::OutOfMemory));
    session.fail("cuMemAlloc_v2", 1, 911);
    let fault = hip.take(MemoryKind::Device, MIB).expect_err("refused");
    assert_eq!((fault.name, fault.reason), ("hipErrorInvalidChannelDescriptor", FaultReason::Other));
    let none = Hip::open(7).expect_err("one device");
    assert_eq!(none.reason, OpenErrorReason::NoDevice { ordinal: 7, found: 1 });
    assert_eq!(none.to_string(), "there is no ROCm device 7: the driver sees 1, the last one is 0");
}

/// A range of several mappings is opened and unmapped by one call of ours, and one of HIP's for each mapping.
#[test]
fn mappings_are_opened_and_unmapped_one_by_one() {
    let session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    let hip = Hip::open(0).expect("a device");
    let page = hip.description().page_bytes;
    let start = hip.reserve(4 * page).expect("address space");
    let handles = [1, 2].map(|pages| (pages * page, hip.create_handle(pages * page).expect("memory")));
    let mut at = start;
    for (bytes, handle) in handles {
        // SAFETY: reserved, and nothing is mapped there; the handle is live and of that size.
        unsafe { hip.map(at, bytes, handle) }.expect("mapped");
        // SAFETY: its memory stays while it is mapped; it is not named again.
        unsafe { hip.release_handle(handle) }.expect("released");
        at += bytes;
    }
    let calls = || ["cuMemSetAccess", "cuMemUnmap"].map(|name| session.calls(Some(name)));
    let [opened, unmapped] = calls();
    // SAFETY: both are mapped.
    unsafe { hip.allow(start, 3 * page, &[]) }.expect("opened");
    // SAFETY: no work uses the range.
    unsafe { hip.unmap(start, 3 * page) }.expect("unmapped");
    assert_eq!(calls(), [opened + 2, unmapped + 2]);
    // SAFETY: nothing is mapped there any more.
    unsafe { hip.unreserve(start, 4 * page) }.expect("given back");
}

/// A refusal of the second of two mappings is asked for once more; then both are gone.
#[test]
fn a_mapping_that_is_refused_once_goes_at_the_second_call() {
    let session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    let options = DeviceOptions { capacity: 256 * MIB, blocks: 1 << 10, ..DeviceOptions::default() };
    let device = open(0, options).expect("a device");
    let stream = device.stream().expect("a stream");
    drop([30, 60].map(|mib| device.allocate(&stream, mib * MIB).expect("room")));
    session.fail("cuMemUnmap", 2, 600);
    device.trim();
    assert_eq!(device.stats().pool.reserved, 0);
    assert!(device.allocate(&stream, MIB).is_ok());
}

/// Memory for the second device's pages is the second's, whichever device the thread has.
#[test]
fn pages_are_made_on_their_own_device() {
    let _session = HipSession::exclusive(r#"{"profile": "two-strangers"}"#);
    let [first, second] = [0, 1].map(|ordinal| Hip::open(ordinal).expect("two devices"));
    let free = || [&first, &second].map(|hip| hip.memory().expect("it says so").free);
    let (before, page) = (free(), second.description().page_bytes);
    let handle = second.create_handle(8 * page).expect("memory");
    assert_eq!(free(), [before[0], before[1] - 8 * page]);
    // SAFETY: made above, and not named again.
    unsafe { second.release_handle(handle) }.expect("released");
}

/// Where registered memory has another address on the device, it is not pinned in place: a kernel would use the host's.
#[test]
fn memory_that_the_device_has_elsewhere_is_not_registered() {
    let session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    assert!(Hip::open(0).expect("a device").description().capabilities.contains(Capabilities::REGISTRATION));
    session.register_elsewhere();
    let hip = Hip::open(0).expect("a device");
    assert!(!hip.description().capabilities.contains(Capabilities::REGISTRATION));
    let told = |note: &String| note.contains("own memory cannot be pinned: hipHostRegister");
    assert!(hip.description().notes.iter().any(told), "{:#?}", hip.description().notes);
}

/// What HIP refuses us is not what a program finds when it asks whether its own launch was refused.
#[test]
fn the_program_s_last_error_is_not_ours() {
    let session = HipSession::exclusive(r#"{"profile": "two-peers"}"#);
    let hip = Hip::open(0).expect("a device");
    assert_eq!(session.last_error(), 0, "of what was tried");
    session.fail("cuMemAlloc_v2", 1, 2);
    hip.take(MemoryKind::Device, MIB).expect_err("refused");
    assert_eq!(session.last_error(), 0);
    hip.reach(1).expect("peers");
    hip.reach(1).expect("already");
    assert_eq!(session.last_error(), 0);
}

/// In a child of the process that used HIP no call reaches it.
#[test]
fn a_forked_child_is_refused() {
    let session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    let hip = Hip::open(0).expect("a device");
    let calls = session.calls(None);
    // SAFETY: the child only calls what is tested, which waits for no other thread, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |reason: &OpenErrorReason| matches!(reason, OpenErrorReason::Driver(fault) if fault.reason == FaultReason::Forked);
        let opened = Hip::open(0).is_err_and(|error| forked(&error.reason) && error.to_string().contains("fork first"));
        let counted = Hip::count().is_err_and(|error| forked(&error.reason));
        let taken = hip.take(MemoryKind::Device, MIB).is_err_and(|fault| fault.reason == FaultReason::Forked);
        let quiet = session.calls(None) == calls;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(opened && counted && taken && quiet))) };
    }
    let mut status = -1;
    // SAFETY: a child of ours; the out parameter lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// Of two mappings one is gone and HIP refuses the other: what is mapped is unknown, so nothing of the device is used again.
#[test]
fn a_range_that_is_half_unmapped_ends_the_device() {
    let mut session = HipSession::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks();
    let device =
        open(0, DeviceOptions { capacity: 256 * MIB, blocks: 1 << 10, ..DeviceOptions::default() }).expect("a device");
    let stream = device.stream().expect("a stream");
    drop([30, 60].map(|mib| device.allocate(&stream, mib * MIB).expect("room")));
    let unmapped = session.calls(Some("cuMemUnmap"));
    // The first mapping goes, the next is refused for good.
    (2..40).for_each(|nth| session.fail("cuMemUnmap", nth, 1));
    device.trim();
    assert!(session.calls(Some("cuMemUnmap")) > unmapped + 1, "more than one mapping");
    let refused = device.allocate(&stream, MIB).expect_err("it is lost");
    assert!(matches!(&refused, DeviceError::Lost { fault, .. } if fault.call == "hipMemUnmap"), "{refused:?}");
}

/// A thread's device is that of the program, before a call and after it.
#[test]
fn the_thread_keeps_its_device() {
    let _session = HipSession::exclusive(r#"{"profile": "two-peers"}"#);
    let device =
        open(1, DeviceOptions { capacity: 64 * MIB, blocks: 1 << 10, ..DeviceOptions::default() }).expect("the second");
    let current = || {
        // SAFETY: HIP's function of this name and type; the library stays loaded.
        let hip = unsafe { libloading::Library::new("libamdhip64.so") }.expect("loaded by the session");
        // SAFETY: as above.
        let get = unsafe { hip.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"hipGetDevice") }.expect("HIP's function");
        let mut ordinal = -1;
        // SAFETY: the out parameter lives through the call.
        assert_eq!(unsafe { get(&raw mut ordinal) }, 0);
        ordinal
    };
    let before = current();
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, MIB).expect("room"));
    assert_eq!((before, current()), (0, 0));
    assert!(device.description().capabilities.contains(Capabilities::PEERS));
    let other: Device =
        open(0, DeviceOptions { capacity: 64 * MIB, blocks: 1 << 10, ..DeviceOptions::default() }).expect("the first");
    device.reach(&other).expect("peers");
}
