//! Tests over a real driver of whose functions some are replaced: they count, refuse, or say something else.
//!
//! Promises upward: nothing.
//! Asks from below: a driver; without one each test is skipped by name.

use crate::error::OpenClError;
use crate::functions::{CoreFunctions, Functions, altered, loaded};
use crate::layouts::{CL_EVENT_COMMAND_EXECUTION_STATUS, ClCode, ClHandle};
use crate::memory::OpenClMemory;
use crate::opencl::OpenClBackend;
use std::cell::Cell;
use std::ffi::c_void;
use terrace_device::{Backend, FaultReason, MemoryKind};

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

/// Once the driver has the command that ends its map, pinned memory is gone: no later call may be given it.
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
