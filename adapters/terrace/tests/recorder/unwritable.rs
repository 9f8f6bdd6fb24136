//! Files that cannot be made, are full, or are slow.

use super::{churn, directory, places, read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace::Device;
use terrace::observe::track::{TrackMode, Tracker};
use terrace::recording::{Problem, Reader, Recorder, RecorderError, TraceError};
use terrace_tests::hung::bounded;

/// The error of a file, and how many events the file has.
fn file_error(error: RecorderError) -> (TraceError, u64) {
    match error {
        RecorderError::File { error, events } => (error, events),
        other => panic!("{other}"),
    }
}

#[test]
fn a_file_that_cannot_be_made_is_told_at_the_beginning() {
    let (directory, _) = directory();
    let device = Device::host();
    for path in [Path::new("/dev/full"), &directory.path().join("none/run.terrace"), directory.path()] {
        let (error, events) = file_error(Recorder::start(device.tracker(), path).expect_err("no file"));
        assert!(error.file == path.display().to_string() && matches!(error.problem, Problem::Io(_)), "{error}");
        assert_eq!((events, device.tracker().mode()), (0, TrackMode::Off));
    }
}

/// The file that [`a_full_disk_ends_the_recording_and_nothing_else`] records into where no file may be large.
const SMALL: &str = "TERRACE_TEST_SMALL_FILE";

/// Allocates until recording ends, which the program survives.
fn fill(tracker: &Arc<Tracker>, device: &Device, path: &Path) -> (TraceError, u64) {
    let recorder = Recorder::start(tracker, path).expect("a recorder");
    let (shared, never) = (places(), AtomicBool::new(false));
    let mut seed = 0;
    while recorder.is_recording() && seed < 400 {
        churn(device, &shared, seed, 10_000, &never);
        seed += 1;
    }
    churn(device, &shared, seed, 10_000, &never);
    assert_eq!(tracker.mode(), TrackMode::Off, "nothing is told any more");
    // Another one may begin, and the end of the first is not its end.
    let other = Recorder::start(tracker, "/dev/null").expect("a recorder");
    let failed = file_error(recorder.finish().expect_err("the file is as large as it may be"));
    churn(device, &shared, seed, 1000, &never);
    assert!(other.events() >= 1000 && other.finish().is_ok());
    failed
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    if let Some(path) = std::env::var_os(SMALL).map(PathBuf::from) {
        let device = Device::host();
        let (error, events) = fill(device.tracker(), &device, &path);
        assert!(error.to_string().contains("run.terrace: File too large"), "{error}");
        assert_eq!(path.exists(), events > 0);
        assert_eq!(if events > 0 { read(&path).len() as u64 } else { 0 }, events);
        let left = std::fs::read_dir(path.parent().expect("a directory")).expect("a directory").count();
        assert_eq!(left, usize::from(events > 0), "nothing is left half-written");
        println!("{events} events are whole");
        return;
    }
    // Files of the child may have so many blocks of 512 bytes. A frame has some 300 KiB.
    for (blocks, is_kept) in [(4000, true), (200, false)] {
        let (_directory, path) = directory();
        let name = "unwritable::a_full_disk_ends_the_recording_and_nothing_else";
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec timeout 60 \"$0\" --exact {name} --nocapture");
        let mut child = Command::new("sh");
        child.args(["-c", &script]).arg(std::env::current_exe().expect("a path")).env(SMALL, &path);
        // A pipe: what the child prints goes into no file.
        let output = child.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(!said.contains("\n0 events are whole"), is_kept, "{said}");
    }
}

#[test]
fn a_slow_file_makes_callers_wait_and_loses_nothing() {
    const CALLS: u64 = 300_000;
    let (_directory, path) = directory();
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    bounded(move || {
        let device = Device::host();
        // Opens the pipe, which waits until it is read.
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::File::open(path).expect("a pipe")
        });
        let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
        let pipe = reader.join().expect("no panic");
        let events = std::thread::scope(|scope| {
            let device = &device;
            let worker = scope.spawn(move || churn(device, &places(), 1, CALLS, &AtomicBool::new(false)));
            // Nothing is read until the queue, the writer's list and the pipe are full: then the worker waits.
            let mut last = 0;
            while recorder.events() != last || last == 0 {
                last = recorder.events();
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            let reader = scope.spawn(move || {
                let events = Reader::new("pipe", pipe).expect("a recording");
                events.fold(0, |count, entry| count + u64::from(entry.is_ok()))
            });
            worker.join().expect("no panic");
            assert!(last < 2 * CALLS, "it did not wait");
            assert_eq!(recorder.finish().expect("written").events, 2 * CALLS);
            reader.join().expect("no panic")
        });
        assert_eq!(events, 2 * CALLS);
    });
}
