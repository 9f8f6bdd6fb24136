//! A tracker in a forked child: threads that only the parent has may hold its locks there.
#![cfg(unix)]

use std::sync::atomic::{AtomicBool, Ordering};
use terrace_track::{Stamp, TrackMode, Tracker};

/// Forks; each child ends at once with what `child` returns. Whether all of them returned true.
fn children(count: usize, child: impl Fn() -> bool) -> bool {
    (0..count).all(|_| {
        // SAFETY: the child calls the tracker only, which takes no lock there, and ends by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let code = i32::from(!child());
                // SAFETY: ends this process without its destructors.
                unsafe { libc::_exit(code) }
            }
            pid => {
                let mut status = -1;
                // SAFETY: waits for a child of this process; the status has room.
                unsafe { libc::waitpid(pid, &mut status, 0) };
                status == 0
            }
        }
    })
}

#[test]
fn a_child_leaves_the_tracker_alone() {
    let tracker = Tracker::new("forked", &["memory"]);
    tracker.set_mode(TrackMode::Records);
    let stamp = tracker.allocated(1, 10, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 1..3u64 {
            let (tracker, done) = (&tracker, &done);
            threads.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let stamp = tracker.allocated(thread << 32, 10, 0);
                    tracker.freed(stamp, thread << 32, 10);
                }
            });
        }
        let all_alone = children(if cfg!(miri) { 0 } else { 50 }, || {
            let nothing = tracker.allocated(2, 10, 0) == Stamp::NONE && tracker.recorded() == 0;
            tracker.freed(stamp, 1, 10);
            nothing && tracker.live().is_empty() && !tracker.free_key_on(0, 1)
        });
        done.store(true, Ordering::Relaxed);
        assert!(all_alone);
    });
    assert_eq!((tracker.recorded(), tracker.total().live_bytes), (1, 10), "the parent's is as it was");
    tracker.freed(stamp, 1, 10);
}
