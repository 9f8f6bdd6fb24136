//! Capture and replay.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::c_int;

const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;

fn begin(stream: u64, mode: c_int) -> Done {
    call!(cuStreamBeginCapture_v2(stream => u64, mode => c_int))
}

fn end(stream: u64) -> Done<u64> {
    let mut graph = 1_u64;
    call!(cuStreamEndCapture(stream => u64, &mut graph => *mut u64)).map(|()| graph)
}

/// 0 no, 1 yes, 2 spoiled.
fn state(stream: u64) -> Done<c_int> {
    let mut state = -1;
    call!(cuStreamIsCapturing(stream => u64, &mut state => *mut c_int)).map(|()| state)
}

fn instantiate(graph: u64) -> Done<u64> {
    make!(cuGraphInstantiateWithFlags -> u64; graph => u64, 0 => u64)
}

fn replay(exec: u64, stream: u64) -> Done {
    call!(cuGraphLaunch(exec => u64, stream => u64))
}

fn drop_graph(graph: u64, exec: u64) {
    call!(cuGraphDestroy(graph => u64)).and(call!(cuGraphExecDestroy(exec => u64))).expect("all live");
}

#[test]
fn a_graph_runs_again_what_was_captured() {
    let machine = Machine::discrete();
    let (from, to, stream) = (alloc(4).expect("memory"), alloc(4).expect("memory"), stream(1).expect("stream"));
    upload(from, &[1; 4]).and(upload(to, &[0; 4])).and(begin(stream, GLOBAL)).expect("a stream");
    copy(to, from, 4, stream).expect("captured");
    assert_eq!(state(stream), Ok(1));
    let graph = end(stream).expect("a graph");
    assert_eq!((state(stream), download(to, 4)), (Ok(0), Ok(vec![0; 4])), "nothing ran yet");
    let exec = instantiate(graph).expect("a graph");
    for value in [5, 6] {
        upload(from, &[value; 4]).and(replay(exec, stream)).and(stream_sync(stream)).expect("a graph");
        assert_eq!(download(to, 4), Ok(vec![value; 4]));
    }
    // Memory that a graph uses must live as long as it is launched.
    free(from).expect("a block");
    assert_eq!(replay(exec, stream), Err(INVALID_VALUE));
    machine.caught("use-after-free");
    drop_graph(graph, exec);
    assert_eq!(replay(exec, stream), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    free(to).and(stream_destroy(stream)).expect("all live");
}

#[test]
fn other_streams_join_and_must_come_back() {
    let machine = Machine::discrete();
    let (block, a, b) = (alloc(4).expect("memory"), stream(1).expect("stream"), stream(1).expect("stream"));
    let (fork, join) = (event().expect("event"), event().expect("event"));
    begin(a, GLOBAL).and(set(block, 1, 4, a)).and(record(fork, a)).and(stream_wait(b, fork)).expect("captured");
    assert_eq!(state(b), Ok(1));
    set(block, 2, 4, b).and(record(join, b)).and(stream_wait(a, join)).expect("captured");
    let graph = end(a).expect("all came back");
    let exec = instantiate(graph).expect("a graph");
    replay(exec, b).and(stream_sync(b)).expect("a graph");
    assert_eq!(download(block, 4), Ok(vec![2; 4]));
    begin(a, GLOBAL).and(record(fork, a)).and(stream_wait(b, fork)).and(set(block, 3, 4, b)).expect("captured");
    assert_eq!(end(b), Err(903), "not where it began");
    assert_eq!(end(a), Err(904), "one did not come back");
    // Branches of a graph race as streams do.
    begin(a, GLOBAL).and(record(fork, a)).and(stream_wait(b, fork)).expect("captured");
    set(block, 4, 4, a).and(set(block, 5, 4, b)).expect("captured");
    machine.caught("race");
    record(join, b).and(stream_wait(a, join)).expect("captured");
    let racy = end(a).expect("a graph");
    drop_graph(graph, exec);
    call!(cuGraphDestroy(racy => u64)).expect("a graph");
    sync().and(free(block)).and(event_destroy(fork)).and(event_destroy(join)).expect("all live");
    stream_destroy(a).and(stream_destroy(b)).expect("streams");
}

#[test]
fn what_captures_forbid_spoils_them() {
    let _machine = Machine::discrete();
    let (stream, blocking) = (stream(1).expect("stream"), stream(0).expect("stream"));
    let inside = event().expect("event");
    let spoils: [(&str, u64, i32, &dyn Fn() -> Done); 6] = [
        ("an allocation", stream, 900, &|| alloc(8).map(drop)),
        ("asking the stream", stream, 900, &|| stream_query(stream)),
        ("waiting for the stream", stream, 900, &|| stream_sync(stream)),
        ("asking an event", stream, 907, &|| record(inside, stream).and(event_query(inside))),
        ("waiting for everything", stream, 900, &sync),
        ("the legacy stream", blocking, 906, &|| run("spin", 0, &[1])),
    ];
    for (what, on, code, spoil) in spoils {
        begin(on, GLOBAL).expect(what);
        assert_eq!(spoil(), Err(code), "{what}");
        assert_eq!(state(on), Ok(2), "{what}");
        assert_eq!(run("spin", on, &[1]), Err(901), "{what}");
        assert_eq!((end(on), state(on)), (Err(901), Ok(0)), "{what}");
    }
    assert_eq!(begin(0, GLOBAL), Err(900), "the legacy stream does not capture");
    assert_eq!(end(stream), Err(401), "it does not capture");
    event_destroy(inside).and(stream_destroy(stream)).and(stream_destroy(blocking)).expect("all live");
}

#[test]
fn relaxed_threads_and_captures_may_allocate() {
    let _machine = Machine::discrete();
    let stream = stream(1).expect("stream");
    begin(stream, RELAXED).expect("a stream");
    free(alloc(8).expect("a relaxed capture")).expect("a block");
    let graph = end(stream).expect("a graph");
    begin(stream, GLOBAL).expect("a stream");
    let mut mode = RELAXED;
    call!(cuThreadExchangeStreamCaptureMode(&mut mode => *mut c_int)).expect("a mode");
    assert_eq!(mode, GLOBAL, "as it was");
    free(alloc(8).expect("a relaxed thread")).expect("a block");
    call!(cuThreadExchangeStreamCaptureMode(&mut mode => *mut c_int)).expect("a mode");
    assert_eq!(mode, RELAXED);
    let second = end(stream).expect("a graph");
    [graph, second].iter().for_each(|graph| call!(cuGraphDestroy(*graph => u64)).expect("a graph"));
    stream_destroy(stream).expect("all live");
}

#[test]
fn captures_and_streams_outside_keep_apart() {
    let _machine = Machine::discrete();
    let (a, b, outside) = (stream(1).expect("stream"), stream(1).expect("stream"), event().expect("event"));
    record(outside, b).and(begin(a, GLOBAL)).expect("streams");
    assert_eq!(stream_wait(a, outside), Err(905), "an event from outside");
    assert_eq!(end(a), Err(901));
    begin(a, RELAXED).and(begin(b, RELAXED)).and(record(outside, a)).expect("streams");
    assert_eq!(stream_wait(b, outside), Err(902), "two captures");
    assert_eq!((end(a), end(b)), (Err(901), Err(901)));
    begin(a, GLOBAL).expect("a stream");
    let elsewhere = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let other = std::thread::spawn(move || current(elsewhere).and(end(a)).err()).join();
    assert_eq!(other.expect("no panic"), Some(908), "another thread");
    let graph = end(a).expect("a graph");
    call!(cuGraphDestroy(graph => u64)).expect("a graph");
    sync().and(event_destroy(outside)).and(stream_destroy(a)).and(stream_destroy(b)).expect("all live");
}
