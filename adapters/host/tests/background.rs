//! The purge thread follows its setting at any time. One test, in a process of its own.

use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_host::{Background, Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

const DELAY: u32 = 20;

/// Frees 20 MB in small blocks.
fn free_much() {
    drop((0..20_000).map(|_| Box::new([1u8; 1000])).collect::<Vec<_>>());
}

/// Whether memory is purged without a call within so many milliseconds.
fn comes_back(milliseconds: u64) -> bool {
    let (start, purged) = (Instant::now(), stats().purged);
    while stats().purged < purged + (10 << 20) {
        if start.elapsed() > Duration::from_millis(milliseconds) {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn the_thread_rests_while_the_setting_is_never() {
    let apply = |setting: Background| Setting::Background(setting).apply().expect("a setting");
    Setting::PurgeDelay(Some(DELAY)).apply().expect("a setting");
    apply(Background::Always);
    free_much();
    assert!(comes_back(10_000), "a thread gives it back: {}", stats());
    apply(Background::Never);
    free_much();
    assert!(!comes_back(20 * u64::from(DELAY)), "calls do it all, and none came: {}", stats());
    apply(Background::Auto);
    assert!(comes_back(10_000), "the thread is at work again: {}", stats());
    check().expect("every structure agrees");
}
