//! Managed memory of one stream, or of the host.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_uint;

const GLOBAL: c_uint = 1;
const HOST: c_uint = 2;
const SINGLE: c_uint = 4;

fn attach(stream: u64, pointer: u64, bytes: usize, flags: c_uint) -> Done {
    call!(cuStreamAttachMemAsync(stream => u64, pointer => u64, bytes => usize, flags => c_uint))
}

fn managed(flags: c_uint) -> u64 {
    make!(cuMemAllocManaged -> u64; 64 => usize, flags => c_uint).expect("memory")
}

/// A machine whose device does not use managed memory while the host does.
fn orin() -> Machine {
    Machine::new(r#"{"profile": "orin"}"#)
}

/// What a kernel on a stream makes of a block that it may not use. The context is lost by it.
fn refused(machine: &Machine, block: u64, stream: u64) -> String {
    machine.hold();
    run("fill_u32", stream, &[block, 1, 1]).expect("launches report nothing at once");
    machine.release();
    assert_eq!(stream_sync(stream), Err(ILLEGAL_ADDRESS));
    machine.caught("no-access")
}

#[test]
fn memory_of_one_stream_is_not_another_s() {
    let machine = orin();
    let (block, mine, other) = (managed(GLOBAL), stream(1).expect("a stream"), stream(1).expect("a stream"));
    set(block, 1, 64, other).and(sync()).and(attach(mine, block, 0, SINGLE)).expect("a block");
    set(block, 2, 64, mine).and(stream_sync(mine)).expect("its stream");
    attach(mine, block, 64, GLOBAL)
        .and(stream_sync(mine))
        .and(set(block, 3, 64, other))
        .and(sync())
        .expect("all streams");
    attach(mine, block, 64, SINGLE).and(stream_sync(mine)).expect("one again");
    let found = refused(&machine, block, other);
    assert!(found.contains("attached to stream") && found.contains("cuMemAllocManaged"), "{found}");
}

#[test]
fn memory_of_the_host_is_no_stream_s() {
    let machine = orin();
    let (block, mine) = (managed(HOST), stream(1).expect("a stream"));
    attach(mine, block, 0, SINGLE).and(set(block, 1, 64, mine)).and(stream_sync(mine)).expect("for a while");
    assert_eq!(download(block, 2), Ok(vec![1; 2]), "copies may");
    stream_destroy(mine).expect("a stream");
    assert!(refused(&machine, block, 0).contains("attached to the host"), "as it was made");
}

#[test]
fn where_both_sides_use_it_at_once_nothing_is_refused() {
    let _machine = Machine::discrete();
    let (block, mine) = (managed(HOST), stream(1).expect("a stream"));
    attach(mine, block, 0, SINGLE).and(stream_sync(mine)).and(set(block, 1, 64, 0)).and(sync()).expect("a block");
    free(block).and(stream_destroy(mine)).expect("all live");
}

#[test]
fn only_whole_managed_blocks_are_attached() {
    let machine = orin();
    let (block, plain, mine) = (managed(GLOBAL), alloc(64).expect("memory"), stream(1).expect("a stream"));
    let host = [0_u8; 8];
    let host = host.as_ptr() as u64;
    let refused = [
        attach(mine, block, 32, GLOBAL),
        attach(mine, block + 8, 0, GLOBAL),
        attach(mine, plain, 0, GLOBAL),
        attach(mine, host, 8, GLOBAL),
        attach(mine, block, 0, 3),
        attach(0, block, 0, SINGLE),
        attach(1, block, 0, SINGLE),
    ];
    assert_eq!(refused, [Err(INVALID_VALUE); 7]);
    call!(cuStreamBeginCapture_v2(mine => u64, 2 => c_uint)).expect("a stream");
    assert_eq!(attach(mine, block, 0, GLOBAL), Err(900));
    let mut graph = 0;
    assert_eq!(call!(cuStreamEndCapture(mine => u64, &mut graph => *mut u64)), Err(901), "it is spoiled");
    free(block).and(free(plain)).and(stream_destroy(mine)).expect("all live");
    drop(machine);
    let _machine = Machine::new(r#"{"profile": "thor"}"#);
    attach(0, host, 8, HOST).and(sync()).expect("the device reads it");
    assert_eq!(attach(0, host, 0, HOST), Err(INVALID_VALUE));
}
