//! Contexts that a program makes, beside the primary context of a device.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{c_int, c_uint, c_void};

fn create(flags: c_uint, device: c_int) -> Done<u64> {
    make!(cuCtxCreate_v2 -> u64; flags => c_uint, device => c_int)
}

fn destroy(context: u64) -> Done {
    call!(cuCtxDestroy_v2(context => u64))
}

fn top() -> u64 {
    make!(cuCtxGetCurrent -> u64;).expect("a driver")
}

#[test]
fn a_new_context_is_the_thread_s_until_it_ends() {
    let machine = Machine::discrete();
    let primary = top();
    let first = create(4, 0).expect("a device");
    let second = create(0, 0).expect("a device");
    assert!(first != primary && second != first && top() == second);
    assert!(machine.leaks().iter().any(|line| line.contains("cuCtxCreate")), "{:?}", machine.leaks());
    destroy(second).expect("a context");
    assert_eq!((top(), make!(cuCtxGetFlags -> c_uint;)), (first, Ok(4)));
    current(primary).expect("in place of the first");
    destroy(first).expect("a context that is not the thread's");
    assert_eq!((top(), make!(cuCtxPopCurrent_v2 -> u64;)), (primary, Ok(primary)));
    assert_eq!(destroy(first), Err(INVALID_CONTEXT));
    machine.caught("bad-handle");
    assert_eq!(destroy(primary), Err(INVALID_CONTEXT), "it is released, not destroyed");
    current(primary).and(alloc(8).and_then(free)).expect("it lives");
}

#[test]
fn flags_and_parameters_must_be_known() {
    let _machine = Machine::discrete();
    assert_eq!(
        (create(3, 0), create(256, 0), create(0, 1)),
        (Err(INVALID_VALUE), Err(INVALID_VALUE), Err(INVALID_DEVICE))
    );
    let limited = |limits: usize, count: c_int| make!(cuCtxCreate_v3 -> u64; limits => usize, count => c_int, 0 => c_uint, 0 => c_int);
    let one = [0_u64; 2];
    let one = one.as_ptr() as usize;
    assert_eq!((limited(0, 1), limited(one, 1)), (Err(INVALID_VALUE), Err(224)));
    limited(0, 0).and_then(destroy).expect("the whole device");
    let with = |parameters: *const [usize; 3]| make!(cuCtxCreate_v4 -> u64; parameters.cast() => *const c_void, 0 => c_uint, 0 => c_int);
    with(std::ptr::null()).and_then(destroy).expect("no parameters");
    with(&[0, 0, 0]).and_then(destroy).expect("none of them");
    assert_eq!((with(&[one, 1, 0]), with(&[0, 0, one])), (Err(224), Err(NOT_SUPPORTED)));
}

#[test]
fn what_is_in_a_context_ends_with_it() {
    let mut machine = Machine::discrete();
    machine.allow_leaks();
    let (primary, (before, _)) = (top(), info().expect("a context"));
    let own = create(0, 0).expect("a device");
    let overhead = before - info().expect("a context").0;
    assert_eq!(overhead, 256 << 20, "a context takes memory for itself");
    let (block, busy, turn) =
        (alloc(8 << 20).expect("memory"), stream(1).expect("a stream"), event().expect("an event"));
    let pooled = make!(cuMemAllocAsync -> u64; 64 => usize, busy => u64).expect("memory");
    stream_sync(busy).expect("the allocation is done");
    run("spin", busy, &[20_000_000]).and(set(block, 1, 4, busy)).expect("under way");
    destroy(own).expect("a context");
    let lost = machine.leaks();
    for what in ["of cuMemAlloc on", "stream", "event"] {
        assert!(lost.iter().any(|line| line.contains(what) && line.ends_with("when its context ended")), "{lost:?}");
    }
    assert_eq!(top(), primary);
    assert_eq!((stream_sync(busy), event_query(turn)), (Err(INVALID_HANDLE), Err(INVALID_HANDLE)));
    machine.caught("bad-handle");
    assert_eq!(set(block, 1, 4, 0), Err(INVALID_VALUE), "the memory is gone");
    machine.caught("use-after-free");
    set(pooled, 1, 4, 0).expect("memory of the device's");
    call!(cuMemFreeAsync(pooled => u64, 0 => u64)).and(sync()).expect("memory of the device's");
}

#[test]
fn a_stream_of_one_context_is_not_the_other_s() {
    let machine = Machine::discrete();
    let in_primary = stream(1).expect("a stream");
    let own = create(0, 0).expect("a device");
    let (block, turn) = (alloc(4).expect("memory"), event().expect("an event"));
    assert_eq!(set(block, 1, 4, in_primary), Err(INVALID_HANDLE));
    assert_eq!(record(turn, in_primary), Err(INVALID_HANDLE));
    machine.caught("wrong-context");
    machine.hold();
    run("spin", 0, &[0]).expect("the default stream of the new context");
    assert_eq!(stream_query(0), Err(NOT_READY));
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Ok(own));
    assert_eq!(stream_query(0), Ok(()), "the primary context has another");
    machine.release();
    call!(cuCtxPushCurrent_v2(own => u64)).and(free(block)).and(event_destroy(turn)).expect("all live");
    destroy(own).expect("a context");
    stream_destroy(in_primary).expect("a stream");
}

#[test]
fn a_context_that_is_lost_takes_no_other_with_it() {
    let machine = Machine::discrete();
    let own = create(0, 0).expect("a device");
    machine.hold();
    run("fault", 0, &[]).expect("launches report nothing at once");
    machine.release();
    assert_eq!((sync(), alloc(8)), (Err(ILLEGAL_ADDRESS), Err(ILLEGAL_ADDRESS)));
    destroy(own).expect("a lost context");
    alloc(8).and_then(free).expect("the primary context works");
}

#[test]
fn memory_is_freed_in_the_context_that_it_was_made_in() {
    let machine = Machine::discrete();
    let (primary, block) = (top(), alloc(64).expect("memory"));
    let busy = stream(1).expect("a stream");
    run("spin", busy, &[20_000_000]).and(set(block, 1, 64, busy)).and(current(0)).expect("under way");
    free(block).expect("no context is needed");
    assert_eq!((machine.waits("cuMemFree_v2"), free(block)), (1, Err(INVALID_VALUE)));
    machine.caught("double-free");
    current(primary).and(stream_destroy(busy)).expect("a stream");
    let other = alloc(64).expect("memory");
    machine.lose(0, 719);
    assert_eq!(current(0).and(free(other)), Err(719));
    current(primary).expect("a context");
}
