//! What orders operations and what does not.

use crate::driver::{call, *};
use crate::machine::Machine;

/// Two streams that keep no order with default streams, and a block.
struct Two {
    machine: Machine,
    a: u64,
    b: u64,
    block: u64,
}

impl Two {
    fn new() -> Two {
        let machine = Machine::discrete();
        Two { a: stream(1).expect("stream"), b: stream(1).expect("stream"), block: alloc(64).expect("memory"), machine }
    }

    fn end(self) {
        sync().and(free(self.block)).and(stream_destroy(self.a)).and(stream_destroy(self.b)).expect("all live");
    }
}

#[test]
fn an_event_orders() {
    let two = Two::new();
    let turn = event().expect("event");
    set(two.block, 1, 64, two.a).and(record(turn, two.a)).and(stream_wait(two.b, turn)).expect("streams");
    set(two.block, 2, 64, two.b).expect("streams");
    assert_eq!(two.machine.violations(), Vec::<String>::new());
    // What came after the event on its stream is not ordered.
    set(two.block, 3, 1, two.a).expect("streams");
    two.machine.caught("race");
    event_destroy(turn).expect("event");
    two.end();
}

#[test]
fn waiting_on_the_host_orders() {
    let two = Two::new();
    set(two.block, 1, 64, two.a).and(stream_sync(two.a)).and(set(two.block, 2, 64, two.b)).expect("streams");
    let done = event().expect("event");
    record(done, two.b).and(event_sync(done)).and(set(two.block, 3, 64, two.a)).expect("streams");
    sync().and(set(two.block, 4, 64, two.b)).expect("streams");
    event_destroy(done).expect("event");
    two.end();
}

#[test]
fn asking_orders_only_when_the_answer_is_yes() {
    let two = Two::new();
    two.machine.hold();
    let done = event().expect("event");
    set(two.block, 1, 64, two.a).and(record(done, two.a)).expect("streams");
    assert_eq!((stream_query(two.a), event_query(done)), (Err(NOT_READY), Err(NOT_READY)));
    two.machine.release();
    // It may be done by now. Nobody was told.
    set(two.block, 2, 64, two.b).expect("streams");
    two.machine.caught("race");
    while stream_query(two.b) == Err(NOT_READY) {}
    set(two.block, 3, 64, two.a).and(record(done, two.a)).expect("the answer was yes");
    while event_query(done) == Err(NOT_READY) {}
    set(two.block, 4, 64, two.b).and(event_destroy(done)).expect("the answer was yes");
    two.end();
}

#[test]
fn reads_need_no_order_among_themselves() {
    let two = Two::new();
    let (x, y) = (alloc(64).expect("memory"), alloc(64).expect("memory"));
    copy(x, two.block, 64, two.a).and(copy(y, two.block, 64, two.b)).expect("two reads");
    set(two.block, 1, 1, two.a).expect("streams");
    let found = two.machine.caught("race");
    assert!(found.contains("which reads it"), "{found}");
    sync().and(free(x)).and(free(y)).expect("blocks");
    two.end();
}

#[test]
fn a_copy_that_waits_orders_for_the_host() {
    let two = Two::new();
    // The copy runs on the legacy stream, which these streams do not wait for; the host does.
    upload(two.block, &[1; 64]).and(set(two.block, 2, 64, two.a)).expect("streams");
    // A copy on the device returns before it is done.
    let other = alloc(64).expect("memory");
    call!(cuMemcpyDtoD_v2(other => u64, two.block => u64, 64 => usize)).expect("blocks");
    let found = two.machine.caught("race");
    assert!(found.contains("cuMemcpyDtoD on stream"), "the legacy stream does not wait for `a`: {found}");
    sync().and(free(other)).expect("a block");
    two.end();
}

#[test]
fn a_free_forgets_and_a_wait_of_it_teaches_nothing() {
    let two = Two::new();
    let (first, second) = (alloc(64).expect("memory"), alloc(64).expect("memory"));
    set(second, 1, 64, two.a).and(set(first, 1, 64, two.a)).and(free(first)).expect("streams");
    // The free waited for `a`, but nothing promises that it does.
    set(second, 2, 64, two.b).expect("streams");
    two.machine.caught("race");
    sync().and(free(second)).expect("a block");
    two.end();
}

#[test]
fn kernels_say_what_they_touch() {
    let two = Two::new();
    let other = alloc(64).expect("memory");
    run("fill_u32", two.a, &[two.block, 1, 4]).and(run("fill_u32", two.b, &[two.block + 16, 2, 4])).expect("apart");
    assert!(two.machine.violations().is_empty());
    run("sum_u32", two.b, &[two.block, other, 5]).expect("streams");
    let found = two.machine.caught("race");
    assert!(found.contains("sum_u32 on stream") && found.contains("fill_u32 #1"), "{found}");
    sync().and(free(other)).expect("a block");
    two.end();
}
