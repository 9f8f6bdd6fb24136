//! Two threads that worked for a while and sleep keep nothing in their caches, though no thread makes a call. One test, in a
//! process of its own.

use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use terrace_host::{Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

/// Works for 25 delays, longer than the default delay: calls find other threads at work, which may sleep next.
fn work(delay: Duration) {
    let start = Instant::now();
    while start.elapsed() < 25 * delay {
        for bytes in (16..30_000).step_by(900) {
            drop([(); 200].map(|()| vec![1u8; bytes]));
        }
    }
}

#[test]
fn few_threads_that_sleep_keep_nothing() {
    let delay = Duration::from_millis(20);
    Setting::PurgeDelay(Some(20)).apply().expect("a setting");
    let barrier = &Barrier::new(3);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                work(delay);
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let (start, before) = (Instant::now(), stats().cached);
        while stats().cached > 100 << 10 && start.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(5));
        }
        let after = stats();
        barrier.wait();
        assert!(after.cached <= 100 << 10, "of {before} bytes in caches: {after}");
    });
    check().expect("every structure agrees");
}
