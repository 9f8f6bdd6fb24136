//! What a manager's tracker says of its buffers: with the feature `track`.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use terrace_tiers::manager::track::{LiveList, TrackMode, tag};
use terrace_tiers::{BufferOptions, Manager};

const MIB: u64 = 1 << 20;

/// Two tiers: a few MiB of memory, and files.
fn tracked() -> (tempfile::TempDir, Manager) {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::builder().memory(4 * MIB).directory_of(directory.path(), 64 * MIB).build();
    let manager = manager.expect("a manager");
    manager.tracker().set_mode(TrackMode::Records);
    (directory, manager)
}

fn places(manager: &Manager) -> Vec<(String, String)> {
    let mut live = manager.tracker().live();
    live.sort_by_tag();
    live.blocks.into_iter().map(|block| (block.tag, block.location)).collect()
}

#[test]
fn a_buffer_is_listed_in_the_tier_where_it_is_now() {
    let (directory, manager) = tracked();
    let [memory, files] = ["tier 0 (cpu)".to_string(), format!("tier 1 ({})", directory.path().display())];
    let weights = tag("weights");
    let first = manager.allocate(MIB).expect("memory");
    drop(weights);
    let second = {
        let _cache = tag("kv-cache");
        manager.allocate(MIB).expect("memory")
    };
    first.write(0, &[7; 4096]).expect("written");
    let place = |at: &str| places(&manager).into_iter().find(|(tag, _)| tag == at).map(|(_, place)| place);
    assert_eq!([place("weights"), place("kv-cache")], [Some(memory.clone()), Some(memory.clone())]);
    manager.demote(&first, 1).expect("demoted");
    assert_eq!([place("weights"), place("kv-cache")], [Some(files), Some(memory.clone())]);
    manager.promote(&first, 0).expect("promoted");
    assert_eq!(place("weights"), Some(memory));
    assert_eq!(manager.tracker().by_tag().get("weights").map(|stats| stats.live_bytes), Some(MIB));
    drop(first);
    assert_eq!(place("weights"), None);
    drop(second);
    assert_eq!(manager.tracker().total().live_bytes, 0);
}

#[test]
fn a_named_buffer_is_live_until_it_is_removed() {
    let (_directory, manager) = tracked();
    drop(manager.allocate_named("kept", 4096).expect("memory"));
    assert_eq!(manager.tracker().find_older_than(Duration::ZERO).bytes(), 4096);
    manager.remove("kept").expect("removed");
    assert!(manager.tracker().live().is_empty());
    let total = manager.tracker().total();
    assert_eq!((total.allocations, total.frees), (1, 1));
}

#[test]
fn who_waited_for_room_has_the_tag_of_the_request() {
    let manager = Manager::builder().memory(4 * MIB).build().expect("a manager");
    manager.tracker().set_mode(TrackMode::Records);
    let full = manager.allocate(3 * MIB).expect("memory");
    let waiting = {
        let _tag = tag("waited");
        manager.allocate_async(3 * MIB, BufferOptions { wait: true, ..BufferOptions::default() })
    };
    let _other = tag("made room");
    drop(full);
    let buffer = futures_lite::future::block_on(waiting).expect("room");
    let live = manager.tracker().live();
    assert_eq!(live.blocks.iter().map(|block| &*block.tag).collect::<Vec<_>>(), ["waited"]);
    drop(buffer);
}

#[test]
fn a_manager_may_be_switched_while_buffers_live_and_threads_work() {
    let (_directory, manager) = tracked();
    let (sender, receiver) = channel();
    std::thread::scope(|threads| {
        for thread in 0..3usize {
            let (manager, sender) = (&manager, sender.clone());
            threads.spawn(move || {
                for step in 0..200usize {
                    if step % 19 == 0 {
                        manager.tracker().set_mode(TrackMode::ALL[(step + thread) % 4]);
                    }
                    let buffer = manager.allocate(4096 * (1 + step as u64 % 5)).expect("memory");
                    if step % 3 == 0 {
                        sender.send(buffer).expect("a receiver");
                    }
                }
            });
        }
        drop(sender);
        threads.spawn(move || receiver.into_iter().for_each(drop));
    });
    let (tracker, total) = (manager.tracker(), manager.tracker().total());
    assert!(total.allocations > 0 && total.allocations < 600, "{total:?}");
    assert_eq!((total.live_blocks(), total.live_bytes, tracker.recorded()), (0, 0, 0));
    assert_eq!(manager.check(), Ok(()));
}

#[test]
fn what_was_allocated_before_is_left_alone() {
    let manager = Manager::builder().memory(4 * MIB).build().expect("a manager");
    let before = manager.allocate(4096).expect("memory");
    assert_eq!(manager.tracker().total().allocations, 0);
    manager.tracker().set_mode(TrackMode::Records);
    let after = manager.allocate(4096).expect("memory");
    drop(before);
    assert_eq!((manager.tracker().total().frees, manager.tracker().recorded()), (0, 1));
    drop(after);
    assert_eq!((manager.tracker().total().frees, manager.tracker().recorded()), (1, 0));
}

#[test]
fn a_manager_that_ends_lists_the_named_buffers_that_nothing_removed() {
    let (sender, receiver) = channel::<LiveList>();
    let manager = Manager::builder().memory(4 * MIB).build().expect("a manager");
    manager.tracker().set_mode(TrackMode::Records);
    manager.tracker().report_leaks(Box::new(move |live| _ = sender.send(live.clone())));
    drop(manager.allocate_named("forgotten", 4096).expect("memory"));
    let tracker = Arc::downgrade(manager.tracker());
    drop(manager);
    let told = receiver.recv_timeout(Duration::from_secs(20)).expect("a report");
    assert_eq!((told.name.as_str(), told.bytes(), &*told.blocks[0].location), ("manager", 4096, "manager"));
    assert!(tracker.upgrade().is_none(), "the tracker ends with its manager");
}

#[test]
fn what_a_restart_recovered_is_not_tracked_whenever_it_is_opened() {
    let (directory, first) = tracked();
    first.sync(&first.allocate_named("kept", 4096).expect("memory")).expect("durable");
    drop(first);
    let second =
        Manager::builder().memory(4 * MIB).directory_of(directory.path(), 64 * MIB).build().expect("a manager");
    second.tracker().set_mode(TrackMode::Records);
    drop(second.open("kept").expect("it is there"));
    assert!(second.tracker().live().is_empty());
    second.remove("kept").expect("removed");
    let total = second.tracker().total();
    assert_eq!((total.allocations, total.frees), (0, 0));
}
