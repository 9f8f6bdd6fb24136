//! Contexts that are lost.

use crate::driver::*;
use crate::machine::Machine;

#[test]
fn a_fault_is_every_call_s_error_from_then_on() {
    let machine = Machine::discrete();
    let (block, stream, event) = (alloc(64).expect("memory"), stream(1).expect("stream"), event().expect("event"));
    let (module, fault) = kernel("fault").expect("a kernel");
    machine.hold();
    launch(fault, stream, &[]).and(set(block, 1, 64, stream)).and(record(event, stream)).expect("queued");
    machine.release();
    assert_eq!(stream_sync(stream), Err(ILLEGAL_ADDRESS));
    assert_eq!((alloc(8), free(block)), (Err(ILLEGAL_ADDRESS), Err(ILLEGAL_ADDRESS)));
    assert_eq!((stream_query(stream), event_query(event)), (Err(ILLEGAL_ADDRESS), Err(ILLEGAL_ADDRESS)));
    assert_eq!((stream_destroy(stream), event_destroy(event)), (Err(ILLEGAL_ADDRESS), Err(ILLEGAL_ADDRESS)));
    assert_eq!(unload(module), Err(ILLEGAL_ADDRESS));
    let left = machine.leaks();
    assert_eq!(left.len(), 1, "the context; nobody can give back the rest: {left:?}");
}

#[test]
fn a_device_may_be_lost_at_any_time() {
    let machine = Machine::discrete();
    let pages = crate::vmm::Pages::new(1);
    let block = alloc(64).expect("memory");
    machine.lose(0, 719);
    assert_eq!(free(block), Err(719));
    assert_eq!(crate::vmm::unmap(pages.start, pages.bytes), Err(719));
    assert_eq!(crate::vmm::create(0, crate::vmm::PAGE), Err(719));
    machine.lose(0, 700);
    assert_eq!(sync(), Err(719), "the first error stays");
    // A new context works; the old one's memory is gone.
    leave(0).and(enter(0)).expect("a context");
    free(alloc(64).expect("memory")).expect("a block");
    // What belongs to no context is still there.
    pages.end();
}

#[test]
fn operations_that_were_queued_do_not_run() {
    let machine = Machine::discrete();
    let pinned = crate::driver::make!(cuMemHostAlloc -> u64; 4 => usize, 0 => u32).expect("memory");
    let stream = stream(1).expect("stream");
    set(pinned, 1, 4, stream).and(stream_sync(stream)).expect("a stream");
    machine.hold();
    set(pinned, 2, 4, stream).expect("a stream");
    machine.lose(0, ILLEGAL_ADDRESS);
    machine.release();
    assert_eq!(stream_sync(stream), Err(ILLEGAL_ADDRESS));
}
