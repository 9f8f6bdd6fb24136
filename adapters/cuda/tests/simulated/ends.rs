//! How a device ends before the program does, or the program before the device: loss, forks, the end of the process.

use crate::child;
use crate::handles::Simulated;
use std::sync::OnceLock;
use terrace_cuda::{Cuda, OpenError, OpenErrorReason};
use terrace_device::{Backend, Fault, FaultReason, MemoryKind, RawEvent, RawStream};
use terrace_tests::simcuda::Simulator;

const DISCRETE: &str = r#"{"profile":"discrete"}"#;

/// The fault that each function of the backend returns, with the function's name.
fn every_refusal(cuda: &Simulated, address: u64) -> Vec<(&'static str, Option<Fault>)> {
    let (stream, event) = (RawStream(0), RawEvent(16));
    vec![
        ("memory", cuda.memory().err()),
        ("take", cuda.take(MemoryKind::Device, 64).err()),
        ("take pooled", cuda.take(MemoryKind::Pool, 64).err()),
        ("take pinned", cuda.take(MemoryKind::Pinned, 64).err()),
        ("take managed", cuda.take(MemoryKind::Managed, 64).err()),
        // SAFETY: a live region that no stream uses; the call is refused.
        ("give_back", unsafe { cuda.give_back(MemoryKind::Device, address, 64) }.err()),
        ("trim", cuda.trim().err()),
        ("reserve", cuda.reserve(2 << 20).err()),
        ("create_handle", cuda.create_handle(2 << 20).err()),
        ("create_stream", cuda.create_stream().err()),
        ("stream_name", cuda.stream_name(stream).err()),
        ("synchronize_stream", cuda.synchronize_stream(stream).err()),
        ("synchronize", cuda.synchronize().err()),
        ("create_event", cuda.create_event().err()),
        ("destroy_event", cuda.destroy_event(event).err()),
        ("record", cuda.record(event, stream).err()),
        ("query", cuda.query(event).err()),
        ("wait", cuda.wait(event).err()),
        ("order", cuda.order(stream, event).err()),
        // SAFETY: a live region; the call is refused.
        ("fill", unsafe { cuda.fill(address, 0, 64, stream) }.err()),
        // SAFETY: as above.
        ("copy", unsafe { cuda.copy(address, address + 32, 32, stream) }.err()),
        ("can_reach", cuda.can_reach(1).err()),
        ("reach", cuda.reach(1).err()),
    ]
}

#[test]
fn a_lost_device_says_so_and_is_dropped_in_silence() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let cuda = Simulated::open(0);
    let address = cuda.take(MemoryKind::Device, 64).expect("memory");
    session.lose(0, 700);
    for (call, fault) in every_refusal(&cuda, address) {
        if !["can_reach", "reach"].contains(&call) {
            assert_eq!(fault.map(|fault| fault.reason), Some(FaultReason::Lost), "{call}");
        }
    }
    drop(cuda);
}

#[test]
fn a_device_lost_while_it_is_opened_is_not_opened() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    session.fail("cuMemMap", 1, 719);
    let Err(OpenError { reason: OpenErrorReason::Driver(fault), .. }) = Cuda::open(0) else {
        panic!("it was lost in the middle")
    };
    assert_eq!((fault.call, fault.reason), ("cuMemMap", FaultReason::Lost));
}

/// In a child: forks; in the forked process no call may reach the driver.
pub fn fork_and_tell() {
    let session = Simulator::exclusive(DISCRETE);
    let cuda = Simulated::open(0);
    let address = cuda.take(MemoryKind::Device, 64).expect("memory");
    // SAFETY: the forked process makes calls that are refused before they take a lock that another thread held, and ends.
    match unsafe { libc::fork() } {
        0 => {
            let refused = every_refusal(&cuda, address);
            // No code: the driver, which would refuse too, was not called.
            let forked = |fault: &Fault| (fault.reason, fault.code) == (FaultReason::Forked, 0);
            let wrong = refused.iter().filter(|(_, fault)| !fault.as_ref().is_some_and(forked)).count();
            let opened = matches!(Cuda::open(0), Err(error) if matches!(error.reason, OpenErrorReason::Driver(Fault { reason: FaultReason::Forked, .. })));
            drop(cuda);
            // SAFETY: ends this process without running the parent's exit handlers.
            unsafe { libc::_exit(wrong as i32 + if opened { 0 } else { 100 }) }
        }
        child => {
            let mut status = -1;
            // SAFETY: our own child; the out parameter lives through the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            println!("forked: {status}");
        }
    }
    // The device still works in the parent.
    crate::workout::workout(&cuda).expect("the parent's device works");
    // SAFETY: allocated above, and no stream uses it.
    unsafe { cuda.give_back(MemoryKind::Device, address, 64) }.expect("it is ours");
    drop(cuda);
    drop(session);
    println!("parent: well");
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    let told = child::run("fork", None).ended_well("fork");
    assert_eq!(told.value("forked"), Some("0"), "{}{}", told.text, told.errors);
    assert_eq!(told.value("parent"), Some("well"), "{}", told.text);
}

/// A device that is open when the process ends.
static LEFT: OnceLock<(Simulated, u64)> = OnceLock::new();

/// Runs after the driver shut down: it was registered before the driver was started, and such functions run in reverse.
extern "C" fn at_the_end() {
    let Some((cuda, address)) = LEFT.get() else { return };
    let refused = every_refusal(cuda, *address);
    let lost = refused.iter().filter(|(_, fault)| fault.map(|fault| fault.reason) == Some(FaultReason::Lost)).count();
    println!("at the end: {lost} of {}", refused.len());
}

/// In a child: ends with a device, memory and a stream in use.
pub fn end_with_live_objects() {
    // SAFETY: the function lives as long as the program.
    assert_eq!(unsafe { libc::atexit(at_the_end) }, 0);
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let cuda = Simulated::open(0);
    let address = cuda.take(MemoryKind::Device, 64).expect("memory");
    cuda.create_stream().expect("a stream");
    std::mem::forget(session);
    assert!(LEFT.set((cuda, address)).is_ok());
}

#[test]
fn a_process_may_end_with_live_objects() {
    let told = child::run("end", None).ended_well("end");
    let refused = every_refusal_count();
    assert_eq!(told.value("at the end"), Some(format!("{refused} of {refused}").as_str()), "{}", told.text);
}

/// How many functions [`every_refusal`] tries.
fn every_refusal_count() -> usize {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let cuda = Simulated::open(0);
    let address = cuda.take(MemoryKind::Device, 64).expect("memory");
    session.lose(0, 700);
    every_refusal(&cuda, address).len()
}

/// In a child: ends while the device is lost.
pub fn end_lost() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks();
    let cuda = Simulated::open(0);
    session.lose(0, 714);
    std::mem::forget(session);
    assert!(LEFT.set((cuda, 256)).is_ok());
}

#[test]
fn a_process_may_end_with_a_lost_device() {
    child::run("lose", None).ended_well("lose");
}
