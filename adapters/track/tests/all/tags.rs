//! Tags: names, guards, and counters by tag.

use terrace_track::{MAX_TAG_BYTES, Tag, TrackMode, Tracker, tag};

#[test]
fn the_innermost_open_guard_counts_in_whichever_order_they_are_dropped() {
    let named = || Tag::current().name();
    assert_eq!(named(), "");
    let outer = tag("outer");
    let inner = tag("inner");
    assert_eq!(named(), "inner");
    drop(outer);
    assert_eq!(named(), "inner", "the outer guard is not the innermost");
    let third = Tag::new("third").set();
    assert_eq!(named(), "third");
    assert_eq!(std::thread::spawn(|| Tag::current().name()).join().ok(), Some(""), "each thread has its own");
    drop(third);
    assert_eq!(named(), "inner");
    drop(inner);
    assert_eq!(named(), "");
}

#[test]
fn counters_are_kept_by_tag_also_for_frees_of_other_threads() {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Counters);
    let weights = tag("counted weights");
    let first = tracker.allocated(0x1000, 1 << 20, 0);
    let second = tracker.allocated(0x2000, 1 << 10, 0);
    drop(weights);
    let none = tracker.allocated(0x3000, 5, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let _other = tag("another");
            tracker.freed(first, 0x1000, 1 << 20);
        });
    });
    let counted = tracker.by_tag();
    let weights = counted.get("counted weights").expect("the tag was used");
    assert_eq!((weights.allocations, weights.frees, weights.bytes), (2, 1, (1 << 20) + (1 << 10)));
    assert_eq!((weights.live_bytes, weights.live_blocks()), (1 << 10, 1));
    assert!(weights.peak_bytes.abs_diff((1 << 20) + (1 << 10)) <= 2 * terrace_track::BATCH, "{weights:?}");
    assert_eq!(counted.get("another"), None, "a free counts for the tag of its allocation");
    assert_eq!(counted.get("").map(|stats| stats.live_bytes), Some(5));
    assert_eq!((counted.total.allocations, counted.total.live_bytes), (3, (1 << 10) + 5));
    assert_eq!(tracker.recorded(), 0, "there are no records in this mode");
    tracker.freed(second, 0x2000, 1 << 10);
    tracker.freed(none, 0x3000, 5);
}

#[test]
fn long_names_are_cut_at_a_character() {
    let long = "\u{e9}".repeat(100);
    let tag = Tag::new(&long);
    assert_eq!(tag.name(), "\u{e9}".repeat(MAX_TAG_BYTES / 2));
    assert_eq!(Tag::new(&long), tag);
    let odd = format!("x{long}");
    assert_eq!(Tag::new(&odd).name().len(), MAX_TAG_BYTES - 1);
}

#[test]
fn a_peak_stays_when_memory_is_freed() {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Counters);
    let _tag = tag("peaks");
    let blocks: Vec<_> = (0..64u64).map(|key| (key, tracker.allocated(key, 1 << 20, 0))).collect();
    blocks.into_iter().for_each(|(key, stamp)| tracker.freed(stamp, key, 1 << 20));
    let stats = tracker.by_tag().get("peaks").cloned().expect("the tag was used");
    let most = 64u64 << 20;
    assert_eq!(stats.live_bytes, 0);
    assert!(stats.peak_bytes <= most && stats.peak_bytes >= most - most / 100 - (64 << 10), "{stats:?}");
    assert!(tracker.total().peak_bytes >= most - most / 100 - (64 << 10));
}
