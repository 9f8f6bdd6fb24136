//! Order of operations, events, and streams that are held.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};

#[test]
fn held_streams_start_nothing_until_they_are_stepped() {
    let machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    let turn = event().expect("event");
    machine.hold();
    set(block, 1, 4, a).and(record(turn, a)).and(stream_wait(b, turn)).and(set(block, 2, 4, b)).expect("streams");
    assert_eq!((stream_query(a), stream_query(b), event_query(turn)), (Err(NOT_READY), Err(NOT_READY), Err(NOT_READY)));
    assert_eq!(machine.step(1), 1);
    assert_eq!((stream_query(a), event_query(turn)), (Err(NOT_READY), Err(NOT_READY)), "the event is next");
    assert_eq!(machine.step(1), 1);
    assert_eq!((stream_query(a), event_query(turn)), (Ok(()), Ok(())));
    assert_eq!(stream_query(b), Err(NOT_READY));
    assert_eq!(machine.step(100), 2, "the wait and the memset; then there is nothing");
    assert_eq!(stream_query(b), Ok(()));
    machine.release();
    assert_eq!(download(block, 4), Ok(vec![2; 4]));
    free(block).and(event_destroy(turn)).and(stream_destroy(a)).and(stream_destroy(b)).expect("all live");
}

#[test]
fn operations_wait_for_those_that_they_come_after() {
    let _machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    // The one that waits is the older stream and has nothing else to do: it would win.
    let (late, early, turn) = (stream(1).expect("stream"), stream(1).expect("stream"), event().expect("event"));
    run("spin", early, &[20_000_000]).and(set(block, 1, 4, early)).and(record(turn, early)).expect("streams");
    stream_wait(late, turn).and(set(block, 2, 4, late)).and(sync()).expect("streams");
    assert_eq!(download(block, 4), Ok(vec![2; 4]));
    // So it is with the legacy stream, both ways.
    let blocking = stream(0).expect("stream");
    run("spin", blocking, &[20_000_000]).and(set(block, 3, 4, blocking)).and(set(block, 4, 4, 0)).expect("streams");
    assert_eq!(download(block, 4), Ok(vec![4; 4]));
    run("spin", 0, &[20_000_000])
        .and(set(block, 5, 4, 0))
        .and(set(block, 6, 4, blocking))
        .and(sync())
        .expect("streams");
    assert_eq!(download(block, 4), Ok(vec![6; 4]));
    [late, early, blocking]
        .into_iter()
        .try_for_each(stream_destroy)
        .and(event_destroy(turn))
        .and(free(block))
        .expect("live");
}

#[test]
fn whoever_waits_for_held_streams_is_told() {
    let machine = Machine::new(r#"{"patience": 50}"#);
    let block = alloc(4).expect("memory");
    machine.hold();
    set(block, 1, 4, 0).expect("a stream");
    assert_eq!(sync(), Err(702));
    assert!(machine.caught("held-too-long").contains("cuCtxSynchronize"));
    machine.release();
    sync().and(free(block)).expect("a block");
}

#[test]
fn the_legacy_stream_comes_between_blocking_streams() {
    let machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    let (a, b, free_one) = (stream(0).expect("stream"), stream(0).expect("stream"), stream(1).expect("stream"));
    machine.hold();
    // No race: the legacy stream orders all three.
    set(block, 1, 4, a).and(set(block, 2, 4, 0)).and(set(block, 3, 4, b)).expect("streams");
    assert_eq!((stream_query(0), stream_query(free_one)), (Err(NOT_READY), Ok(())));
    machine.release();
    assert_eq!(download(block, 4), Ok(vec![3; 4]));
    set(block, 4, 4, 0).and(set(block, 5, 4, free_one)).expect("streams");
    machine.caught("race");
    // Of the thread's default stream the same holds as of blocking streams.
    sync().and(set(block, 6, 4, 2)).and(set(block, 7, 4, 1)).expect("default streams");
    assert_eq!(download(block, 4), Ok(vec![7; 4]));
    [a, b, free_one].into_iter().try_for_each(stream_destroy).and(free(block)).expect("all live");
}

#[test]
fn a_stream_that_is_destroyed_finishes_its_work() {
    let machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    let gone = stream(1).expect("stream");
    let done = event().expect("event");
    machine.hold();
    set(block, 9, 4, gone).and(record(done, gone)).and(stream_destroy(gone)).expect("a stream");
    assert_eq!(event_query(done), Err(NOT_READY));
    machine.release();
    event_sync(done).expect("an event");
    assert_eq!(download(block, 4), Ok(vec![9; 4]));
    free(block).and(event_destroy(done)).expect("all live");
}

#[test]
fn an_event_stands_for_its_newest_recording() {
    let machine = Machine::discrete();
    let stream = stream(1).expect("stream");
    let event = event().expect("event");
    assert_eq!(event_query(event), Ok(()), "never recorded");
    record(event, stream).and(event_sync(event)).expect("an event");
    machine.hold();
    record(event, stream).expect("an event");
    assert_eq!(event_query(event), Err(NOT_READY), "recorded again");
    machine.release();
    event_sync(event).and(event_destroy(event)).and(stream_destroy(stream)).expect("all live");
}

#[test]
fn events_measure_time_unless_they_do_not() {
    let _machine = Machine::discrete();
    let timed = || make!(cuEventCreate -> u64; 0 => u32).expect("event");
    let (start, end, bare) = (timed(), timed(), event().expect("event"));
    let elapsed = |start: u64, end: u64| make!(cuEventElapsedTime -> f32; start => u64, end => u64);
    assert_eq!(elapsed(start, end), Err(INVALID_HANDLE), "never recorded");
    record(start, 0)
        .and(run("spin", 0, &[5_000_000]))
        .and(record(end, 0))
        .and(record(bare, 0))
        .and(sync())
        .expect("streams");
    assert!(elapsed(start, end).is_ok_and(|time| time >= 5.0));
    assert_eq!(elapsed(start, bare), Err(INVALID_HANDLE));
    [start, end, bare].into_iter().try_for_each(event_destroy).expect("events");
}

static SEEN: AtomicI32 = AtomicI32::new(-1);

extern "C" fn allocates(_: *mut c_void) {
    SEEN.store(alloc(8).err().unwrap_or(0), Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_order_and_may_not_call_the_driver() {
    let machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    let function: extern "C" fn(*mut c_void) = allocates;
    set(block, 1, 4, a).expect("a stream");
    call!(cuLaunchHostFunc(a => u64, function => extern "C" fn(*mut c_void), 0 => usize)).expect("a stream");
    while SEEN.load(Ordering::SeqCst) == -1 {}
    assert_eq!(SEEN.load(Ordering::SeqCst), NOT_PERMITTED);
    // The function told the host that all before it is done; when, only the driver knows: it is done with it by now.
    while stream_query(a) == Err(NOT_READY) {}
    set(block, 2, 4, b).expect("no race");
    assert_eq!(call!(cuLaunchHostFunc(a => u64, 0 => usize, 0 => usize)), Err(INVALID_VALUE));
    sync().and(free(block)).and(stream_destroy(a)).and(stream_destroy(b)).expect("all live");
    assert_eq!(machine.violations(), Vec::<String>::new());
}

#[test]
fn stream_ids_never_come_again_though_handles_may() {
    let _machine = Machine::new(r#"{"reuse_handles": true}"#);
    let first = stream(0).expect("stream");
    let named = stream_id(first);
    stream_destroy(first).expect("a stream");
    let second = stream(0).expect("stream");
    assert_eq!(first, second, "the handle comes again");
    assert_ne!(named, stream_id(second));
    stream_destroy(second).expect("a stream");
}

fn stream_id(stream: u64) -> u64 {
    let mut id = 0;
    call!(cuStreamGetId(stream => u64, &mut id => *mut u64)).expect("a stream");
    id
}

#[test]
fn pageable_memory_is_read_before_the_call_returns() {
    let machine = Machine::discrete();
    let block = alloc(4).expect("memory");
    let stream = stream(1).expect("stream");
    machine.hold();
    let mut bytes = vec![5_u8; 4];
    call!(cuMemcpyHtoDAsync_v2(block => u64, bytes.as_ptr() => *const u8, 4 => usize, stream => u64))
        .expect("a stream");
    bytes.fill(6);
    machine.release();
    call!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr() => *mut u8, block => u64, 4 => usize, stream => u64))
        .expect("a stream");
    assert_eq!(bytes, [5; 4], "and written before that one did");
    free(block).and(stream_destroy(stream)).expect("all live");
}
