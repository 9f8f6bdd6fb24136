//! Statistics of regions of code.

use terrace_track::{ScopeStats, TrackMode, Tracker};

fn counting() -> Tracker {
    let tracker = Tracker::new("pool", &["device 0"]);
    tracker.set_mode(TrackMode::Counters);
    tracker
}

#[test]
fn a_scope_has_what_its_thread_did_and_no_other() {
    let tracker = counting();
    let before = tracker.allocated(1, 1000, 0);
    let scope = tracker.scope();
    let first = tracker.allocated(2, 300, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let other = tracker.allocated(3, 50_000, 0);
            tracker.freed(other, 3, 50_000);
        });
    });
    tracker.freed(before, 1, 1000);
    let second = tracker.allocated(4, 800, 0);
    let now = ScopeStats { allocations: 2, frees: 1, bytes: 1100, freed_bytes: 1000, peak_bytes: 300 };
    assert_eq!(scope.stats(), now);
    assert_eq!(now.net_bytes(), 100);
    assert_eq!(scope.end(), now);
    tracker.freed(first, 2, 300);
    tracker.freed(second, 4, 800);
}

#[test]
fn scopes_nest_and_may_end_in_any_order() {
    let tracker = counting();
    let pulse = |bytes: u64| {
        let stamp = tracker.allocated(1, bytes, 0);
        tracker.freed(stamp, 1, bytes);
    };
    let outer = tracker.scope();
    pulse(500);
    let middle = tracker.scope();
    pulse(200);
    let inner = tracker.scope();
    pulse(100);
    assert_eq!([outer.stats(), middle.stats(), inner.stats()].map(|stats| stats.peak_bytes), [500, 200, 100]);
    let held = tracker.allocated(2, 40, 0);
    assert_eq!(middle.end().peak_bytes, 200);
    assert_eq!(outer.stats().peak_bytes, 500, "what a closed scope stood over is not forgotten");
    pulse(700);
    assert_eq!([outer.stats(), inner.stats()].map(|stats| stats.peak_bytes), [740, 740]);
    assert_eq!(inner.stats().allocations, 3);
    let late = tracker.scope();
    assert_eq!(outer.end(), ScopeStats { allocations: 5, frees: 4, bytes: 1540, freed_bytes: 1500, peak_bytes: 740 });
    pulse(9);
    assert_eq!(late.end().peak_bytes, 9);
    assert_eq!(inner.end().peak_bytes, 740);
    let after = tracker.scope();
    assert_eq!(after.end(), ScopeStats::default(), "nothing remains of earlier scopes");
    tracker.freed(held, 2, 40);
}

#[test]
fn what_is_switched_off_is_not_in_a_scope() {
    let tracker = counting();
    let scope = tracker.scope();
    tracker.set_mode(TrackMode::Off);
    let stamp = tracker.allocated(1, 10, 0);
    tracker.freed(stamp, 1, 10);
    assert_eq!(scope.end(), ScopeStats::default());
}
