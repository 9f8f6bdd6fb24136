//! Modes that change while blocks live.

use terrace_track::{Stamp, TrackMode, Tracker};

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
fn modes_have_names() {
    for mode in TrackMode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    let unknown = "all".parse::<TrackMode>().map_err(|error| error.to_string());
    assert_eq!(unknown, Err("no such tracking mode: use off, counters, records or sites".into()));
}
