//! Pinned, registered and managed memory.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_int;

fn pinned(bytes: usize) -> Done<u64> {
    make!(cuMemHostAlloc -> u64; bytes => usize, 0 => u32)
}

fn unpin(pointer: u64) -> Done {
    call!(cuMemFreeHost(pointer => u64))
}

fn register(memory: &[u8]) -> Done {
    call!(cuMemHostRegister_v2(memory.as_ptr() => *const u8, memory.len() => usize, 0 => u32))
}

fn unregister(memory: &[u8]) -> Done {
    call!(cuMemHostUnregister(memory.as_ptr() => *const u8))
}

#[test]
fn pinned_memory_is_the_hosts_and_the_devices() {
    let machine = Machine::discrete();
    let (buffer, block) = (pinned(64).expect("memory"), alloc(64).expect("memory"));
    let plain = make!(cuMemAllocHost_v2 -> u64; 64 => usize).expect("memory");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    set(buffer, 3, 64, a).and(copy(block, buffer, 64, a)).and(stream_sync(a)).expect("streams");
    assert_eq!(download(block, 64), Ok(vec![3; 64]));
    // Unordered use of a pinned buffer is a race too.
    set(buffer, 4, 64, a).and(copy(block, buffer, 64, b)).expect("streams");
    machine.caught("race");
    assert_eq!(make!(cuMemHostGetDevicePointer_v2 -> u64; buffer + 8 => u64, 0 => u32), Ok(buffer + 8));
    assert_eq!(make!(cuMemHostGetDevicePointer_v2 -> u64; block => u64, 0 => u32), Err(INVALID_VALUE));
    sync().and(unpin(buffer)).and(unpin(plain)).and(free(block)).expect("blocks");
    assert_eq!(unpin(buffer), Err(INVALID_VALUE));
    machine.caught("double-free");
    stream_destroy(a).and(stream_destroy(b)).expect("streams");
}

#[test]
fn memory_is_registered_once() {
    let _machine = Machine::discrete();
    let memory = vec![1_u8; 1 << 16];
    register(&memory).expect("host memory");
    assert_eq!(register(&memory), Err(ALREADY_REGISTERED));
    assert_eq!(register(&memory[100..200]), Err(ALREADY_REGISTERED));
    let block = alloc(64).expect("memory");
    let stream = stream(1).expect("a stream");
    let from = memory.as_ptr();
    call!(cuMemcpyHtoDAsync_v2(block => u64, from => *const u8, 64 => usize, stream => u64)).expect("registered");
    assert_eq!(stream_sync(stream).and(download(block, 2)), Ok(vec![1; 2]));
    assert_eq!(unregister(&memory[1..]), Err(NOT_REGISTERED));
    _machine.caught("bad-handle");
    unregister(&memory).expect("registered");
    assert_eq!(unregister(&memory), Err(NOT_REGISTERED));
    _machine.caught("bad-handle");
    free(block).and(stream_destroy(stream)).expect("all live");
}

#[test]
fn pinned_memory_may_be_limited() {
    let _machine = Machine::new(r#"{"profile": "wsl2", "pinned_limit": 1048576}"#);
    let first = pinned(1 << 19).expect("half");
    assert_eq!(pinned((1 << 19) + 1), Err(OUT_OF_MEMORY));
    let memory = vec![0_u8; 1 << 19];
    register(&memory).expect("the other half");
    assert_eq!(pinned(1), Err(OUT_OF_MEMORY));
    unregister(&memory).and(unpin(first)).expect("all there");
    unpin(pinned(1 << 20).expect("all of it again")).expect("a block");
}

#[test]
fn managed_memory_moves_where_the_machine_can() {
    let prefetch = |block: u64, bytes: usize, device: c_int| call!(cuMemPrefetchAsync(block => u64, bytes => usize, device => c_int, 0 => u64));
    let advise = |block: u64, advice: c_int| call!(cuMemAdvise(block => u64, 64 => usize, advice => c_int, 0 => c_int));
    let machine = Machine::discrete();
    let block = make!(cuMemAllocManaged -> u64; 64 => usize, 1 => u32).expect("memory");
    set(block, 1, 64, 0)
        .and(prefetch(block, 64, 0))
        .and(prefetch(block, 64, -1))
        .and(advise(block, 3))
        .expect("managed");
    let place = [1_i32, 0];
    let by_location = u64::from(place[0] as u32) | u64::from(place[1] as u32) << 32;
    call!(cuMemPrefetchAsync_v2(block => u64, 64 => usize, by_location => u64, 0 => u32, 0 => u64))
        .expect("a location");
    assert_eq!(prefetch(block, 65, 0), Err(INVALID_VALUE));
    assert_eq!(make!(cuMemAllocManaged -> u64; 64 => usize, 4 => u32), Err(INVALID_VALUE));
    let plain = alloc(64).expect("memory");
    assert_eq!(prefetch(plain, 64, 0), Err(INVALID_VALUE));
    sync().and(free(block)).and(free(plain)).expect("blocks");
    drop(machine);
    let _machine = Machine::new(r#"{"profile": "orin"}"#);
    let block = make!(cuMemAllocManaged -> u64; 64 => usize, 1 => u32).expect("memory");
    assert_eq!(
        (prefetch(block, 64, 0), advise(block, 3), advise(block, 1)),
        (Err(INVALID_DEVICE), Err(INVALID_DEVICE), Ok(()))
    );
    free(block).expect("a block");
}

#[test]
fn memory_in_flight_that_is_unregistered_is_a_finding() {
    let machine = Machine::discrete();
    let memory = vec![1_u8; 1 << 16];
    register(&memory).expect("host memory");
    let (block, stream) = (alloc(1 << 16).expect("memory"), stream(1).expect("a stream"));
    let from = memory.as_ptr();
    machine.hold();
    call!(cuMemcpyHtoDAsync_v2(block => u64, from => *const u8, 1 << 16 => usize, stream => u64)).expect("registered");
    let waiting = std::thread::scope(|scope| {
        let unregistered = scope.spawn(|| enter(0).and(unregister(&memory)).and(leave(0)));
        while machine.violations().is_empty() {
            std::thread::yield_now();
        }
        machine.release();
        unregistered.join().expect("no panic")
    });
    waiting.expect("when the copy was done");
    let found = machine.caught("free-while-pending");
    assert!(found.contains("cuMemHostUnregister") && found.contains("cuMemHostRegister"), "{found}");
    free(block).and(stream_destroy(stream)).expect("all live");
}
