//! Tests over a real driver of whose functions some are replaced: they count, refuse, or say something else.
//!
//! Promises upward: nothing.
//! Asks from below: a driver; without one each test is skipped by name.

use crate::error::OpenClError;
use crate::functions::{CoreFunctions, Functions, altered, loaded};
use crate::layouts::{CL_DEVICE_VERSION, CL_EVENT_COMMAND_EXECUTION_STATUS, ClCode, ClHandle};
use crate::memory::OpenClMemory;
use crate::opencl::OpenClBackend;
use std::cell::Cell;
use std::ffi::c_void;
use terrace_device::{Backend, Capabilities, FaultReason, MemoryKind};

const BYTES: u64 = 4096;

/// What the driver has.
fn real() -> &'static CoreFunctions {
    &loaded().unwrap_or_else(|error| panic!("{error}")).core
}

/// The first device with changed functions; what opening says.
fn opened(
    test: &str,
    memory: OpenClMemory,
    change: impl FnOnce(&mut Functions),
) -> Option<Result<OpenClBackend, OpenClError>> {
    let opened = altered(change).and_then(|functions| OpenClBackend::open_by(functions, 0, memory));
    match opened {
        Err(error @ (OpenClError::NoLibrary { .. } | OpenClError::NoDevice { found: 0, .. })) => {
            println!("SKIP {test}: {}", error.to_string().replace('\n', " "));
            None
        }
        opened => Some(opened),
    }
}

thread_local! {
    /// Calls of a replaced function by this thread, or how many more of them fail.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "system" fn counted_wait(count: u32, events: *const ClHandle) -> ClCode {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the caller's promise.
    unsafe { (real().clWaitForEvents)(count, events) }
}

unsafe extern "system" fn failed_wait(count: u32, events: *const ClHandle) -> ClCode {
    // SAFETY: the caller's promise.
    let waited = unsafe { (real().clWaitForEvents)(count, events) };
    if CALLS.replace(CALLS.get().saturating_sub(1)) > 0 { -5 } else { waited }
}

/// Once the command that unmaps it is queued, pinned memory is gone: no later call may name it.
#[test]
fn pinned_memory_is_gone_once_its_unmap_is_queued() {
    let change = |functions: &mut Functions| functions.core.clWaitForEvents = failed_wait;
    let test = "pinned_memory_is_gone_once_its_unmap_is_queued";
    let Some(backend) = opened(test, OpenClMemory::Buffers, change) else { return };
    let backend = backend.expect("it opens");
    let region = backend.take(MemoryKind::Pinned, BYTES).expect("room");
    CALLS.set(9);
    // SAFETY: taken above, and unused.
    assert_eq!(unsafe { backend.give_back(MemoryKind::Pinned, region, BYTES) }, Ok(()));
    assert_eq!(CALLS.replace(0), 8, "its own event");
    // SAFETY: refused, as there is no such region.
    let again = unsafe { backend.give_back(MemoryKind::Pinned, region, BYTES) };
    assert_eq!(again.map_err(|fault| fault.reason), Err(FaultReason::BadHandle));
}

unsafe extern "system" fn failed_status(
    event: ClHandle,
    which: u32,
    room: usize,
    into: *mut c_void,
    size: *mut usize,
) -> ClCode {
    // SAFETY: the caller's promise.
    let code = unsafe { (real().clGetEventInfo)(event, which, room, into, size) };
    if CALLS.get() > 0 && which == CL_EVENT_COMMAND_EXECUTION_STATUS {
        // SAFETY: the caller lends room for a status.
        unsafe { into.cast::<ClCode>().write(-4) };
    }
    code
}

/// A driver that gives a buffer its memory at its first use says in that command's event alone that there is none.
#[test]
fn a_region_whose_memory_could_not_be_had_is_refused() {
    let change = |functions: &mut Functions| functions.core.clGetEventInfo = failed_status;
    let test = "a_region_whose_memory_could_not_be_had_is_refused";
    let Some(backend) = opened(test, OpenClMemory::Buffers, change) else { return };
    let backend = backend.expect("it opens");
    CALLS.set(1);
    let refused = backend.take(MemoryKind::Device, BYTES);
    CALLS.set(0);
    assert_eq!(refused.map_err(|fault| fault.reason), Err(FaultReason::OutOfMemory));
}

/// `clFinish` does not say that a command failed; a wait for its queue or for the device does, once, also behind a destroyed queue.
/// PoCL 3.1 ends the process when an event fails, so that the status is not its own here.
#[test]
fn a_command_that_failed_is_told_once() {
    let change = |functions: &mut Functions| functions.core.clGetEventInfo = failed_status;
    for memory in [OpenClMemory::Buffers, OpenClMemory::FineSvm] {
        let Some(backend) = opened("a_command_that_failed_is_told_once", memory, change) else { return };
        let backend = backend.expect("it opens");
        let region = backend.take(MemoryKind::Device, BYTES).expect("room");
        for (all, destroy) in [(false, false), (true, false), (true, true)] {
            let stream = backend.create_stream().expect("a stream");
            // SAFETY: a live region and stream.
            unsafe { backend.fill(region, 1, BYTES, stream) }.expect("filled");
            CALLS.set(1);
            if destroy {
                // SAFETY: a live stream, not named again.
                unsafe { backend.destroy_stream(stream) }.expect("destroyed");
            }
            // SAFETY: a live stream, where it is asked for.
            let told = if all { backend.synchronize() } else { unsafe { backend.synchronize_stream(stream) } };
            let fault = told.expect_err("the fill failed");
            assert!(fault.code == -4 && fault.call.contains("Fill"), "{memory}: {fault}");
            assert_eq!(backend.synchronize(), Ok(()), "{memory}: it was told");
            CALLS.set(0);
            if !destroy {
                // SAFETY: a live stream, not named again.
                unsafe { backend.destroy_stream(stream) }.expect("destroyed");
                backend.synchronize().expect("all is done");
            }
        }
        // SAFETY: taken above; what used it is over.
        unsafe { backend.give_back(MemoryKind::Device, region, BYTES) }.expect("goes back");
    }
}

thread_local! {
    /// What the device says of its version; as it is, where it is empty.
    static VERSION: Cell<&'static str> = const { Cell::new("") };
    /// Flags of the last allocation of shared virtual memory.
    static FLAGS: Cell<u64> = const { Cell::new(0) };
    /// Source, target and their offsets of the last copy between buffers.
    static COPIED: Cell<[usize; 4]> = const { Cell::new([0; 4]) };
}

unsafe extern "system" fn older(
    device: ClHandle,
    which: u32,
    room: usize,
    into: *mut c_void,
    size: *mut usize,
) -> ClCode {
    let says = VERSION.get();
    if which != CL_DEVICE_VERSION || says.is_empty() {
        // SAFETY: the caller's promise.
        return unsafe { (real().clGetDeviceInfo)(device, which, room, into, size) };
    }
    if !size.is_null() {
        // SAFETY: the caller lends an out parameter.
        unsafe { size.write(says.len()) };
    }
    if !into.is_null() {
        // SAFETY: the caller lends `room` bytes.
        unsafe { into.cast::<u8>().copy_from_nonoverlapping(says.as_ptr(), says.len().min(room)) };
    }
    0
}

unsafe extern "system" fn noted_alloc(context: ClHandle, flags: u64, bytes: usize, align: u32) -> *mut c_void {
    CALLS.set(CALLS.get() + 1);
    FLAGS.set(flags);
    let svm = loaded().ok().and_then(|functions| functions.svm.as_ref().ok()).expect("the functions are there");
    // SAFETY: the caller's promise.
    unsafe { (svm.clSVMAlloc)(context, flags, bytes, align) }
}

unsafe extern "system" fn counted_migrate(
    _: ClHandle,
    _: u32,
    _: *const *const c_void,
    _: *const usize,
    _: u64,
    _: u32,
    _: *const ClHandle,
    _: *mut ClHandle,
) -> ClCode {
    CALLS.set(CALLS.get() + 1);
    -59
}

fn watched(functions: &mut Functions) {
    functions.core.clGetDeviceInfo = older;
    if let Ok(svm) = &mut functions.svm {
        svm.clSVMAlloc = noted_alloc;
    }
}

/// A driver's table of functions ends with those of its version, whatever the loader exports.
#[test]
fn functions_newer_than_the_device_are_not_called() {
    let test = "functions_newer_than_the_device_are_not_called";
    VERSION.set("OpenCL 1.2 of old");
    let Some(backend) = opened(test, OpenClMemory::Buffers, watched) else { return };
    let capabilities = backend.expect("it opens").inner.description.capabilities;
    assert!(!capabilities.contains(Capabilities::MANAGED) && CALLS.get() == 0, "{capabilities:?}");
    let fine = opened(test, OpenClMemory::FineSvm, watched).expect("there is a device");
    assert!(matches!(&fine, Err(OpenClError::NoMemory { reason, .. }) if reason.contains("says so")), "{fine:?}");
    VERSION.set("OpenCL 2.0");
    let change = |functions: &mut Functions| {
        functions.core.clGetDeviceInfo = older;
        if let Ok(migrate) = &mut functions.migrate {
            migrate.clEnqueueSVMMigrateMem = counted_migrate;
        }
    };
    let backend = opened(test, OpenClMemory::FineSvm, change).expect("there is a device").expect("it opens");
    assert!(!backend.inner.description.capabilities.contains(Capabilities::CONCURRENT_MANAGED));
    assert_eq!(CALLS.get(), 0, "the function of 2.1");
    VERSION.set("");
}

/// Atomics of host and device work on memory that was allocated for them alone.
#[test]
fn fine_grained_memory_has_the_atomics_that_are_claimed() {
    let test = "fine_grained_memory_has_the_atomics_that_are_claimed";
    let Some(backend) = opened(test, OpenClMemory::FineSvm, watched) else { return };
    let backend = backend.expect("it opens");
    assert!(backend.inner.description.capabilities.contains(Capabilities::HOST_ATOMICS), "PoCL has them");
    for kind in [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Managed] {
        FLAGS.set(0);
        let region = backend.take(kind, BYTES).expect("room");
        assert_eq!(FLAGS.get() >> 10, 3, "CL_MEM_SVM_FINE_GRAIN_BUFFER, CL_MEM_SVM_ATOMICS: {kind:?}");
        // SAFETY: taken above, and unused.
        unsafe { backend.give_back(kind, region, BYTES) }.expect("goes back");
    }
}

unsafe extern "system" fn noted_copy(
    queue: ClHandle,
    source: ClHandle,
    target: ClHandle,
    from: usize,
    to: usize,
    bytes: usize,
    count: u32,
    events: *const ClHandle,
    event: *mut ClHandle,
) -> ClCode {
    COPIED.set([source.addr(), target.addr(), from, to]);
    // SAFETY: the caller's promise.
    unsafe { (real().clEnqueueCopyBuffer)(queue, source, target, from, to, bytes, count, events, event) }
}

/// Drivers may refuse a copy between sub-buffers that overlap, which those of close ranges do. PoCL 3.1 does not.
#[test]
fn a_copy_between_neighbours_names_one_sub_buffer() {
    let change = |functions: &mut Functions| functions.core.clEnqueueCopyBuffer = noted_copy;
    let test = "a_copy_between_neighbours_names_one_sub_buffer";
    let Some(backend) = opened(test, OpenClMemory::Buffers, change) else { return };
    let backend = backend.expect("it opens");
    let (region, stream) = (backend.take(MemoryKind::Device, BYTES).expect("room"), backend.create_stream());
    let (stream, align) = (stream.expect("a stream"), backend.align());
    for (to, from, together) in [(1, 0, true), (0, 1, true), (align, 0, false), (align + 1, align, true)] {
        // SAFETY: a live region and stream.
        unsafe { backend.copy(region + to, region + from, 1, stream) }.expect("copied");
        let [source, target, start, end] = COPIED.get();
        assert_eq!(source == target, together, "{to} {from}");
        assert!(!together || end.wrapping_sub(start) as u64 == to.wrapping_sub(from), "{to} {from}: {start} {end}");
    }
    // SAFETY: a live stream, not named again.
    unsafe { backend.destroy_stream(stream) }.expect("destroyed");
    backend.synchronize().expect("all is done");
    // SAFETY: taken above; the stream is done.
    unsafe { backend.give_back(MemoryKind::Device, region, BYTES) }.expect("goes back");
}

unsafe extern "system" fn no_fill(
    queue: ClHandle,
    _: ClHandle,
    _: *const c_void,
    _: usize,
    _: usize,
    _: usize,
    count: u32,
    events: *const ClHandle,
    event: *mut ClHandle,
) -> ClCode {
    if CALLS.get() > 0 {
        return -30;
    }
    // SAFETY: the caller's promise.
    unsafe { (real().clEnqueueMarkerWithWaitList)(queue, count, events, event) }
}

/// A kind of memory is missing where there is none; what the driver refuses otherwise is its error, and what it only says is seen.
#[test]
fn a_first_use_that_fails_is_no_lack_of_memory() {
    let test = "a_first_use_that_fails_is_no_lack_of_memory";
    let change = |functions: &mut Functions| functions.core.clEnqueueFillBuffer = no_fill;
    CALLS.set(1);
    let Some(refused) = opened(test, OpenClMemory::Buffers, change) else { return };
    assert!(matches!(&refused, Err(OpenClError::Driver(fault)) if fault.code == -30), "{refused:?}");
    CALLS.set(0);
    let nothing = opened(test, OpenClMemory::Buffers, change).expect("there is a device");
    assert!(matches!(&nothing, Err(OpenClError::NoMemory { reason, .. }) if reason.contains("read")), "{nothing:?}");
}

unsafe extern "system" fn twice(
    platform: ClHandle,
    kind: u64,
    room: u32,
    into: *mut ClHandle,
    found: *mut u32,
) -> ClCode {
    let half = room / 2;
    for into in [into, into.wrapping_add(half as usize)].into_iter().take(if half > 0 { 2 } else { 1 }) {
        // SAFETY: the caller's promise, with half of the room, or none.
        let code = unsafe { (real().clGetDeviceIDs)(platform, kind, half, into, found) };
        if code != 0 {
            return code;
        }
    }
    if !found.is_null() {
        // SAFETY: the caller lends an out parameter.
        unsafe { *found *= 2 };
    }
    0
}

unsafe extern "system" fn silent_first(
    device: ClHandle,
    which: u32,
    room: usize,
    into: *mut c_void,
    size: *mut usize,
) -> ClCode {
    if which == CL_DEVICE_VERSION && CALLS.replace(CALLS.get().saturating_sub(1)) > 0 {
        return -5;
    }
    // SAFETY: the caller's promise.
    unsafe { (real().clGetDeviceInfo)(device, which, room, into, size) }
}

/// One device that cannot be described is not listed; the others keep their ordinals.
#[test]
fn a_device_that_says_nothing_hides_no_other() {
    if opened("a_device_that_says_nothing_hides_no_other", OpenClMemory::Buffers, |_| ()).is_none() {
        return;
    }
    let change = |functions: &mut Functions| {
        functions.core.clGetDeviceIDs = twice;
        functions.core.clGetDeviceInfo = silent_first;
    };
    let functions = altered(change).expect("it is loaded");
    CALLS.set(1);
    let devices = OpenClBackend::devices_by(functions).expect("one answers");
    assert_eq!(devices.first().map(|device| device.ordinal), Some(1));
    CALLS.set(u32::MAX);
    assert!(OpenClBackend::devices_by(functions).is_err(), "none answers");
    CALLS.set(0);
}

/// An event that a query says is done orders its work before that of other queues, and before the host: OpenCL gives that to a wait,
/// and to no query.
#[test]
fn a_query_that_says_done_is_a_wait() {
    let change = |functions: &mut Functions| functions.core.clWaitForEvents = counted_wait;
    let Some(backend) = opened("a_query_that_says_done_is_a_wait", OpenClMemory::Buffers, change) else { return };
    let backend = backend.expect("it opens");
    let (first, second) = (backend.create_stream().expect("a stream"), backend.create_stream().expect("a stream"));
    let (region, event) = (backend.take(MemoryKind::Device, BYTES).expect("room"), backend.create_event());
    let event = event.expect("an event");
    // SAFETY: live regions, streams and events of this test's, here and below.
    unsafe { backend.fill(region, 7, BYTES, first) }.expect("filled");
    // SAFETY: as above.
    unsafe { backend.record(event, first) }.expect("recorded");
    CALLS.set(0);
    // SAFETY: as above.
    while !unsafe { backend.query(event) }.expect("it says") {
        assert_eq!(CALLS.get(), 0, "no wait for work in flight");
        std::thread::yield_now();
    }
    assert_eq!(CALLS.get(), 1, "the synchronisation point");
    // SAFETY: as above.
    unsafe { backend.order(second, event) }.expect("ordered");
    let mut read = [0_u8; BYTES as usize];
    let to = read.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: as above, and the copy is waited for.
    unsafe { backend.copy(to, region, BYTES, second) }.expect("copied");
    // SAFETY: as above.
    unsafe { backend.synchronize_stream(second) }.expect("done");
    assert_eq!(*std::hint::black_box(&mut read), [7; BYTES as usize]);
    // SAFETY: as above, for the last time.
    unsafe { backend.destroy_event(event) }.expect("destroyed");
    for stream in [first, second] {
        // SAFETY: as above.
        unsafe { backend.destroy_stream(stream) }.expect("destroyed");
    }
    // SAFETY: as above.
    unsafe { backend.give_back(MemoryKind::Device, region, BYTES) }.expect("goes back");
}
