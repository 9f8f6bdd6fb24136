//! Beginning, counting, failing.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{CStr, c_char, c_int, c_ulonglong};
use std::time::{Duration, Instant};
use terrace_tests::simcuda::Simulator;

#[test]
fn nothing_works_before_it_begins() {
    let _session = Simulator::exclusive("");
    assert_eq!(alloc(8), Err(NOT_INITIALIZED));
    assert_eq!(enter(0), Err(NOT_INITIALIZED));
    let mut version = 0;
    call!(cuDriverGetVersion(&mut version => *mut c_int)).expect("needs nothing");
    assert_eq!(version, 13000);
    assert_eq!(call!(cuInit(1 => u32)), Err(INVALID_VALUE));
    init().expect("a device");
    assert_eq!(alloc(8), Err(INVALID_CONTEXT));
    assert_eq!(stream(0), Err(INVALID_CONTEXT));
    assert_eq!(enter(1), Err(INVALID_DEVICE));
}

#[test]
fn a_machine_without_devices_does_not_begin() {
    let _session = Simulator::exclusive(r#"{"profile": "none"}"#);
    assert_eq!(init(), Err(NO_DEVICE));
    assert_eq!(enter(0), Err(NOT_INITIALIZED));
}

#[test]
fn contexts_are_counted_and_stacked() {
    let machine = Machine::discrete();
    let first = make!(cuCtxGetCurrent -> u64;).expect("a context");
    assert_eq!(enter(0), Ok(first), "the same context");
    leave(0).expect("retained twice");
    alloc(8).and_then(free).expect("still there");
    call!(cuCtxPushCurrent_v2(first => u64)).expect("a context");
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Ok(first));
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Ok(first));
    assert_eq!(make!(cuCtxPopCurrent_v2 -> u64;), Err(INVALID_CONTEXT));
    current(first).and(leave(0)).expect("retained once");
    assert_eq!(alloc(8), Err(CONTEXT_IS_DESTROYED));
    assert_eq!(current(first), Err(CONTEXT_IS_DESTROYED));
    machine.caught("bad-handle");
    assert_ne!(enter(0), Ok(first), "a new one");
}

#[test]
fn calls_are_counted_and_fail_when_they_shall() {
    let machine = Machine::discrete();
    let before = machine.calls(None);
    machine.fail("cuMemAlloc_v2", 2, OUT_OF_MEMORY);
    machine.fail("cuMemAlloc_v2", 3, ILLEGAL_ADDRESS);
    let block = alloc(8).expect("the first does not fail");
    assert_eq!(alloc(8), Err(OUT_OF_MEMORY));
    assert_eq!(alloc(8), Err(ILLEGAL_ADDRESS));
    assert_eq!(machine.calls(Some("cuMemAlloc_v2")), 3);
    assert_eq!(machine.calls(None) - before, 3);
    machine.fail("*", 1, 999);
    assert_eq!(free(block), Err(999), "and nothing was done");
    free(block).expect("the failure is used up");
    machine.fail("*", 1, 999);
    machine.fail("cuMemAlloc_v2", 1, 999);
    machine.fail("*", 1, 0);
    free(alloc(8).expect("all are disarmed")).expect("a block");
    assert_eq!(machine.calls(Some("no such function")), 0);
}

#[test]
fn every_function_is_there_and_the_table_knows_them_all() {
    let machine = Machine::discrete();
    let names = machine.names();
    assert!(names.len() > 120, "{}", names.len());
    for (name, since) in &names {
        let _: extern "C" fn() = symbol(name);
        assert!((2000..=13010).contains(since), "{name} {since}");
    }
}

#[test]
fn functions_are_found_by_name_and_version() {
    let _machine = Machine::new(r#"{"profile": "old"}"#);
    let find = |name: &CStr, version: c_int| {
        let (mut function, mut status) = (0_u64, -1);
        call!(cuGetProcAddress_v2(
            name.as_ptr() => *const c_char, &mut function => *mut u64, version => c_int, 0 => c_ulonglong,
            &mut status => *mut c_int,
        ))
        .map(|()| (function, status))
    };
    let exported: extern "C" fn() = symbol("cuMemAlloc_v2");
    assert_eq!(find(c"cuMemAlloc", 11040), Ok((exported as usize as u64, 0)));
    assert_eq!(find(c"cuMemAddressReserve", 9000), Ok((0, 2)), "newer than the program");
    assert_eq!(find(c"cuStreamGetId", 12000), Ok((0, 1)), "newer than the driver");
    let mut function = 0_u64;
    let name = c"cuNothing".as_ptr();
    let found =
        call!(cuGetProcAddress(name => *const c_char, &mut function => *mut u64, 11040 => c_int, 0 => c_ulonglong));
    assert_eq!((found, function), (Err(NOT_FOUND), 0));
}

#[test]
fn errors_have_names_and_other_numbers_have_none() {
    let machine = Machine::discrete();
    // Such a call fails for no device's sake: not even when all shall.
    machine.fail("*", 1, 999);
    let mut text: *const c_char = std::ptr::null();
    call!(cuGetErrorName(2 => c_int, &mut text => *mut *const c_char)).expect("a known one");
    assert!(!text.is_null());
    assert_eq!(alloc(8), Err(999), "the failure waited for another call");
    assert_eq!(call!(cuGetErrorString(12345 => c_int, &mut text => *mut *const c_char)), Err(INVALID_VALUE));
    assert!(text.is_null());
}

#[test]
fn attributes_follow_the_profile() {
    let _machine = Machine::new(r#"{"profile": "orin", "capability": [9, 1]}"#);
    let attribute = |number: c_int| make!(cuDeviceGetAttribute -> c_int; number => c_int, 0 => c_int);
    assert_eq!((attribute(75), attribute(76)), (Ok(9), Ok(1)));
    assert_eq!(
        (attribute(18), attribute(89), attribute(83)),
        (Ok(1), Ok(0), Ok(1)),
        "integrated, not concurrent, managed"
    );
    assert_eq!((attribute(0), attribute(100_000)), (Err(INVALID_VALUE), Err(INVALID_VALUE)));
    let mut name = [0; 64];
    call!(cuDeviceGetName(&mut name => *mut [c_char; 64], 64 => c_int, 0 => c_int)).expect("a device");
    let name: String = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect();
    assert_eq!(name, "Simulated Orin 0");
    assert_eq!(make!(cuDeviceTotalMem_v2 -> usize; 0 => c_int), Ok(64 << 30));
}

#[test]
fn calls_take_as_long_as_they_are_told() {
    let machine = Machine::discrete();
    let time = Duration::from_millis(3);
    machine.latency(time);
    let start = Instant::now();
    free(alloc(8).expect("memory")).expect("a block");
    let taken = start.elapsed();
    machine.latency(Duration::ZERO);
    assert!(taken >= 2 * time, "{taken:?}");
}

#[test]
fn a_function_takes_as_long_as_it_is_told_and_longer_for_longer_ranges() {
    let machine = Machine::discrete();
    let (none, time) = (Duration::ZERO, Duration::from_millis(100));
    let taken = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let block = || alloc(8).and_then(free).expect("memory");
    machine.latency_of("cuMemAlloc_v2", time, none);
    assert!(taken(&block) >= time && taken(&|| sync().expect("a context")) < time);
    machine.latency_of("cuMemAlloc_v2", none, none);
    assert!(taken(&block) < time, "as before");
    let steps = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemAddressFree"];
    for step in steps {
        // A page has 2 MiB.
        machine.latency_of(step, none, time / 2);
        assert!(taken(&|| crate::vmm::Pages::new(1).end()) >= time, "{step}");
        machine.latency_of(step, none, none);
    }
    machine.latency_of("cuMemFree_v2", time, time);
    machine.latency_of("cuCtxSynchronize", time, none);
    machine.reset("");
    init().and(enter(0).map(drop)).expect("a device");
    assert!(taken(&|| block()) < time && taken(&|| sync().expect("a context")) < time, "a reset forgets");
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine.latency_of("cuNothing", none, none)));
    assert!(refused.is_err());
}

#[test]
fn profilers_and_priorities_need_a_context_and_no_more() {
    let _machine = Machine::discrete();
    let context = make!(cuCtxGetCurrent -> u64;).expect("a context");
    call!(cuProfilerStop()).and(call!(cuProfilerStart())).and(call!(cuProfilerStart())).expect("in any order");
    let (mut least, mut greatest) = (1, 1);
    call!(cuCtxGetStreamPriorityRange(&mut least => *mut c_int, &mut greatest => *mut c_int)).expect("a range");
    assert_eq!((least, greatest), (0, -5));
    call!(cuCtxGetStreamPriorityRange(0 => usize, 0 => usize)).expect("nobody wants to know");
    current(0).expect("none");
    assert_eq!((call!(cuProfilerStart()), call!(cuProfilerStop())), (Err(INVALID_CONTEXT), Err(INVALID_CONTEXT)));
    assert_eq!(call!(cuCtxGetStreamPriorityRange(0 => usize, 0 => usize)), Err(INVALID_CONTEXT));
    current(context).expect("a context");
}

#[test]
fn profiles_that_are_none_are_refused() {
    let session = Simulator::exclusive("");
    for bad in ["{", "[]", r#"{"profile": "x"}"#, r#"{"granularity": 3}"#, r#"{"mistyped": 3}"#] {
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| session.reset(bad)));
        assert!(refused.is_err(), "{bad}");
    }
}
