//! Hints as the driver hears them: which function, about whom, which pages, and that they end with their buffer.

use super::{open, small};
use terrace_device::{Advice, DeviceError, FaultReason, Hint, UnifiedBuffer};
use terrace_tests::simcuda::{Session, Simulator};

/// `CU_MEM_RANGE_ATTRIBUTE_*`, and devices that are none: the CPU, nowhere.
const READ_MOSTLY: i32 = 1;
const PREFERRED: i32 = 2;
const ACCESSED_BY: i32 = 3;
const PREFETCHED: i32 = 4;
const CPU: i32 = -1;
const NOWHERE: i32 = -2;

/// Elements of a page: hints are kept for whole ones.
const PAGE: usize = 4096 / 4;

/// What the driver was told about a range, by its own function.
fn told(attribute: i32, address: u64, bytes: usize) -> i32 {
    let function: unsafe extern "C" fn(*mut i32, usize, i32, u64, usize) -> i32 =
        super::streams::raw("cuMemRangeGetAttribute");
    let _entered = super::streams::enter();
    let mut value = 0;
    // SAFETY: one word for the answer, which lives through the call.
    assert_eq!(unsafe { function(&mut value, 4, attribute, address, bytes) }, 0);
    value
}

fn calls(session: &Session) -> u64 {
    ["cuMemPrefetchAsync", "cuMemAdvise"].iter().map(|name| session.calls(Some(name))).sum()
}

#[test]
fn each_hint_says_what_it_means() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut shared = UnifiedBuffer::<u32>::new(&device, &stream, 64 * PAGE).expect("managed memory");
    let (at, all) = (shared.address(), 64 * 4096);
    let cases = [
        (Advice::ReadMostly, READ_MOSTLY, 1, 0),
        (Advice::PreferDevice, PREFERRED, 0, NOWHERE),
        (Advice::PreferHost, PREFERRED, CPU, NOWHERE),
        (Advice::AccessedByDevice, ACCESSED_BY, 0, NOWHERE),
    ];
    for (advice, attribute, said, unsaid) in cases {
        assert_eq!(told(attribute, at, all), unsaid, "{advice:?} before");
        assert_eq!(shared.advise(.., advice), Ok(Hint::Given));
        assert_eq!(told(attribute, at, all), said, "{advice:?}");
        assert_eq!(shared.advise(.., advice.undo()), Ok(Hint::Given));
        assert_eq!(told(attribute, at, all), unsaid, "{advice:?} undone");
    }
    // A part: its own pages and no others.
    assert_eq!(shared.advise(8 * PAGE..16 * PAGE, Advice::ReadMostly), Ok(Hint::Given));
    assert_eq!(told(READ_MOSTLY, at + 8 * 4096, 8 * 4096), 1);
    assert_eq!((told(READ_MOSTLY, at + 7 * 4096, 4096), told(READ_MOSTLY, at + 16 * 4096, 4096)), (0, 0));
    assert_eq!(shared.prefetch_to_device(..), Ok(Hint::Given));
    assert_eq!(shared.prefetch_to_host(PAGE..2 * PAGE), Ok(Hint::Given));
    assert_eq!((told(PREFETCHED, at, 4096), told(PREFETCHED, at + 4096, 4096)), (0, CPU));
    assert_eq!(session.calls(Some("cuMemPrefetchAsync")), 2);
}

#[test]
fn a_prefetch_waits_for_its_stream_and_nobody_for_it() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut shared = UnifiedBuffer::<u32>::new(&device, &stream, 64 * PAGE).expect("managed memory");
    session.hold();
    shared.as_slice_mut().fill(0x0707_0707).expect("queued");
    assert_eq!(shared.prefetch_to_host(..), Ok(Hint::Given));
    // Let go of in flight: its own stream has it next, in order; the simulator sees every touch of memory that went.
    drop(shared);
    let mut again = UnifiedBuffer::<u32>::new(&device, &stream, 64 * PAGE).expect("the same memory");
    session.release();
    assert!(again.lease().expect("done").iter().all(|&element| element == 0));
}

#[test]
fn advice_ends_with_its_buffer() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut shared = UnifiedBuffer::<u32>::new(&device, &stream, 64 * PAGE).expect("managed memory");
    let (at, all) = (shared.address(), 64 * 4096);
    for advice in [Advice::ReadMostly, Advice::PreferDevice, Advice::PreferHost, Advice::AccessedByDevice] {
        assert_eq!(shared.advise(.., advice), Ok(Hint::Given));
    }
    let before = calls(&session);
    drop(shared);
    assert_eq!(calls(&session) - before, 3, "each kind is taken back once");
    assert_eq!(
        (told(READ_MOSTLY, at, all), told(PREFERRED, at, all), told(ACCESSED_BY, at, all)),
        (0, NOWHERE, NOWHERE)
    );
    // Of pages that differ the driver says that they are not: each is asked for itself.
    assert!((0..64).all(|page| told(READ_MOSTLY, at + page * 4096, 4096) == 0), "to the last page");
    let before = calls(&session);
    drop(UnifiedBuffer::<u32>::new(&device, &stream, 64 * PAGE).expect("the same memory"));
    assert_eq!(calls(&session), before, "who gave no advice takes none back");
}

#[test]
fn a_device_that_takes_no_hints_is_not_asked() {
    for profile in ["wsl2", "orin"] {
        let session = Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        let device = open(0, small()).expect("a device");
        let stream = device.stream().expect("a stream");
        let mut shared = UnifiedBuffer::<u32>::new(&device, &stream, 1000).expect("managed memory");
        assert_eq!(shared.prefetch_to_device(..), Ok(Hint::Ignored));
        assert_eq!(shared.advise(.., Advice::PreferHost), Ok(Hint::Ignored));
        drop(shared);
        assert_eq!(calls(&session), 0, "{profile}");
    }
}

#[test]
fn a_refusal_for_want_of_support_is_a_hint_ignored() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut shared = UnifiedBuffer::<u32>::new(&device, &stream, 1000).expect("managed memory");
    for code in [800, 801] {
        session.fail("cuMemAdvise", 1, code);
        assert_eq!(shared.advise(.., Advice::ReadMostly), Ok(Hint::Ignored), "code {code}");
        session.fail("cuMemPrefetchAsync", 1, code);
        assert_eq!(shared.prefetch_to_host(..), Ok(Hint::Ignored), "code {code}");
    }
    session.fail("cuMemPrefetchAsync", 1, 999);
    let error = shared.prefetch_to_host(..).expect_err("that is no want of support");
    assert!(matches!(error, DeviceError::Driver { fault, .. } if fault.reason == FaultReason::Other), "{error:?}");
}

/// A lease waits for every stream that was named, not for the buffer's own alone.
#[test]
fn a_lease_waits_for_streams_that_were_named() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut shared = UnifiedBuffer::<u32>::new(&device, &one, 1000).expect("managed memory");
    shared.as_slice_mut().fill(3).expect("on its own stream");
    shared.as_slice().block().used_on(&two).expect("a stream of the same device");
    let before = session.calls(Some("cuStreamSynchronize"));
    assert_eq!(shared.lease().expect("both are done")[0], 3);
    assert_eq!(session.calls(Some("cuStreamSynchronize")) - before, 2, "its own stream and the one that was named");
}
