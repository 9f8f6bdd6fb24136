//! Threads that end, and those that have no number.

use std::sync::Barrier;
use terrace_track::{Origin, Tag, TrackMode, Tracker};

#[test]
fn counters_outlive_their_threads() {
    let tracker = Tracker::new("ended", &["memory"]);
    tracker.set_mode(TrackMode::Counters);
    let rounds = if cfg!(miri) { 3 } else { 20 };
    for round in 0..rounds {
        std::thread::scope(|threads| {
            for thread in 0..4u64 {
                let tracker = &tracker;
                threads.spawn(move || _ = tracker.allocated(round * 4 + thread, 10, 0));
            }
        });
    }
    assert_eq!((tracker.total().allocations, tracker.total().live_bytes), (rounds * 4, rounds * 40));
}

#[test]
fn a_destructor_of_a_thread_may_allocate_and_free() {
    struct Late(&'static Tracker);
    impl Drop for Late {
        fn drop(&mut self) {
            let _tag = terrace_track::tag("too late");
            let stamp = self.0.allocated(1, 10, 0);
            self.0.freed(stamp, 1, 10);
        }
    }
    std::thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
    let tracker: &Tracker = Box::leak(Box::new(Tracker::new("late", &["memory"])));
    tracker.set_mode(TrackMode::Sites);
    // The value is made first, so that it is dropped last.
    let ran = std::thread::spawn(|| {
        LATE.set(Some(Late(tracker)));
        let stamp = tracker.allocated(2, 20, 0);
        tracker.freed(stamp, 2, 20);
    });
    assert!(ran.join().is_ok());
    let total = tracker.total();
    assert_eq!((total.allocations, total.frees, total.live_bytes), (2, 2, 0));
}

#[test]
fn callers_without_a_number_share_counters_and_lose_none() {
    let tracker = Tracker::new("shared", &["memory"]);
    tracker.set_mode(TrackMode::Counters);
    let (threads, calls) = (4, if cfg!(miri) { 10 } else { 50_000 });
    let begin = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                for key in 0..calls {
                    let stamp = tracker.allocate_on(0, Origin::of(Tag::new("shared")), key, 1000, 0);
                    tracker.free_on(0, stamp, key, 1000);
                }
            });
        }
    });
    let (total, calls) = (tracker.total(), threads as u64 * calls);
    assert_eq!((total.allocations, total.frees, total.bytes, total.live_bytes), (calls, calls, calls * 1000, 0));
}
