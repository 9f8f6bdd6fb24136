//! The process ends while copies are on their way: it ends as it was told to, and the driver has nothing to say.

use super::{open, small};
use std::process::Command;
use terrace_device::{DeviceBuffer, FallbackBuffer, PinnedBuffer, TransferEngine};
use terrace_tests::simcuda::Simulator;

/// What the child is to do.
const WHAT: &str = "TERRACE_TEST_DEVICE_CHILD";
/// What it ends with.
const CODE: i32 = 7;

/// Runs after the driver shut down: it was registered before the driver was started, and such functions run in reverse.
extern "C" fn at_the_end() {
    println!("the driver says: {:?}", Simulator::get().violations());
}

/// Ends with copies between host and device in flight, and everything alive.
fn end(held: bool) -> ! {
    // SAFETY: the function lives as long as the program.
    assert_eq!(unsafe { libc::atexit(at_the_end) }, 0);
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut target = DeviceBuffer::<u32>::new(&device, &stream, 1 << 20).expect("a buffer");
    let mut buffer = FallbackBuffer::from_slice(&device, &stream, &vec![1u32; 1 << 20]).expect("a buffer");
    let staging = PinnedBuffer::<u32>::new(&device, &stream, 1 << 20).expect("pinned memory");
    if held {
        session.hold();
    }
    for _ in 0..20 {
        target.as_slice_mut().copy_from(&buffer.on_device().expect("there")).expect("on its way");
        buffer.on_device_mut().expect("there").copy_from(&target.as_slice()).expect("on its way");
    }
    let _transfer = staging.copy_to(&mut target).expect("on its way");
    // And transfers of an engine, whose lanes end with the process.
    let engine = TransferEngine::new(&device).expect("an engine");
    let there = || DeviceBuffer::<u32>::new(&device, &stream, 1 << 18).expect("a buffer");
    let _uploads: Vec<_> = (0..8).map(|_| engine.upload(vec![2u32; 1 << 18], there(), 0)).collect();
    println!("ends now");
    std::process::exit(CODE)
}

/// Not a test by itself: what a child does.
#[test]
fn child() {
    match std::env::var(WHAT).as_deref() {
        Err(_) => {}
        Ok("held") => end(true),
        Ok("running") => end(false),
        Ok(what) => panic!("a child knows nothing of {what}"),
    }
}

#[test]
fn a_process_may_end_with_copies_in_flight() {
    for what in ["held", "running"] {
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.args(["--exact", "ends::child", "--nocapture", "--test-threads=1"]).env(WHAT, what);
        let output = command.output().expect("our own program runs");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(CODE), "{what}: {text}");
        assert!(text.contains("ends now") && text.contains("the driver says: []"), "{what}: {text}");
        assert!(!text.contains("panicked"), "{what}: {text}");
    }
}
