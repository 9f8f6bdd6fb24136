//! Caches of idle threads are emptied though no thread makes a call. One test, in a process of its own.

use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use terrace_host::{Background, Global, Setting, check, stats, trim};

#[global_allocator]
static A: Global = Global::new();

const THREADS: usize = 40;

/// Fills caches with blocks of many sizes, few enough of each that none is spilled.
fn work() {
    for bytes in (16..30_000).step_by(900) {
        drop([(); 4].map(|()| vec![1u8; bytes]));
    }
}

/// Whether caches soon hold hardly anything of `before` bytes. Makes no call.
fn comes_back(before: usize) -> bool {
    let start = Instant::now();
    while stats().cached > before / 20 {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn idle_caches_come_back_without_a_call() {
    let apply = |setting: Setting| setting.apply().expect("a setting");
    apply(Setting::PurgeDelay(None));
    let barrier = &Barrier::new(THREADS + 1);
    scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..2).for_each(|_| {
                    work();
                    barrier.wait();
                    barrier.wait();
                });
            });
        }
        barrier.wait();
        let before = stats().cached;
        trim();
        let after = stats().cached;
        apply(Setting::PurgeDelay(Some(100)));
        barrier.wait();
        barrier.wait();
        let again = stats().cached;
        let came_back = comes_back(again);
        let waiting = stats();
        // So that no thread waits for ever for one that failed.
        apply(Setting::Background(Background::Never));
        barrier.wait();
        assert!(before > THREADS * (100 << 10) && after < before / 20, "trim left {after} of {before} bytes in caches");
        assert!(came_back, "of {again} bytes in caches: {waiting}");
    });
    check().expect("every structure agrees");
}
