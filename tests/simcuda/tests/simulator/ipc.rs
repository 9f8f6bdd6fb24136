//! Handles for other processes.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use crate::vmm::Pages;
use std::ffi::{c_int, c_uint};

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Handle([u8; 64]);

const ZEROS: Handle = Handle([0; 64]);

fn of_memory(pointer: u64) -> Done<Handle> {
    let mut handle = ZEROS;
    call!(cuIpcGetMemHandle(&mut handle => *mut Handle, pointer => u64)).map(|()| handle)
}

fn of_event(event: u64) -> Done<Handle> {
    let mut handle = ZEROS;
    call!(cuIpcGetEventHandle(&mut handle => *mut Handle, event => u64)).map(|()| handle)
}

fn open_memory(handle: Handle, flags: c_uint) -> Done<u64> {
    make!(cuIpcOpenMemHandle_v2 -> u64; handle => Handle, flags => c_uint)
}

fn open_event(handle: Handle) -> Done<u64> {
    make!(cuIpcOpenEventHandle -> u64; handle => Handle)
}

fn close_memory(pointer: u64) -> Done {
    call!(cuIpcCloseMemHandle(pointer => u64))
}

/// What a driver of another process would have given.
fn elsewhere(handle: Handle) -> Handle {
    let mut bytes = handle.0;
    bytes[8..12].copy_from_slice(&(std::process::id() + 1).to_ne_bytes());
    Handle(bytes)
}

#[test]
fn only_blocks_of_the_plain_call_have_handles() {
    let _machine = Machine::discrete();
    let (block, other) = (alloc(4096).expect("memory"), alloc(4096).expect("memory"));
    let handle = of_memory(block).expect("a block");
    assert_eq!(of_memory(block), Ok(handle), "as often as wanted");
    assert_ne!(of_memory(other), Ok(handle));
    let pages = Pages::new(1);
    let managed = make!(cuMemAllocManaged -> u64; 4096 => usize, 1 => c_uint).expect("memory");
    let pinned = make!(cuMemHostAlloc -> u64; 4096 => usize, 0 => c_uint).expect("memory");
    let pooled = make!(cuMemAllocAsync -> u64; 4096 => usize, 0 => u64).expect("memory");
    for (what, pointer) in [
        ("pages", pages.start),
        ("managed", managed),
        ("pinned", pinned),
        ("pooled", pooled),
        ("inside", block + 8),
        ("nothing", 0),
    ] {
        assert_eq!(of_memory(pointer), Err(INVALID_VALUE), "{what}");
    }
    assert_eq!(call!(cuIpcGetMemHandle(0 => usize, block => u64)), Err(INVALID_VALUE));
    call!(cuMemFreeHost(pinned => u64)).and(free(managed)).and(free(pooled)).and(free(block)).expect("all live");
    assert_eq!(of_memory(block), Err(INVALID_VALUE));
    free(other).expect("live");
    pages.end();
}

#[test]
fn no_process_opens_its_own_memory() {
    let _machine = Machine::discrete();
    let context = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let block = alloc(64).expect("memory");
    let handle = of_memory(block).expect("a block");
    assert_eq!((open_memory(handle, 1), open_memory(handle, 0)), (Err(INVALID_CONTEXT), Err(INVALID_VALUE)));
    assert_eq!(open_memory(elsewhere(handle), 1), Err(NOT_SUPPORTED));
    assert_eq!(open_memory(ZEROS, 1), Err(INVALID_HANDLE));
    let nowhere = call!(cuIpcOpenMemHandle_v2(0 => usize, elsewhere(handle) => Handle, 1 => c_uint));
    assert_eq!((nowhere, close_memory(block)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    current(0).expect("none");
    let refused = (of_memory(block), open_memory(elsewhere(handle), 1), close_memory(block));
    assert_eq!(refused, (Err(INVALID_CONTEXT), Err(INVALID_CONTEXT), Err(INVALID_CONTEXT)));
    current(context).and(free(block)).expect("live");
}

#[test]
fn events_have_handles_where_they_were_made_for_it() {
    let machine = Machine::discrete();
    assert_eq!(make!(cuDeviceGetAttribute -> c_int; 125 => c_int, 0 => c_int), Ok(1));
    let (plain, shared) = (event().expect("an event"), make!(cuEventCreate -> u64; 6 => c_uint).expect("an event"));
    let handle = of_event(shared).expect("for other processes");
    assert_eq!((of_event(shared), of_event(plain)), (Ok(handle), Err(INVALID_HANDLE)));
    assert_eq!(call!(cuIpcGetEventHandle(0 => usize, shared => u64)), Err(INVALID_VALUE));
    assert_eq!((open_event(handle), open_event(elsewhere(handle))), (Err(INVALID_CONTEXT), Err(NOT_SUPPORTED)));
    assert_eq!(call!(cuIpcOpenEventHandle(0 => usize, handle => Handle)), Err(INVALID_VALUE));
    let block = alloc(8).expect("memory");
    let memory = of_memory(block).expect("a block");
    assert_eq!((open_event(memory), open_memory(handle, 1)), (Err(INVALID_HANDLE), Err(INVALID_HANDLE)));
    free(block).and(event_destroy(plain)).and(event_destroy(shared)).expect("all live");
    assert_eq!(of_event(shared), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
}
