//! No call purges for all others: free memory is purged in pieces, a call at a time. One test, in a process of its own.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;
use terrace_host::{Background, Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}

#[test]
fn a_call_gives_a_piece_back_and_the_next_ones_the_rest() {
    // 5 % of them are more than the 32 MiB that may wait for a call that needs more than its thread's cache.
    const BLOCKS: usize = 800_000;
    const CALLS: usize = 1000;
    const MOST: usize = (3 << 20) + (64 << 10);
    Setting::Background(Background::Never).apply().expect("a setting");
    Setting::PurgeDelay(Some(20)).apply().expect("a setting");
    let before = threads();
    let blocks: Vec<Box<[u8; 1000]>> = (0..BLOCKS).map(|_| Box::new([1; 1000])).collect();
    let full = stats().dirty;
    drop(blocks);
    // A round may have begun; two delays, and the clock's own step: from here all of it is due.
    let (mut worst, mut last) = (0, stats().purged);
    for _ in 0..3 {
        sleep(Duration::from_millis(50));
        for _ in 0..CALLS / 3 {
            drop(black_box(Box::new([0u8; 100])));
            let now = stats().purged;
            worst = worst.max(now - last);
            last = now;
        }
    }
    assert!(worst <= 2 * MOST, "one pair of calls gave {worst} bytes back");
    assert!(stats().dirty * 20 < full, "of {full} bytes: {}", stats());
    assert_eq!(threads(), before, "the setting refuses a thread");
    check().expect("every structure agrees");
}
