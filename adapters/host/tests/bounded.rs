//! A call flushes a bounded number of blocks from the caches of threads that sleep or have ended, however many there are. One
//! test, in a process of its own.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::Duration;
use terrace_host::{Background, Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

const THREADS: usize = 16;

/// Fills the thread's cache, 32 KiB of each size.
fn fill() {
    for bytes in (16..32_000).step_by(16) {
        drop((0..(32_768 / bytes).clamp(2, 127)).map(|_| Vec::with_capacity(bytes)).collect::<Vec<Vec<u8>>>());
    }
}

/// Makes pairs of calls until little is cached: what is left, and the most bytes that one pair flushed from caches. Few pairs
/// need more than the thread's cache; once these found something to flush, all go on with it.
fn take_all() -> (usize, usize) {
    let (mut most, mut before) = (0, stats().cached);
    // An emulated machine under load takes far more than the thousand that are enough otherwise.
    for call in 0..20_000 {
        if before <= 1 << 20 && call >= 1000 {
            break;
        }
        drop(black_box(Vec::<u8>::with_capacity(if call % 250 == 0 { 2_000_000 } else { 100 })));
        let after = stats().cached;
        most = most.max(before.saturating_sub(after));
        before = after;
        sleep(Duration::from_millis(if after > 1 << 20 { 2 } else { 0 }));
    }
    (before, most)
}

/// Bytes that threads with full caches hold when they sleep, or have ended; how many stay; the most that one pair flushes.
fn cached_left_and_taken(sleeps: bool) -> (usize, usize, usize) {
    let delay = |milliseconds| Setting::PurgeDelay(milliseconds).apply().expect("a setting");
    delay(None);
    let barrier = &Barrier::new(THREADS + 1);
    let wait = || _ = barrier.wait();
    scope(|scope| {
        let work = move || {
            wait();
            fill();
            (0..if sleeps { 2 } else { 0 }).for_each(|_| wait());
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        wait();
        if sleeps {
            wait();
        } else {
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
        let cached = stats().cached;
        delay(Some(20));
        let (left, most) = take_all();
        if sleeps {
            wait();
        }
        (cached, left, most)
    })
}

#[test]
fn one_call_takes_the_blocks_of_few_caches() {
    Setting::Background(Background::Never).apply().expect("a setting");
    for (cached, left, most) in [true, false].map(cached_left_and_taken) {
        assert!(cached > THREADS << 20, "the threads cache something: {cached}");
        assert!(left <= 1 << 20, "thousands of pairs of calls left {left} of {cached} bytes in caches");
        // Two calls, of each at most three caches' 2.3 MiB: two of other threads and its own.
        assert!(most < 14 << 20, "one pair of calls took {most} of {cached} bytes from caches");
    }
    check().expect("every structure agrees");
}
