//! Each kind of wrong use, seeded once: the finding names what it was about.

use crate::driver::{call, make, *};
use crate::machine::Machine;

#[test]
fn use_after_free_by_a_call() {
    let machine = Machine::discrete();
    let block = alloc(1 << 20).expect("memory");
    free(block).expect("a block");
    assert_eq!(set(block, 0, 16, 0), Err(INVALID_VALUE));
    let found = machine.caught("use-after-free");
    assert!(found.contains(&format!("{block:#x}")) && found.contains("cuMemFree_v2"), "{found}");
}

#[test]
fn use_after_free_by_a_kernel_loses_the_context() {
    let machine = Machine::discrete();
    let block = alloc(4096).expect("memory");
    free(block).expect("a block");
    run("fill_u32", 0, &[block, 7, 4]).expect("launches report nothing at once");
    assert_eq!(sync(), Err(ILLEGAL_ADDRESS));
    machine.caught("use-after-free");
}

#[test]
fn use_after_free_by_an_operation_that_was_queued() {
    let machine = Machine::new("");
    let pages = crate::vmm::Pages::new(1);
    machine.hold();
    let stream = stream(1).expect("a stream");
    set(pages.start, 1, 64, stream).expect("memory");
    call!(cuMemUnmap(pages.start => u64, pages.bytes => usize)).expect("a mapping");
    machine.caught("free-while-pending");
    machine.release();
    assert_eq!(stream_sync(stream), Err(ILLEGAL_ADDRESS));
    let found = machine.caught("use-after-free");
    assert!(found.contains("cuMemsetD8Async #1") && found.contains("cuMemUnmap"), "{found}");
}

#[test]
fn out_of_bounds() {
    let machine = Machine::discrete();
    let (a, b) = (alloc(1000).expect("memory"), alloc(1000).expect("memory"));
    assert_eq!(set(a, 0, 1001, 0), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    assert_eq!(copy(a + 1, b, 1000, 0), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    assert_eq!(set(a + 1000, 0, 1, 0), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    assert_eq!(set(16, 0, 1, 0), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    assert_eq!(upload(a, &[0; 1001]), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    set(a, 0, 1000, 0).expect("its own bytes");
    sync().expect("a context");
    free(a).and(free(b)).expect("blocks");
}

#[test]
fn double_free() {
    let machine = Machine::discrete();
    let block = alloc(100).expect("memory");
    free(block).expect("a block");
    assert_eq!(free(block), Err(INVALID_VALUE));
    machine.caught("double-free");
    let pages = crate::vmm::Pages::new(1);
    let handle = pages.handles[0];
    pages.end();
    assert_eq!(call!(cuMemRelease(handle => u64)), Err(INVALID_VALUE));
    machine.caught("double-free");
}

#[test]
fn addresses_that_are_no_blocks() {
    let machine = Machine::discrete();
    let block = alloc(100).expect("memory");
    let local = 5_u64;
    for wrong in [block + 1, 16, &raw const local as u64] {
        assert_eq!(free(wrong), Err(INVALID_VALUE));
        machine.caught("bad-handle");
    }
    assert_eq!(call!(cuMemFreeHost(block => u64)), Err(INVALID_VALUE));
    machine.caught("bad-handle");
    free(block).expect("a block");
}

#[test]
fn handles_that_are_destroyed_or_of_another_kind() {
    let machine = Machine::discrete();
    let (gone, live, event) = (stream(0).expect("stream"), stream(0).expect("stream"), event().expect("event"));
    stream_destroy(gone).expect("a stream");
    assert_eq!(stream_query(gone), Err(INVALID_HANDLE));
    assert!(machine.caught("bad-handle").contains("which was destroyed"));
    assert_eq!(stream_sync(event), Err(INVALID_HANDLE));
    assert!(machine.caught("bad-handle").contains("which is no stream"));
    assert_eq!(record(live, live), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    event_destroy(event).expect("an event");
    assert_eq!(event_query(event), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    assert_eq!(stream_wait(live, event), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    assert_eq!(launch(live, 0, &[]), Err(INVALID_HANDLE));
    machine.caught("bad-handle");
    stream_destroy(live).expect("a stream");
}

#[test]
fn a_free_on_one_stream_while_another_may_use_the_block() {
    let machine = Machine::discrete();
    let (user, freer) = (stream(1).expect("stream"), stream(1).expect("stream"));
    let block = make!(cuMemAllocAsync -> u64; 4096 => usize, user => u64).expect("memory");
    set(block, 1, 4096, user).expect("its block");
    let done = event().expect("event");
    record(done, user).expect("a stream");
    assert_eq!(call!(cuMemFreeAsync(block => u64, freer => u64)), Ok(()));
    let found = machine.caught("free-while-pending");
    assert!(found.contains("cuMemsetD8Async #2 of stream"), "{found}");
    sync().and(stream_destroy(user)).and(stream_destroy(freer)).and(event_destroy(done)).expect("all live");
}

#[test]
fn a_use_that_may_come_before_its_allocation() {
    let machine = Machine::discrete();
    let (owner, other) = (stream(1).expect("stream"), stream(1).expect("stream"));
    let block = make!(cuMemAllocAsync -> u64; 4096 => usize, owner => u64).expect("memory");
    assert_eq!(set(block, 1, 64, other), Err(INVALID_VALUE));
    machine.caught("use-before-allocation");
    let ready = event().expect("event");
    record(ready, owner).and(stream_wait(other, ready)).and(set(block, 1, 64, other)).expect("now it is ordered");
    call!(cuMemFreeAsync(block => u64, other => u64)).expect("a block");
    sync().and(stream_destroy(owner)).and(stream_destroy(other)).and(event_destroy(ready)).expect("all live");
}

#[test]
fn a_race_between_streams() {
    let machine = Machine::discrete();
    let block = alloc(1 << 12).expect("memory");
    let (a, b) = (stream(1).expect("stream"), stream(1).expect("stream"));
    set(block, 1, 1 << 12, a).and(set(block + 2048, 2, 1, b)).expect("the driver lets them");
    let found = machine.caught("race");
    assert!(
        found.contains("cuMemsetD8Async #1 of stream") && found.contains(&format!("{:#x}+1", block + 2048)),
        "{found}"
    );
    sync().and(free(block)).and(stream_destroy(a)).and(stream_destroy(b)).expect("all live");
}

#[test]
fn objects_of_another_context() {
    let machine = Machine::new(r#"{"profile": "two-strangers"}"#);
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let (block, mine) = (alloc(64).expect("memory"), stream(1).expect("stream"));
    let second = enter(1).expect("another");
    assert_eq!(set(block, 0, 1, mine), Err(INVALID_HANDLE), "a stream of the first context");
    machine.caught("wrong-context");
    assert_eq!(set(block, 0, 1, 0), Err(INVALID_VALUE), "memory of a device that this one cannot reach");
    machine.caught("wrong-context");
    let event = event().expect("event");
    assert_eq!(record(event, mine), Err(INVALID_HANDLE));
    machine.caught("wrong-context");
    event_destroy(event).expect("an event");
    assert_ne!(first, second);
    leave(1).expect("a context");
    assert_eq!(current(second), Err(CONTEXT_IS_DESTROYED));
    machine.caught("bad-handle");
    current(first).and(free(block)).and(stream_destroy(mine)).expect("all live");
}

#[test]
fn everything_that_is_left_is_a_leak() {
    let mut machine = Machine::discrete();
    let pages = crate::vmm::Pages::new(1);
    let made: [(&str, u64); 6] = [
        ("cuMemAlloc ", alloc(8).expect("memory")),
        ("cuMemHostAlloc", make!(cuMemHostAlloc -> u64; 8 => usize, 0 => u32).expect("memory")),
        ("cuMemAllocManaged", make!(cuMemAllocManaged -> u64; 8 => usize, 1 => u32).expect("memory")),
        ("cuMemAllocAsync", make!(cuMemAllocAsync -> u64; 8 => usize, 0 => u64).expect("memory")),
        ("stream", stream(0).expect("a stream")),
        ("event", event().expect("an event")),
    ];
    let left = machine.leaks().join("\n");
    for (what, handle) in made {
        assert!(
            left.lines().any(|line| line.contains(what) && line.contains(&format!("{handle:#x}"))),
            "{what}:\n{left}"
        );
    }
    for what in ["mapping", "of cuMemCreate", "of cuMemAddressReserve", "context of device 0, retained 1 times"] {
        assert!(left.contains(what), "{what}:\n{left}");
    }
    // What ends with its context was left too.
    leave(0).expect("a context");
    let left = machine.leaks();
    for (what, handle) in made {
        let ended = |line: &&String| line.contains(&format!("{handle:#x}")) && line.contains("when its context ended");
        assert!(left.iter().any(|line| ended(&line)), "{what}: {left:#?}");
    }
    pages.end();
    enter(0).expect("a context");
    machine.allow_leaks();
}
