//! Two devices.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_int;

fn reachable(from: c_int, to: c_int) -> Done<c_int> {
    make!(cuDeviceCanAccessPeer -> c_int; from => c_int, to => c_int)
}

fn enable(other: u64) -> Done {
    call!(cuCtxEnablePeerAccess(other => u64, 0 => u32))
}

#[test]
fn peers_reach_each_other_once_they_are_told() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let block = alloc(64).expect("memory");
    let second = enter(1).expect("a context");
    assert_eq!((reachable(1, 0), reachable(0, 0)), (Ok(1), Ok(0)));
    // Copies need no access, launches do.
    let here = alloc(64).expect("memory");
    let peer =
        |bytes: usize| call!(cuMemcpyPeer(here => u64, second => u64, block => u64, first => u64, bytes => usize));
    peer(64).and(sync()).expect("a copy");
    assert_eq!(set(block, 1, 64, 0), Err(INVALID_VALUE));
    machine.caught("wrong-context");
    enable(first).expect("peers");
    assert_eq!((enable(first), enable(second)), (Err(704), Err(INVALID_CONTEXT)));
    set(block, 1, 64, 0).and(sync()).expect("now it reaches");
    call!(cuCtxDisablePeerAccess(first => u64)).expect("enabled");
    assert_eq!(call!(cuCtxDisablePeerAccess(first => u64)), Err(705));
    let wrong = call!(cuMemcpyPeer(here => u64, first => u64, block => u64, first => u64, 1 => usize));
    assert_eq!(wrong, Err(INVALID_VALUE));
    machine.caught("wrong-context");
    free(here).and(current(first)).and(free(block)).and(leave(1)).expect("all live");
}

#[test]
fn strangers_never_do() {
    let _machine = Machine::new(r#"{"profile": "two-strangers"}"#);
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let second = enter(1).expect("a context");
    assert_eq!(reachable(0, 1), Ok(0));
    assert_eq!(enable(first), Err(PEER_ACCESS_UNSUPPORTED));
    let attribute = |number: c_int| make!(cuDeviceGetP2PAttribute -> c_int; number => c_int, 0 => c_int, 1 => c_int);
    assert_eq!(attribute(2), Ok(0));
    assert_ne!(first, second);
    current(first).and(leave(1)).expect("all live");
}

#[test]
fn mappings_are_open_to_the_devices_that_were_named() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let pages = crate::vmm::Pages::new(1);
    enter(1).expect("a context");
    assert_eq!(download(pages.start, 1), Err(ILLEGAL_ADDRESS), "device 1 was not named");
    machine.caught("no-access");
    leave(1).and(enter(1)).expect("a context that is not lost");
    crate::vmm::access(pages.start, pages.bytes, 1, 3).expect("peers");
    download(pages.start, 1).expect("now it was");
    leave(1).expect("a context");
    let first = enter(0).expect("a context");
    leave(0).and(current(first)).expect("retained twice");
    pages.end();
}

#[test]
fn work_on_one_device_waits_for_events_of_the_other() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let (block, there) = (alloc(64).expect("memory"), stream(1).expect("stream"));
    let second = enter(1).expect("a context");
    let (mine, here) = (alloc(64).expect("memory"), stream(1).expect("stream"));
    let ready = current(first).and(event()).expect("event");
    set(block, 7, 64, there).and(record(ready, there)).expect("streams");
    current(second).and(stream_wait(here, ready)).and(copy(mine, block, 64, here)).and(sync()).expect("ordered");
    assert_eq!(download(mine, 1), Ok(vec![7]));
    free(mine).and(stream_destroy(here)).expect("all live");
    current(first).and(sync()).and(free(block)).and(stream_destroy(there)).and(event_destroy(ready)).expect("all live");
    leave(1).expect("a context");
    assert!(machine.violations().is_empty());
}

/// A plain copy runs as an operation of one device; one that names both reaches what each of them reaches.
#[test]
fn a_copy_that_names_both_devices_reaches_pages_of_strangers() {
    let machine = Machine::new(r#"{"profile": "two-strangers"}"#);
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let pages = crate::vmm::Pages::new(1);
    let second = enter(1).expect("a context");
    let block = alloc(64).expect("memory");
    let (to, from, none) = (block, pages.start, 0u64);
    call!(cuMemcpyPeerAsync(to => u64, second => u64, from => u64, first => u64, 64usize => usize, none => u64))
        .and(sync())
        .expect("each device reaches its own");
    assert!(machine.violations().is_empty());
    let wrong =
        call!(cuMemcpyPeerAsync(to => u64, second => u64, from => u64, second => u64, 64usize => usize, none => u64));
    assert_eq!(wrong, Err(INVALID_VALUE));
    machine.caught("wrong-context");
    assert_eq!(copy(to, from, 64, 0).and(sync()), Err(ILLEGAL_ADDRESS));
    machine.caught("no-access");
    leave(1).expect("retained once");
    pages.end();
}
