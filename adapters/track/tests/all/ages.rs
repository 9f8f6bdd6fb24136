//! Ages, with a clock of the test's own and with the system's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_track::{TrackMode, Tracker};

fn with_clock() -> (Tracker, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(100));
    let clock = Arc::clone(&seconds);
    let clock = Box::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
    let tracker = Tracker::with_clock("pool", &["device 0", "device 0 pinned"], clock);
    tracker.set_mode(TrackMode::Records);
    (tracker, seconds)
}

#[test]
fn old_blocks_are_found_and_young_ones_are_not() {
    let (tracker, seconds) = with_clock();
    let old = tracker.allocated(0x1000, 10, 0);
    seconds.fetch_add(30, Ordering::Relaxed);
    let young = tracker.allocated(0x2000, 20, 1);
    seconds.fetch_add(10, Ordering::Relaxed);
    let ages = |least: u64| {
        let found = tracker.find_older_than(Duration::from_secs(least));
        found.blocks.iter().map(|block| (block.key, block.age.as_secs())).collect::<Vec<_>>()
    };
    assert_eq!(ages(0), [(0x1000, 40), (0x2000, 10)]);
    assert_eq!(ages(10), [(0x1000, 40), (0x2000, 10)], "as old as asked for is old");
    assert_eq!(ages(11), [(0x1000, 40)]);
    assert_eq!(ages(41), []);
    tracker.freed(old, 0x1000, 10);
    assert_eq!(ages(0), [(0x2000, 10)]);
    tracker.freed(young, 0x2000, 20);
    assert_eq!(ages(0), []);
}

#[test]
fn lists_are_sorted_as_asked() {
    let (tracker, seconds) = with_clock();
    for (key, bytes, place) in [(1, 20, 1), (2, 30, 0), (3, 10, 1)] {
        let _tag = terrace_track::tag(["b", "a", "c"][key as usize - 1]);
        let _ = tracker.allocated(key, bytes, place);
        seconds.fetch_add(1, Ordering::Relaxed);
    }
    let mut live = tracker.live();
    let keys = |live: &terrace_track::LiveList| live.blocks.iter().map(|block| block.key).collect::<Vec<_>>();
    assert_eq!((keys(&live), live.bytes()), (vec![1, 2, 3], 60));
    live.sort_by_bytes();
    assert_eq!(keys(&live), [2, 1, 3]);
    live.sort_by_tag();
    assert_eq!(keys(&live), [2, 1, 3]);
    live.sort_by_location();
    assert_eq!(keys(&live), [2, 1, 3]);
    live.blocks.reverse();
    live.sort_by_age();
    assert_eq!(keys(&live), [1, 2, 3]);
}

#[test]
fn the_system_s_clock_advances_and_says_its_step() {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Records);
    let stamp = tracker.allocated(0x1000, 10, 0);
    std::thread::sleep(Duration::from_millis(60));
    let step = tracker.live().resolution;
    assert!(step <= Duration::from_millis(20), "{step:?}");
    assert!(!tracker.find_older_than(Duration::from_millis(40)).is_empty());
    assert!(tracker.find_older_than(Duration::from_secs(3600)).is_empty());
    tracker.freed(stamp, 0x1000, 10);
}
