//! Devices and managers that are recorded while they run: what the file has, and what becomes of it when it cannot be written.
#![cfg(target_os = "linux")]

mod unwritable;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace::device::DeviceBlock;
use terrace::engine::event::{Event, Kind};
use terrace::observe::track::{Origin, TrackMode, Tracker, tag};
use terrace::recording::{Reader, Recorder, RecorderError};
use terrace::{Device, Manager};
use terrace_tests::Random;
use terrace_tests::hung::in_child;

const MIB: u64 = 1 << 20;

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run.terrace");
    (directory, path)
}

/// The events of a file that is right, each with the texts of its tag and its call site.
fn read(path: &Path) -> Vec<(Event, String, String)> {
    let mut reader = Reader::open(path).expect("a recording");
    let mut events = Vec::new();
    while let Some(entry) = reader.next() {
        let event = entry.expect("an event").event;
        let text = |id| reader.texts().get(id).expect("a text").to_owned();
        events.push((event, text(event.tag), text(event.site)));
    }
    events
}

/// Checks that no two blocks have the same memory at a time: addresses and sizes of those that are live at the end.
fn check_addresses(events: &[(Event, String, String)]) -> BTreeMap<u64, u64> {
    let (mut live, mut addresses) = (BTreeMap::new(), HashMap::new());
    for (event, ..) in events {
        match event.kind {
            Kind::Allocate => {
                // Of what was live before, only the size is known.
                let Some(address) = event.address else { continue };
                let below: Option<(&u64, &u64)> = live.range(..address + event.bytes).next_back();
                assert!(below.is_none_or(|(at, bytes)| at + bytes <= address), "block {} lies in another", event.id);
                live.insert(address, event.bytes);
                addresses.insert(event.id, address);
            }
            Kind::Free => _ = addresses.remove(&event.id).and_then(|address| live.remove(&address)),
            kind => panic!("a device has no {kind:?}"),
        }
    }
    live
}

/// How many events of a kind there are, and the sum of their bytes.
fn count(events: &[(Event, String, String)], kind: Kind) -> (u64, u64) {
    let found = events.iter().filter(|(event, ..)| event.kind == kind);
    found.fold((0, 0), |(count, bytes), (event, ..)| (count + 1, bytes + event.bytes))
}

/// Allocates, and frees what another thread may have allocated, until told to end or as often as asked; the calls and bytes.
fn churn(
    device: &Device,
    shared: &[Mutex<Option<DeviceBlock>>],
    seed: u64,
    calls: u64,
    end: &AtomicBool,
) -> (u64, u64) {
    let stream = device.stream().expect("a stream");
    let mut random = Random::new(seed);
    let mut done = (0, 0);
    while done.0 < calls && !end.load(Ordering::Relaxed) {
        let bytes = 1 + random.below(20_000);
        let block = device.allocate(&stream, bytes).expect("memory");
        let at = random.below(shared.len() as u64) as usize;
        // The block that lay there is freed after the lock.
        let _old = shared[at].lock().expect("no panic").replace(block);
        done = (done.0 + 1, done.1 + bytes);
    }
    done
}

fn places() -> Vec<Mutex<Option<DeviceBlock>>> {
    (0..256).map(|_| Mutex::new(None)).collect()
}

#[test]
fn a_million_events_of_four_threads_are_all_there_in_an_order_that_can_be() {
    const CALLS: u64 = 130_000;
    let (_directory, path) = directory();
    let (device, shared, never) = (Device::host(), places(), AtomicBool::new(false));
    let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
    assert!(recorder.is_recording() && device.tracker().mode() == TrackMode::Counters);
    let asked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (device, shared, never, asked) = (&device, &shared, &never, &asked);
            scope.spawn(move || asked.fetch_add(churn(device, shared, seed, CALLS, never).1, Ordering::Relaxed));
        }
    });
    drop(shared);
    assert_eq!(recorder.events(), 8 * CALLS);
    let recorded = recorder.finish().expect("a file");
    assert_eq!((recorded.events, recorded.path), (8 * CALLS, path.clone()));
    let events = read(&path);
    assert_eq!(count(&events, Kind::Allocate), (4 * CALLS, asked.into_inner()));
    assert_eq!(count(&events, Kind::Free), (4 * CALLS, 0));
    assert!(check_addresses(&events).is_empty());
    let owners: std::collections::HashSet<_> = events.iter().map(|(event, ..)| event.owner).collect();
    assert_eq!(owners.len(), 4, "a stream each");
    assert_eq!(device.tracker().mode(), TrackMode::Off, "it was off before");
}

#[test]
fn recording_goes_on_and_off_while_threads_run() {
    let (directory, _) = directory();
    let (device, shared, end) = (Device::host(), places(), AtomicBool::new(false));
    for mode in [TrackMode::Off, TrackMode::Records] {
        device.tracker().set_mode(mode);
        let files: Vec<_> = std::thread::scope(|scope| {
            for seed in 0..2 {
                let (device, shared, end) = (&device, &shared, &end);
                scope.spawn(move || churn(device, shared, seed, u64::MAX, end));
            }
            let files = (0..5).map(|round| {
                let path = directory.path().join(format!("{mode}-{round}.terrace"));
                let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
                while recorder.events() < 20_000 {
                    std::thread::yield_now();
                }
                (path, recorder.finish(), device.tracker().mode())
            });
            let files = files.collect();
            // Nothing may fail before: the threads would not end.
            end.store(true, Ordering::Relaxed);
            files
        });
        for (begun, (path, recorded, mode_after)) in files.into_iter().enumerate() {
            let (events, recorded) = (read(&path), recorded.expect("a file"));
            check_addresses(&events);
            assert_eq!(recorded.events, events.len() as u64);
            // The 256 places are full at most times, and the tracker knows what is in them while it keeps records.
            let known = events.iter().filter(|(event, ..)| event.kind == Kind::Allocate && event.address.is_none());
            assert!(begun == 0 || (known.count() > 0) == (mode == TrackMode::Records), "{mode}: {recorded:?}");
            assert_eq!(mode_after, mode);
        }
        end.store(false, Ordering::Relaxed);
    }
}

#[test]
fn blocks_that_were_live_before_come_first_if_they_are_known() {
    let (_directory, path) = directory();
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let unknown = device.allocate(&stream, 256).expect("memory");
    device.tracker().set_mode(TrackMode::Records);
    let known = {
        let _tag = tag("weights");
        device.allocate(&stream, 512).expect("memory")
    };
    let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
    let kept = device.allocate(&stream, 1000).expect("memory");
    drop((unknown, known));
    recorder.finish().expect("a file");
    drop(kept);
    let events = read(&path).into_iter().map(|(event, tag, _)| (event.kind, event.id, event.bytes, tag));
    let expected = [
        (Kind::Allocate, 0, 512, "weights".into()),
        (Kind::Allocate, 1, 1000, String::new()),
        (Kind::Free, 0, 0, String::new()),
    ];
    assert_eq!(events.collect::<Vec<_>>(), expected);
    assert_eq!(device.tracker().mode(), TrackMode::Records, "it stays as it was");
}

#[test]
fn tags_and_call_sites_are_texts() {
    let (_directory, path) = directory();
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    device.tracker().set_mode(TrackMode::Sites);
    let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
    for name in ["kv-cache", "activations", "kv-cache"] {
        let _tag = tag(name);
        drop(device.allocate_aligned(&stream, 100, 4096).expect("memory"));
    }
    recorder.finish().expect("a file");
    let events: Vec<_> = read(&path).into_iter().filter(|(event, ..)| event.kind == Kind::Allocate).collect();
    let tags: Vec<_> = events.iter().map(|(event, tag, _)| (&**tag, event.bytes, event.align)).collect();
    assert_eq!(tags, [("kv-cache", 100, 4096), ("activations", 100, 4096), ("kv-cache", 100, 4096)]);
    let program = std::env::current_exe().expect("a path");
    let program = program.file_name().expect("a name").to_string_lossy();
    assert!(events.iter().all(|(.., site)| site.contains(&format!("{program}+0x"))), "{events:?}");
}

/// Threads that had not seen the recorder when they freed leave such events.
#[test]
fn events_that_contradict_each_other_become_a_file_that_is_right() {
    let (_directory, path) = directory();
    let tracker = Arc::new(Tracker::new("pool", &["device 0"]));
    let recorder = Recorder::start(&tracker, &path).expect("a recorder");
    let events = [(Kind::Free, 7), (Kind::Transfer, 7), (Kind::Allocate, 7), (Kind::Allocate, 7), (Kind::Free, 7)];
    for (kind, id) in events.into_iter().chain([(Kind::Free, 7), (Kind::Transfer, 7)]) {
        tracker.tell_event(Origin::default(), || Event { kind, id, align: 1, ..Event::default() });
    }
    assert_eq!(recorder.finish().expect("a file").events, 4);
    let found: Vec<_> = read(&path).into_iter().map(|(event, ..)| (event.kind, event.id, event.bytes)).collect();
    // A block of no bytes has one byte, as in all traces.
    assert_eq!(found, [(Kind::Allocate, 0, 1), (Kind::Free, 0, 0), (Kind::Allocate, 1, 1), (Kind::Free, 1, 0)]);
}

#[test]
fn a_tracker_has_one_recorder_at_a_time() {
    let (directory, path) = directory();
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let first = Recorder::start(device.tracker(), &path).expect("a recorder");
    let other = directory.path().join("other.terrace");
    let refused = Recorder::start(device.tracker(), &other).expect_err("one is there");
    assert!(matches!(&refused, RecorderError::Busy(name) if name.starts_with("device 0")), "{refused}");
    drop(device.allocate(&stream, 4096).expect("memory"));
    // Dropping it ends the recording as well.
    drop(first);
    assert_eq!(read(&path).len(), 2);
    let names: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").collect();
    assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
    Recorder::start(device.tracker(), &other).expect("there is none any more").finish().expect("a file");
}

#[test]
fn copies_between_the_tiers_of_a_manager_are_recorded() {
    let (directory, path) = directory();
    let manager = Manager::builder().memory(4 * MIB).directory_of(directory.path(), 64 * MIB).build();
    let manager = manager.expect("a manager");
    let recorder = Recorder::start(manager.tracker(), &path).expect("a recorder");
    let weights = {
        let _tag = tag("weights");
        manager.allocate(MIB).expect("memory")
    };
    weights.write(0, &[7; 4096]).expect("written");
    manager.demote(&weights, 1).expect("demoted");
    manager.promote(&weights, 0).expect("promoted");
    let other = manager.allocate(4096).expect("memory");
    drop(weights);
    drop(other);
    // A buffer is freed by the manager, maybe after its handle.
    while manager.tracker().total().live_bytes > 0 {
        std::thread::yield_now();
    }
    let recorded = recorder.finish().expect("a file");
    let events = read(&path);
    let told = |(event, tag, _): &(Event, String, String)| {
        (event.kind, event.id, event.bytes, event.from_tier, event.tier, tag.clone())
    };
    let mut told: Vec<_> = events.iter().map(told).collect();
    let frees = told.split_off(4);
    let expected = [
        (Kind::Allocate, 0, MIB, 0, 0, "weights".to_owned()),
        (Kind::Transfer, 0, MIB, 0, 1, String::new()),
        (Kind::Transfer, 0, MIB, 1, 0, String::new()),
        (Kind::Allocate, 1, 4096, 0, 0, String::new()),
    ];
    assert_eq!(told, expected);
    assert_eq!(frees.iter().map(|event| (event.0, event.1)).collect::<Vec<_>>(), [(Kind::Free, 0), (Kind::Free, 1)]);
    assert_eq!(recorded.events, 6);
}

#[test]
fn buffers_of_many_threads_are_all_there() {
    const CALLS: u64 = 20_000;
    let (directory, path) = directory();
    // Memory for some of the buffers: the rest is evicted to files.
    let manager = Manager::builder().memory(2 * MIB).directory_of(directory.path(), 64 * MIB).build();
    let manager = manager.expect("a manager");
    let recorder = Recorder::start(manager.tracker(), &path).expect("a recorder");
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let manager = &manager;
            scope.spawn(move || {
                let (mut random, mut live) = (Random::new(seed), Vec::new());
                for _ in 0..CALLS {
                    if live.len() == 64 {
                        live.swap_remove(random.below(64) as usize);
                    }
                    let buffer = manager.allocate(1 + random.below(64 << 10)).expect("memory");
                    if random.below(50) == 0 {
                        buffer.write(0, &[1]).expect("written");
                    }
                    live.push(buffer);
                }
            });
        }
    });
    while manager.tracker().total().live_bytes > 0 {
        std::thread::yield_now();
    }
    let recorded = recorder.finish().expect("a file");
    let events = read(&path);
    assert_eq!(recorded.events, events.len() as u64);
    assert_eq!([Kind::Allocate, Kind::Free].map(|kind| count(&events, kind).0), [2 * CALLS; 2]);
}

#[test]
fn a_child_records_nothing_and_leaves_the_file_alone() {
    let (directory, path) = directory();
    let manager = Manager::builder().memory(4 * MIB).build().expect("a manager");
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let recorder = Recorder::start(device.tracker(), &path).expect("a recorder");
    let before = device.allocate(&stream, 4096).expect("memory");
    let tracker = Arc::clone(device.tracker());
    let other = directory.path().join("child.terrace");
    let (recorder, before) = in_child((recorder, before), |(recorder, before)| {
        assert!(!recorder.is_recording() && recorder.events() == 0);
        drop(before);
        tracker.tell_event(Origin::default(), || panic!("nothing is told in a child"));
        assert!(matches!(Recorder::start(&tracker, &other), Err(RecorderError::Forked)));
        assert!(matches!(Recorder::start(manager.tracker(), &other), Err(RecorderError::Forked)));
        assert!(matches!(recorder.finish(), Err(RecorderError::Forked)));
    });
    let recorder = in_child(recorder, drop);
    assert!(recorder.is_recording());
    drop(before);
    assert_eq!(recorder.finish().expect("a file").events, 2);
    assert_eq!(read(&path).len(), 2);
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
}
