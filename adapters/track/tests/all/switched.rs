//! Modes that change while blocks live.

use terrace_track::{Origin, Stamp, Tag, TrackMode, Tracker};

#[test]
fn a_tracker_that_is_off_knows_nothing() {
    let tracker = Tracker::new("pool", &["device 0"]);
    assert!(!tracker.is_on());
    let stamp = tracker.allocated(1, 10, 0);
    assert_eq!(stamp, Stamp::NONE);
    assert_eq!((tracker.total().allocations, tracker.recorded()), (0, 0));
    tracker.set_mode(TrackMode::Records);
    assert!(tracker.is_on() && terrace_track::any());
    tracker.freed(stamp, 1, 10);
    assert_eq!(tracker.total().frees, 0, "a free of what was not tracked is harmless");
    assert!(!tracker.free_key_on(0, 1));
    assert_eq!(tracker.total().live_bytes, 0);
}

#[test]
fn what_was_tracked_is_let_go_in_any_mode() {
    for freed_in in TrackMode::ALL {
        let tracker = Tracker::new("pool", &["device 0"]);
        tracker.set_mode(TrackMode::Records);
        let recorded = tracker.allocated(1, 10, 0);
        tracker.set_mode(TrackMode::Counters);
        let counted = tracker.allocated(2, 20, 0);
        tracker.set_mode(TrackMode::Off);
        let unknown = tracker.allocated(3, 40, 0);
        tracker.set_mode(freed_in);
        assert_eq!((tracker.recorded(), tracker.total().live_bytes), (1, 30), "{freed_in}");
        tracker.freed(unknown, 3, 40);
        tracker.freed(counted, 2, 20);
        tracker.freed(recorded, 1, 10);
        let total = tracker.total();
        assert_eq!((tracker.recorded(), total.live_bytes, total.frees), (0, 0, 2), "{freed_in}");
    }
}

#[test]
fn an_address_that_is_used_again_has_its_own_record() {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Records);
    let first = tracker.allocated(1, 10, 0);
    tracker.freed(first, 1, 10);
    let second = tracker.allocated(1, 20, 0);
    let live = tracker.live();
    assert_eq!(live.blocks.iter().map(|block| block.bytes).collect::<Vec<_>>(), [20]);
    assert!(tracker.free_key_on(0, 1), "a key alone finds its record");
    let total = tracker.total();
    assert_eq!((total.frees, total.live_bytes, tracker.recorded()), (2, 0, 0));
    assert_ne!(second, Stamp::NONE);
}

#[test]
fn an_owner_without_stamps_that_switches_off_leaves_no_records() {
    let tracker = Tracker::new("heap", &["heap"]);
    tracker.set_mode(TrackMode::Records);
    let tags = [Tag::new("first"), Tag::new("second")];
    for key in 1..=100u64 {
        let _ = tracker.allocate_on(1, Origin::of(tags[key as usize % 2]), key, 10, 0);
    }
    assert!(tracker.free_key_on(1, 1));
    tracker.set_mode(TrackMode::Off);
    tracker.forget();
    assert_eq!((tracker.recorded(), tracker.live().blocks.len()), (0, 0));
    assert!(!(1..=100).any(|key| tracker.free_key_on(1, key)), "each block was freed once");
    tracker.set_mode(TrackMode::Records);
    let _ = tracker.allocate_on(1, Origin::of(tags[0]), 1, 30, 0);
    let counted = tracker.by_tag();
    assert_eq!((counted.total.allocations, counted.total.frees, counted.total.live_bytes), (101, 100, 30));
    assert_eq!(["first", "second"].map(|tag| counted.get(tag).map(|stats| stats.live_bytes)), [Some(30), Some(0)]);
}

#[test]
fn a_stamp_is_a_number_of_fourteen_bits() {
    let tracker = Tracker::new("pool", &["device 0"]);
    // Miri takes minutes for the counters of the greatest tag, which are made with those of all.
    let last = if cfg!(miri) { Tag::new("last") } else { Tag::OTHER };
    for (mode, tag) in [(TrackMode::Counters, Tag::NONE), (TrackMode::Records, last)] {
        tracker.set_mode(mode);
        let stamp = tracker.allocate_on(0, Origin::of(tag), 1, 10, 0);
        let bits = stamp.to_bits();
        assert_eq!((bits & 3, bits >> 15, Stamp::from_bits(bits)), (0, 1, stamp));
        tracker.freed(Stamp::from_bits(bits), 1, 10);
    }
    assert_eq!((Stamp::NONE.to_bits(), tracker.recorded(), tracker.total().live_bytes), (0, 0, 0));
    assert!(tracker.by_tag().tags.iter().all(|stats| stats.frees == 1));
}

#[test]
fn modes_have_names() {
    for mode in TrackMode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    let unknown = "all".parse::<TrackMode>().map_err(|error| error.to_string());
    assert_eq!(unknown, Err("no such tracking mode: use off, counters, records or sites".into()));
}
