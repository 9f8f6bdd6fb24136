//! Which context a thread has: ours during a call, and its own again afterwards.

use crate::workout::workout;
use cudarc::driver::sys;
use std::ptr::null_mut;
use terrace_cuda::Cuda;
use terrace_device::{Backend, MemoryKind};
use terrace_tests::simcuda::Simulator;

const TWO: &str = r#"{"profile":"two-peers"}"#;

fn current() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: the out parameter lives through the call.
    unsafe { sys::cuCtxGetCurrent(&raw mut context) }.result().expect("it says");
    context
}

/// Sets this thread's mode of captures; gives the one it had.
fn exchange(mut mode: sys::CUstreamCaptureMode) -> sys::CUstreamCaptureMode {
    // SAFETY: the mode lives through the call.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result().expect("a mode");
    mode
}

/// What a call may change for a while and must give back: this thread's context and its mode of captures.
pub fn thread() -> (sys::CUcontext, sys::CUstreamCaptureMode) {
    let mode = exchange(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    exchange(mode);
    (current(), mode)
}

fn set(context: sys::CUcontext) {
    // SAFETY: null, or a context that is kept by a device of the test.
    unsafe { sys::cuCtxSetCurrent(context) }.result().expect("it is kept");
}

/// A device's primary context, kept as another library of the program would.
pub struct Kept(i32, pub sys::CUcontext);

impl Kept {
    pub fn of(device: i32) -> Self {
        let mut context = null_mut();
        // SAFETY: the out parameter lives through the call.
        unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) }.result().expect("it is there");
        Self(device, context)
    }

    /// The same, current on this thread until it is dropped.
    pub fn current(device: i32) -> Self {
        let kept = Self::of(device);
        set(kept.1);
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        set(null_mut());
        // SAFETY: kept in `of`.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.0) }.result().expect("it was kept");
    }
}

#[test]
fn a_thread_has_what_it_had() {
    let session = Simulator::exclusive(TWO);
    let cuda = Cuda::open(0).expect("the first");
    let (first, second) = (Kept::of(0), Kept::of(1));
    use sys::CUstreamCaptureMode::{
        CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as LOCAL,
    };
    for (context, mode) in [(null_mut(), GLOBAL), (first.1, LOCAL), (second.1, GLOBAL)] {
        set(context);
        exchange(mode);
        workout(&cuda).expect("all of it works from here");
        assert_eq!(thread(), (context, mode));
        session.fail("cuMemAlloc_v2", 1, 2);
        cuda.take(MemoryKind::Device, 64).expect_err("refused once");
        assert_eq!(thread(), (context, mode), "a refused call gives both back too");
        drop(Cuda::open(1).expect("the second"));
        assert_eq!(thread(), (context, mode));
    }
    exchange(GLOBAL);
}

#[test]
fn a_thread_that_has_the_context_makes_no_more_calls() {
    let session = Simulator::exclusive(TWO);
    let cuda = Cuda::open(0).expect("the first");
    let calls = || {
        let before = session.calls(None);
        cuda.synchronize().expect("it is idle");
        session.calls(None) - before
    };
    // The context asked for, set and taken away; the mode of captures set and taken back; the call itself.
    assert_eq!(calls(), 6);
    let _kept = Kept::current(0);
    assert_eq!(calls(), 4);
}

#[test]
fn threads_and_devices_do_not_get_in_each_others_way() {
    let _session = Simulator::exclusive(TWO);
    let devices = [Cuda::open(0).expect("the first"), Cuda::open(1).expect("the second")];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let devices = &devices;
            scope.spawn(move || {
                for turn in 0..20 {
                    workout(&devices[(thread + turn) % 2]).expect("all of it works at once");
                }
            });
        }
    });
}

#[test]
fn a_device_can_be_opened_from_many_threads_at_once() {
    let session = Simulator::exclusive(TWO);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for turn in 0..5 {
                    let cuda = Cuda::open((thread + turn) % 2).expect("both are there");
                    // Another thread may be the last to keep this context, and drop it, between the two calls.
                    cuda.reach(1 - cuda.description().ordinal).expect("they are peers");
                }
            });
        }
    });
    assert_eq!(session.leaks(), Vec::<String>::new());
}

#[test]
fn the_reference_to_a_peers_context_is_kept_once() {
    let session = Simulator::exclusive(TWO);
    let cuda = Cuda::open(0).expect("the first");
    let retained =
        || session.calls(Some("cuDevicePrimaryCtxRetain")) - session.calls(Some("cuDevicePrimaryCtxRelease_v2"));
    let before = retained();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| cuda.reach(1).expect("they are peers"));
        }
    });
    assert_eq!(retained() - before, 1);
    drop(cuda);
    assert_eq!(session.leaks(), Vec::<String>::new());
}

/// Calls about pages are made in whatever context the thread has; what they say of one that other code lost is not about the device.
#[test]
fn a_context_that_other_code_lost_is_no_loss_of_the_device() {
    let mut session = Simulator::exclusive(TWO);
    session.allow_leaks(); // the driver takes nothing back from a lost context
    let cuda = Cuda::open(0).expect("a device");
    // Not given back: its context is lost.
    std::mem::forget(Kept::current(1));
    session.lose(1, 700);
    let page = cuda.create_handle(cuda.description().page_bytes).expect("the device's own context works");
    // SAFETY: created above, mapped nowhere, and not named again.
    unsafe { cuda.release_handle(page) }.expect("it works for this too");
    set(null_mut());
}
