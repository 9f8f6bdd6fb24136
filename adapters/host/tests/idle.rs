//! Threads that sleep keep no memory that they do not use: their caches are emptied. One test, in a process of its own.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use terrace_host::{Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

const THREADS: usize = 40;
static BARRIER: Barrier = Barrier::new(THREADS + 1);

/// Blocks of many sizes, each filled with its own number: a block with two holders shows the other's.
fn work(number: u8) {
    for bytes in (16..30_000).step_by(900) {
        let blocks: Vec<Vec<u8>> = (0..(100_000 / bytes).min(100)).map(|_| vec![number; bytes]).collect();
        assert!(blocks.iter().all(|block| black_box(block).iter().all(|&byte| byte == number)), "{bytes}");
    }
}

/// Makes calls that look at the clock, until `done` or for half a minute.
fn until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < Duration::from_secs(30) {
        drop(black_box(vec![1u8; 200_000]));
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn idle_threads_give_their_caches_back_and_go_on() {
    let delay = |milliseconds| Setting::PurgeDelay(milliseconds).apply().expect("a setting");
    let mut cached = [(0, 0); 2];
    // While threads work, however long: the first ones wait for the last.
    delay(None);
    scope(|scope| {
        for number in 0..THREADS as u8 {
            scope.spawn(move || {
                for _ in 0..2 {
                    work(number);
                    BARRIER.wait();
                    BARRIER.wait();
                }
                // While other threads allocate what it frees: it is idle for moments only.
                for round in 0..2_000u32 {
                    drop(black_box(vec![number; 16 + (round as usize * 37) % 3_000]));
                    if round % 100 == 0 {
                        sleep(Duration::from_millis(2));
                        work(number);
                    }
                }
            });
        }
        for (before, after) in &mut cached {
            BARRIER.wait();
            *before = stats().cached;
            delay(Some(20));
            until(|| stats().cached < *before / 20);
            *after = stats().cached;
            delay(None);
            BARRIER.wait();
        }
        delay(Some(20));
    });
    for (before, after) in cached {
        assert!(before > THREADS * (100 << 10), "the threads cache something: {before}");
        assert!(after < before / 20, "{after} of {before} bytes are cached still");
    }
    check().expect("every structure agrees");
}
