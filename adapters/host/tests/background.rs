//! The purge thread follows its setting at any time. One test, in a process of its own.

use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_host::{Background, Global, Setting, check, stats};

#[global_allocator]
static A: Global = Global::new();

const DELAY: u32 = 20;

/// Frees 20 MB in small blocks, and tells how many bytes were purged by then and how many are left to purge. Calls
/// may have purged a part of them where they take longer than the delay.
fn free_much() -> (usize, usize) {
    drop((0..20_000).map(|_| Box::new([1u8; 1000])).collect::<Vec<_>>());
    let stats = stats();
    (stats.purged, stats.dirty)
}

/// Whether half of what `free_much` left is purged without a call within so many milliseconds.
fn comes_back((purged, left): (usize, usize), milliseconds: u64) -> bool {
    let start = Instant::now();
    while stats().purged < purged + left / 2 {
        if start.elapsed() > Duration::from_millis(milliseconds) {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

/// How often the other threads of this process have begun to wait.
#[cfg(target_os = "linux")]
fn waits() -> u64 {
    let own = std::fs::read_link("/proc/thread-self").expect("Linux");
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let others = threads.filter(|thread| Some(thread.file_name().as_os_str()) != own.file_name());
    let count = |status: String| {
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    others.filter_map(|thread| count(std::fs::read_to_string(thread.path().join("status")).ok()?)).sum::<u64>()
}

/// Once nothing is left to give back, the thread sleeps for good.
#[cfg(target_os = "linux")]
fn check_sleep() {
    let delays = || sleep(Duration::from_millis(50 * u64::from(DELAY)));
    delays();
    let before = waits();
    delays();
    let more = waits() - before;
    assert!(more < 25, "{more} times in 50 delays");
}

#[test]
fn the_thread_rests_while_the_setting_is_never() {
    let apply = |setting: Background| Setting::Background(setting).apply().expect("a setting");
    Setting::PurgeDelay(Some(DELAY)).apply().expect("a setting");
    apply(Background::Always);
    let freed = free_much();
    assert!(comes_back(freed, 10_000), "a thread gives it back: {}", stats());
    apply(Background::Never);
    let freed = free_much();
    assert!(freed.1 > 1 << 20, "something is left to give back: {}", stats());
    assert!(!comes_back(freed, 20 * u64::from(DELAY)), "calls do it all, and none came: {}", stats());
    apply(Background::Auto);
    assert!(comes_back(freed, 10_000), "the thread is at work again: {}", stats());
    #[cfg(target_os = "linux")]
    check_sleep();
    check().expect("every structure agrees");
}
