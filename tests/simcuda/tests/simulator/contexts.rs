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
fn memory_is_its_context_s_and_copies_reach_it_from_everywhere() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let (primary, block) = (top(), alloc(64).expect("memory"));
    let own = create(0, 0).expect("a device");
    let mine = alloc(64).expect("memory");
    let context_of = |pointer: u64| make!(cuPointerGetAttribute -> u64; 1 => c_int, pointer => u64);
    assert_eq!((context_of(block), context_of(mine)), (Ok(primary), Ok(own)));
    assert_eq!((set(block, 1, 64, 0), run("fill_u32", 0, &[block, 7, 1])), (Err(INVALID_VALUE), Ok(())));
    machine.caught("wrong-context");
    assert_eq!(sync(), Err(ILLEGAL_ADDRESS), "a kernel faults");
    destroy(own).expect("a lost context");
    let own = create(0, 0).expect("a device");
    let mine = alloc(64).expect("memory");
    set(mine, 5, 64, 0).and(copy(block, mine, 64, 0)).and(sync()).expect("a copy");
    assert_eq!(download(block, 1), Ok(vec![5]));
    let peers = call!(cuCtxEnablePeerAccess(primary => u64, 0 => c_uint));
    assert_eq!(peers, Err(PEER_ACCESS_UNSUPPORTED), "a device is not its own peer");
    let pooled = make!(cuMemAllocAsync -> u64; 64 => usize, 0 => u64).expect("memory");
    let managed = make!(cuMemAllocManaged -> u64; 64 => usize, 1 => c_uint).expect("memory");
    assert_eq!((context_of(pooled), context_of(managed)), (Ok(0), Ok(own)));
    sync().and(call!(cuCtxPushCurrent_v2(primary => u64))).expect("done");
    set(pooled, 1, 64, 0).and(set(managed, 1, 64, 0)).and(sync()).expect("every context's");
    free(mine).and(free(pooled)).and(free(managed)).expect("of another context than the thread's");
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Ok(primary));
    let outliving =
        current(own).and(make!(cuMemAllocAsync -> u64; 64 => usize, 0 => u64)).and_then(|block| sync().map(|()| block));
    free(block).and(destroy(own)).and(current(primary)).expect("all live");
    outliving.and_then(free).expect("the device's");
}

#[test]
fn a_peer_is_one_context_and_not_its_device() {
    let machine = Machine::new(r#"{"profile": "two-peers"}"#);
    let (primary, block) = (top(), alloc(64).expect("memory"));
    let own = create(0, 0).expect("a device");
    let mine = alloc(64).expect("memory");
    let there = create(0, 1).expect("a device");
    call!(cuCtxEnablePeerAccess(own => u64, 0 => c_uint)).expect("peers");
    set(mine, 1, 64, 0).and(sync()).expect("of the peer");
    assert_eq!(set(block, 1, 64, 0), Err(INVALID_VALUE));
    machine.caught("wrong-context");
    call!(cuCtxEnablePeerAccess(primary => u64, 0 => c_uint)).and(set(block, 1, 64, 0)).expect("peers too");
    free(block).and(free(mine)).expect("in their contexts");
    destroy(there).and(destroy(own)).expect("all live");
}

#[test]
fn a_free_waits_and_fails_with_the_block_s_context() {
    let machine = Machine::discrete();
    let (primary, block) = (top(), alloc(64).expect("memory"));
    let busy = stream(1).expect("a stream");
    let own = create(0, 0).expect("a device");
    machine.hold();
    call!(cuCtxPushCurrent_v2(primary => u64)).and(run("spin", busy, &[0])).expect("queued");
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Ok(primary));
    free(block).expect("of another context");
    assert_eq!(machine.waits("cuMemFree_v2"), 1, "something runs in the block's context");
    machine.release();
    let other = current(primary).and(alloc(64)).expect("memory");
    current(own).expect("a context");
    let mine = alloc(64).expect("memory");
    run("fault", 0, &[]).expect("a launch");
    assert_eq!(sync(), Err(ILLEGAL_ADDRESS));
    assert_eq!(free(other), Err(ILLEGAL_ADDRESS), "the thread's context is lost");
    current(primary).expect("in its place");
    assert_eq!(free(mine), Err(ILLEGAL_ADDRESS), "its context is lost");
    free(other).and(destroy(own)).and(stream_destroy(busy)).expect("all live");
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
