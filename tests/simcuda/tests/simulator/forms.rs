//! Newer forms of calls, which take other arguments than the older ones.

use crate::driver::{call, make, *};
use crate::machine::Machine;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_context_that_is_not_the_thread_s_can_be_waited_for() {
    let _machine = Machine::discrete();
    let context = make!(cuCtxGetCurrent -> u64;).expect("a context");
    let busy = stream(1).expect("a stream");
    run("spin", busy, &[20_000_000]).and(current(0)).expect("a stream");
    call!(cuCtxSynchronize_v2(context => u64)).expect("a context");
    assert_eq!(call!(cuCtxSynchronize_v2(0 => u64)), Err(INVALID_CONTEXT), "the thread has none");
    assert_eq!(call!(cuCtxSynchronize_v2(context + 1 => u64)), Err(INVALID_CONTEXT));
    current(context).expect("a context");
    assert_eq!(stream_query(busy), Ok(()), "it was done");
    run("spin", busy, &[20_000_000]).and(call!(cuCtxSynchronize_v2(0 => u64))).expect("the thread's");
    assert_eq!(stream_query(busy), Ok(()));
    stream_destroy(busy).expect("a stream");
}

#[test]
fn a_stream_says_that_it_has_the_whole_device() {
    let _machine = Machine::discrete();
    let (mut context, mut part) = (1_u64, 1_u64);
    let ask = |context: &mut u64, part: &mut u64, stream: u64| call!(cuStreamGetCtx_v2(stream => u64, context => *mut u64, part => *mut u64));
    ask(&mut context, &mut part, 0).expect("the default stream");
    assert_eq!((Ok(context), part), (make!(cuCtxGetCurrent -> u64;), 0));
    assert_eq!(call!(cuStreamGetCtx_v2(0 => u64, &mut context => *mut u64, 0 => u64)), Err(INVALID_VALUE));
}

#[test]
fn a_batch_of_copies_need_not_say_which_failed() {
    let machine = Machine::discrete();
    let (a, b, stream) = (alloc(64).expect("memory"), alloc(64).expect("memory"), stream(1).expect("a stream"));
    set(a, 7, 64, stream).and(set(b, 0, 64, stream)).expect("blocks");
    let batch = |to: [u64; 2]| {
        let (from, sizes, kind, first) = ([a, a + 32], [16_usize, 16], [1, 0, 0, 0, 0, 0], 0_usize);
        call!(cuMemcpyBatchAsync_v2(
            to.as_ptr() => *const u64, from.as_ptr() => *const u64, sizes.as_ptr() => *const usize, 2 => usize,
            &kind => *const [c_int; 6], &first => *const usize, 1 => usize, stream => u64,
        ))
    };
    batch([b, b + 48]).and(stream_sync(stream)).expect("copies");
    assert_eq!(download(b, 64), Ok([vec![7; 16], vec![0; 32], vec![7; 16]].concat()));
    assert_eq!(batch([b, b + 49]), Err(INVALID_VALUE));
    machine.caught("out-of-bounds");
    free(a).and(free(b)).and(stream_destroy(stream)).expect("blocks");
}

static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_host_function_is_told_how_to_wait() {
    let _machine = Machine::discrete();
    let launch = |mode: c_uint| call!(cuLaunchHostFunc_v2(0 => u64, count => extern "C" fn(*mut c_void), 0 => usize, mode => c_uint));
    launch(0).and(launch(1)).and(sync()).expect("both ways");
    assert_eq!((launch(2), CALLS.load(Ordering::Relaxed)), (Err(INVALID_VALUE), 2));
}
