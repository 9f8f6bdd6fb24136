//! The list of what is live at the end: of a tracker, and of a process.

use std::sync::{Arc, Mutex};
use terrace_track::{LiveList, TrackMode, Tracker};

fn leaky() -> Arc<Tracker> {
    let tracker = Arc::new(Tracker::new("leaky", &["device 0"]));
    tracker.set_mode(TrackMode::Records);
    let _tag = terrace_track::tag("forgotten");
    let _ = tracker.allocated(0x1000, 48, 0);
    tracker
}

#[test]
fn a_tracker_that_is_dropped_reports_what_is_live_once() {
    let said: Arc<Mutex<Vec<LiveList>>> = Arc::default();
    let report = |tracker: &Arc<Tracker>| {
        let said = Arc::clone(&said);
        tracker.report_leaks(Box::new(move |live| said.lock().unwrap().push(live.clone())));
    };
    let tracker = leaky();
    report(&tracker);
    report(&tracker);
    drop(tracker);
    let told = std::mem::take(&mut *said.lock().unwrap());
    assert_eq!(told.iter().map(|live| (live.bytes(), &*live.blocks[0].tag)).collect::<Vec<_>>(), [(48, "forgotten")]);
    let clean = Arc::new(Tracker::new("clean", &["device 0"]));
    clean.set_mode(TrackMode::Records);
    report(&clean);
    drop(clean);
    assert_eq!(said.lock().unwrap().len(), 0, "where nothing is live there is no report");
}

/// Runs as its own child, which leaks a block in a tracker that is never dropped.
#[cfg(all(unix, not(miri)))]
#[test]
fn a_process_lists_what_is_live_when_it_exits() {
    const CHILD: &str = "TERRACE_TRACK_LEAKING_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let tracker = leaky();
        tracker.print_leaks();
        // A report that panics disturbs neither the others nor the process.
        let other = leaky();
        other.report_leaks(Box::new(|_| panic!("in a report")));
        std::mem::forget((tracker, other));
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "leaks::a_process_lists_what_is_live_when_it_exits"]).env(CHILD, "1");
    let finished = command.output().expect("this program runs");
    let said = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success(), "{said}");
    assert_eq!(said.matches("still live at the end: leaky: 1 live block, 48 bytes").count(), 1, "{said}");
    assert!(said.contains("forgotten") && said.contains("0x1000"), "{said}");
}
