//! Memory that other programs take between two calls.

use crate::driver::*;
use crate::machine::Machine;
use crate::vmm::{PAGE, create, release};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A machine whose device has four pages, all of them free.
fn four_pages(devices: usize) -> Machine {
    Machine::new(&format!(r#"{{"total": 8388608, "overhead": 0, "devices": {devices}}}"#))
}

fn free_bytes() -> usize {
    info().expect("a context").0
}

#[test]
fn what_was_promised_may_be_gone_when_it_is_asked_for() {
    let machine = four_pages(1);
    machine.occupy(0, 3 * PAGE as u64, "cuMemCreate", 2);
    let first = create(0, PAGE).expect("the first call is before it");
    assert_eq!(free_bytes(), 3 * PAGE);
    assert_eq!(create(0, PAGE), Err(OUT_OF_MEMORY));
    assert_eq!((free_bytes(), create(0, PAGE)), (0, Err(OUT_OF_MEMORY)), "it stays");
    machine.vacate(0);
    assert_eq!(free_bytes(), 3 * PAGE);
    let second = create(0, 3 * PAGE).expect("it was given back");
    release(first).and(release(second)).expect("handles");
}

#[test]
fn others_take_no_more_than_is_free_and_only_of_the_device() {
    let machine = four_pages(2);
    let block = alloc(PAGE).expect("memory");
    machine.occupy(0, u64::MAX, "*", 1);
    machine.occupy(0, u64::MAX, "cuMemAlloc_v2", 2);
    assert_eq!(free_bytes(), 0);
    free(block).expect("ours");
    assert_eq!(free_bytes(), PAGE, "what is given back is free until others take it");
    free(alloc(PAGE).expect("memory")).expect("a block");
    assert_eq!(alloc(PAGE), Err(OUT_OF_MEMORY));
    assert_eq!(create(1, 4 * PAGE).and_then(release), Ok(()), "of the other device");
    machine.vacate(1);
    assert_eq!(free_bytes(), 0);
    machine.vacate(0);
    assert_eq!(free_bytes(), 4 * PAGE);
}

#[test]
fn what_was_not_taken_yet_is_not_taken_any_more() {
    let machine = four_pages(2);
    machine.occupy(0, PAGE as u64, "cuMemAlloc_v2", 1);
    machine.occupy(1, PAGE as u64, "cuMemAlloc_v2", 1);
    machine.vacate(0);
    free(alloc(4 * PAGE).expect("all of it")).expect("a block");
    assert_eq!(create(1, 4 * PAGE), Err(OUT_OF_MEMORY), "the other device's is taken");
    machine.occupy(0, PAGE as u64, "cuMemGetInfo_v2", 1);
    machine.reset("");
    init().and(enter(0).map(drop)).expect("a device");
    assert_eq!(free_bytes(), (24 << 30) - (256 << 20), "a reset forgets");
}

#[test]
fn devices_that_use_the_host_s_memory_have_less_of_it() {
    let machine = Machine::new(r#"{"profile": "orin"}"#);
    // The host's other programs take and give memory too: far less than this.
    machine.occupy(0, 1 << 50, "cuMemGetInfo_v2", 1);
    assert_eq!(free_bytes(), 0);
}

#[test]
fn functions_and_devices_must_be_there() {
    let machine = four_pages(1);
    let refused = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
    assert!(refused(&|| machine.occupy(0, 1, "cuNothing", 1)));
    assert!(refused(&|| machine.occupy(1, 1, "*", 1)) && refused(&|| machine.vacate(1)));
}
