//! Tests over a real driver of whose functions some are replaced: they count, refuse, or say something else.
//!
//! Promises upward: nothing.
//! Asks from below: a driver; without one each test is skipped by name.

use crate::error::OpenClError;
use crate::functions::{CoreFunctions, Functions, altered, loaded};
use crate::layouts::{ClCode, ClHandle};
use crate::memory::OpenClMemory;
use crate::opencl::OpenClBackend;
use std::cell::Cell;
use terrace_device::{Backend, MemoryKind};

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
    /// Calls of a replaced function by this thread.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "system" fn counted_wait(count: u32, events: *const ClHandle) -> ClCode {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: the caller's promise.
    unsafe { (real().clWaitForEvents)(count, events) }
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
