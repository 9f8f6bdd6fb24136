//! Many threads at once.

use crate::driver::*;
use crate::machine::Machine;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads and steps of each: enough that calls overlap, few enough for a second.
const THREADS: u64 = 4;
const STEPS: u64 = 300;

#[test]
fn threads_share_the_machine() {
    let machine = Machine::discrete();
    let context = crate::driver::make!(cuCtxGetCurrent -> u64;).expect("a context");
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sum = &sum;
            scope.spawn(move || sum.fetch_add(work(context, thread), Ordering::Relaxed));
        }
    });
    assert_eq!(sum.into_inner(), THREADS * STEPS);
    assert_eq!(machine.violations(), Vec::<String>::new());
}

/// Uses blocks on two streams in turn, each ordered after the other; gives how many blocks held what was sent.
fn work(context: u64, thread: u64) -> u64 {
    current(context).expect("a context");
    let streams = [stream(1).expect("stream"), stream(1).expect("stream")];
    let done = event().expect("event");
    let mut good = 0;
    for step in 0..STEPS {
        let bytes = 64 + (step as usize * 4096) % 100_000;
        let value = (thread * 100 + step % 50) as u8;
        let (first, second) = (streams[step as usize % 2], streams[(step as usize + 1) % 2]);
        let (a, b) = (alloc(bytes).expect("memory"), alloc(bytes).expect("memory"));
        set(a, value, bytes, first).and(record(done, first)).and(stream_wait(second, done)).expect("streams");
        copy(b, a, bytes, second).and(record(done, second)).and(event_sync(done)).expect("streams");
        good += u64::from(download(b + bytes as u64 - 8, 8) == Ok(vec![value; 8]));
        free(a).and(free(b)).expect("blocks");
    }
    streams.into_iter().try_for_each(stream_destroy).and(event_destroy(done)).expect("all live");
    good
}
