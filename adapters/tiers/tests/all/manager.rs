//! The manager on real files.
#![cfg(target_os = "linux")]

use crate::patterns;

use patterns::{holds, pattern};
use std::path::Path;
use std::time::Duration;
use terrace_file::{EngineKind, StoreError};
use terrace_tests::Random;
use terrace_tiers::ledger::{Refusal, RefusalReason};
use terrace_tiers::manager::ManagerBuilder;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

fn builder(path: &Path) -> ManagerBuilder {
    Manager::builder().memory(4 * MIB).directory_of(path, 64 * MIB).chunk(256 << 10)
}

fn manager(path: &Path) -> Manager {
    builder(path).build().expect("it is built")
}

#[test]
fn more_than_the_memory_holds_is_kept_right_in_files_by_either_engine() {
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = builder(directory.path()).engine(engine).build().expect("it is built");
        // 30 MiB, of which 4 fit.
        let buffers: Vec<Buffer> = (0..30).map(|_| manager.allocate(MIB + 1000).expect("room")).collect();
        for (seed, buffer) in buffers.iter().enumerate() {
            let mut zeros = vec![1; 5000];
            buffer.read(MIB - 4000, &mut zeros).expect("read");
            assert!(zeros.iter().all(|byte| *byte == 0), "nothing was written");
            buffer.write(0, &pattern(seed as u8, buffer.bytes())).expect("written");
        }
        for _ in 0..2 {
            for (seed, buffer) in buffers.iter().enumerate() {
                holds(buffer, seed as u8);
            }
        }
        for (seed, buffer) in buffers.iter().enumerate().rev() {
            let lease = buffer.lease_best().expect("memory");
            assert!(lease[..] == pattern(seed as u8, buffer.bytes())[..]);
        }
        manager.check().expect("sound");
        let tiers = manager.tiers();
        assert!(tiers[0].view.used <= 4 * MIB && tiers[1].view.used >= 20 * MIB, "{tiers:?}");
        drop(buffers);
        manager.check().expect("sound");
        assert_eq!(manager.tiers()[0].view.used, 0);
        assert_eq!(manager.list(), []);
    }
}

#[test]
fn writes_of_parts_are_seen_wherever_the_bytes_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = manager(directory.path());
    // Larger than all memory: it lives in files.
    let large = manager.allocate(10 * MIB).expect("room");
    let mut model = vec![0; 10 * MIB as usize];
    let mut random = Random::new(12345);
    for round in 0..60u64 {
        let offset = random.below(9 * MIB);
        let part = pattern(round as u8, random.below(1 << 19));
        large.write(offset, &part).expect("written");
        model[offset as usize..offset as usize + part.len()].copy_from_slice(&part);
    }
    let mut read = vec![0; model.len()];
    large.read(0, &mut read).expect("read");
    assert!(read == model);
    assert!(matches!(large.lease_best(), Err(Error::NoTier(_))));
    // Small ones are pushed out and in again between writes.
    let small = manager.allocate(MIB).expect("room");
    small.write(0, &pattern(1, MIB)).expect("written");
    manager.demote(&small, 1).expect("there is a tier below");
    small.write(300_000, &[9; 10]).expect("written");
    manager.promote(&small, 0).expect("there is room");
    small.write(600_000, &[8; 10]).expect("written");
    manager.demote(&small, 1).expect("there is a tier below");
    let mut expected = pattern(1, MIB);
    expected[300_000..300_010].fill(9);
    expected[600_000..600_010].fill(8);
    let mut read = vec![0; MIB as usize];
    small.read(0, &mut read).expect("read");
    assert!(read == expected);
    manager.check().expect("sound");
}

#[test]
fn what_was_synced_is_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = manager(directory.path());
    for seed in 0..6u8 {
        let buffer = first.allocate_named(&format!("weights {seed}"), 2 * MIB + 77).expect("room");
        buffer.write(0, &pattern(seed, buffer.bytes())).expect("written");
        first.sync(&buffer).expect("durable");
        if seed == 4 {
            // Not synced: the restart finds what was.
            buffer.write(0, &[255; 1000]).expect("written");
        }
    }
    first.allocate_named("never synced", MIB).expect("room");
    first.remove("weights 5").expect("removed");
    assert!(first.list().iter().filter(|listed| listed.durable).count() == 4);
    drop(first);
    let second = manager(directory.path());
    for seed in 0..5 {
        let buffer = second.open(&format!("weights {seed}")).expect("it is there");
        holds(&buffer, seed);
        buffer.lease_mut().expect("memory")[17] ^= 1;
        second.sync(&buffer).expect("durable");
    }
    for gone in ["weights 5", "never synced"] {
        assert_eq!(second.open(gone).map(drop), Err(Error::NoSuchName(gone.into())));
    }
    drop(second);
    let third = manager(directory.path());
    let buffer = third.open("weights 3").expect("it is there");
    let mut expected = pattern(3, buffer.bytes());
    expected[17] ^= 1;
    assert!(buffer.lease_best().expect("memory")[..] == expected[..]);
}

#[test]
fn a_lease_keeps_bytes_where_they_are_and_others_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = builder(directory.path()).pinned_cap(2 * MIB).build().expect("it is built");
    let one = manager.allocate(MIB).expect("room");
    one.write(0, &pattern(1, MIB)).expect("written");
    let lease = one.lease_best().expect("memory");
    assert_eq!(one.write(0, &[1]), Err(Error::Leased));
    assert!(matches!(one.lease_mut(), Err(Error::Leased)));
    let again = one.lease_best().expect("shared");
    // Everything else is evicted, this is not.
    let others: Vec<Buffer> = (0..8).map(|_| manager.allocate(MIB).expect("room")).collect();
    others.iter().for_each(|other| other.write(0, &[3; 1000]).expect("written"));
    assert!(lease[..] == pattern(1, MIB)[..] && again[0] == lease[0]);
    let two = others[7].lease_best().expect("2 MiB");
    let third = others[6].lease_best().map(drop);
    assert!(matches!(third, Err(Error::PinnedCap { asked: MIB, pinned, cap }) if pinned == cap), "{third:?}");
    // Calls are not leases.
    others[..7].iter().for_each(|other| other.write(0, &[4; 1000]).expect("written"));
    others[5].read(0, &mut [0; 10]).expect("read");
    assert!(matches!(others[6].lease_best(), Err(Error::PinnedCap { .. })));
    drop(two);
    others[6].lease_best().expect("the cap counts what is leased");
    drop((lease, again));
    let mut lease = one.lease_mut().expect("alone");
    lease[5] = 77;
    let mut byte = [0];
    assert_eq!(one.read(5, &mut byte), Err(Error::Leased));
    drop(lease);
    one.read(5, &mut byte).expect("read");
    assert_eq!(byte, [77]);
}

#[test]
fn bad_input_is_an_error_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = manager(directory.path());
    let refused = |asked: u64| manager.allocate(asked).map(drop);
    assert!(matches!(refused(0), Err(Error::Refused(Refusal { reason: RefusalReason::Empty, .. }))));
    assert!(
        matches!(refused(1 << 40), Err(Error::Refused(Refusal { reason: RefusalReason::TooLarge, largest, .. })) if largest > 0)
    );
    let buffer = manager.allocate_named("one", MIB).expect("room");
    for (offset, bytes) in [(MIB, 1), (MIB - 1, 2), (u64::MAX, 1)] {
        let outside = Error::OutOfBounds { offset, bytes, of: MIB };
        assert_eq!(buffer.read(offset, &mut vec![0; bytes as usize]), Err(outside.clone()));
        assert_eq!(buffer.write(offset, &vec![0; bytes as usize]), Err(outside));
    }
    buffer.read(MIB, &mut []).expect("nothing is inside");
    assert_eq!(manager.allocate_named("one", 1).map(drop), Err(Error::NameTaken("one".into())));
    assert!(matches!(manager.allocate_named("", 1), Err(Error::BadName { bytes: 0, .. })));
    assert!(matches!(manager.allocate_named(&"x".repeat(2000), 1), Err(Error::BadName { bytes: 2000, .. })));
    assert_eq!(manager.sync(&manager.allocate(1).expect("room")), Err(Error::Unnamed));
    assert!(matches!(manager.promote(&buffer, 7), Err(Error::Rejected(_))));
    let lease = buffer.lease_best().expect("memory");
    assert_eq!(manager.remove("one"), Err(Error::Leased));
    drop(lease);
    manager.remove("one").expect("removed");
    assert!(matches!(buffer.lease_best(), Err(Error::Freed)));
    assert_eq!(buffer.read(0, &mut [0]), Err(Error::Freed));
    assert_eq!(buffer.write(0, &[0]), Err(Error::Freed));
    assert_eq!(manager.sync(&buffer), Err(Error::Freed));
    assert_eq!((manager.promote(&buffer, 0), manager.demote(&buffer, 1)), (Err(Error::Freed), Err(Error::Freed)));
    let second = builder(directory.path()).build().map(drop);
    assert!(matches!(second, Err(Error::Store(StoreError::Fault(_)))), "one manager a directory");
    let bad = |builder: ManagerBuilder| builder.build().map(drop).expect_err("it cannot be");
    let home = tempfile::tempdir().expect("a directory");
    assert!(matches!(bad(Manager::builder().memory(0)), Error::Setup(_)));
    assert!(matches!(bad(Manager::builder().directory_of(home.path(), 0)), Error::BadSetting(_)));
    assert!(matches!(bad(builder(home.path()).chunk(1000)), Error::BadSetting(_)));
    for bytes in [u64::MAX, 1 << 62] {
        assert!(matches!(bad(Manager::builder().memory(bytes)), Error::Memory(_)));
    }
    let vast =
        builder(home.path()).directory_of(home.path().join("vast"), 1 << 60).build().expect("nothing is made yet");
    let largest = (256 << 10) << 24;
    let many = Refusal { reason: RefusalReason::TooLarge, requested: largest + 1, largest };
    assert_eq!(vast.allocate(largest + 1).map(drop), Err(Error::Refused(many)));
    assert!(matches!(bad(Manager::builder().directory("/proc/nothing")), Error::Store(StoreError::Fault(_))));
    manager.check().expect("sound");
}

#[test]
fn a_future_that_is_not_awaited_still_runs_and_a_buffer_without_receiver_is_freed() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = manager(directory.path());
    let buffer = manager.allocate(8 * MIB).expect("in files");
    drop(buffer.write_async(100, vec![5; 1000]));
    // Writes to files wait for each other.
    buffer.write(5000, &[6]).expect("written");
    let mut byte = [0];
    buffer.read(100, &mut byte).expect("read");
    assert_eq!(byte, [5]);
    drop(manager.allocate_async(MIB, BufferOptions::default()));
    let waiting = BufferOptions { wait: true, ..BufferOptions::default() };
    let all = manager.tiers()[1].view.capacity;
    let held = manager.allocate(all - manager.tiers()[1].view.used - MIB).expect("the rest");
    let next = manager.allocate_async(4 * MIB, waiting.clone());
    let after = manager.allocate_async(MIB, waiting);
    drop(held);
    assert!(futures_lite::future::block_on(next).is_ok());
    assert!(after.wait().is_ok());
    drop(buffer);
    manager.check().expect("sound");
}

#[test]
fn nothing_is_left_when_the_last_handle_is_gone() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let directory = tempfile::tempdir().expect("a directory");
    let ours = |path: &Path| {
        let maps = std::fs::read_dir("/proc/self/fd").expect("files").flatten();
        maps.filter_map(|entry| std::fs::read_link(entry.path()).ok()).filter(|file| file.starts_with(path)).count()
    };
    let built = manager(directory.path());
    let buffer = built.allocate(MIB).expect("room");
    assert!(ours(directory.path()) > 0 && threads() > 1);
    drop(built);
    buffer.write(0, &[1]).expect("a buffer keeps what it needs");
    drop(buffer);
    assert_eq!(ours(directory.path()), 0);
    manager(directory.path());
}

#[test]
fn a_buffer_that_is_read_can_be_synced_and_one_that_is_written_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = builder(directory.path()).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let buffer = manager.allocate_named("read", MIB).expect("room");
    buffer.write(0, &pattern(1, MIB)).expect("written");
    let lease = buffer.lease_best().expect("memory");
    manager.sync(&buffer).expect("durable, while it is read");
    assert!(lease[..] == pattern(1, MIB)[..]);
    assert_eq!(manager.demote(&buffer, 1), Err(Error::Leased));
    drop(lease);
    let written = buffer.lease_mut().expect("alone");
    assert_eq!(manager.sync(&buffer), Err(Error::Leased));
    drop(written);
    manager.demote(&buffer, 1).expect("no reader is active");
    // Without ticks: releasing the lease that blocked a copy notifies the manager.
    let lease = buffer.lease_best().expect("memory");
    let large = manager.allocate_async(4 * MIB, BufferOptions { wait: true, ..BufferOptions::default() });
    drop(lease);
    large.wait().expect("room");
    manager.check().expect("sound");
    drop(manager);
    holds(&self::manager_after(buffer, directory.path()), 1);
}

/// The buffer, found by another manager.
fn manager_after(buffer: Buffer, path: &Path) -> Buffer {
    let name = buffer.name().expect("it has one").to_string();
    drop(buffer);
    manager(path).open(&name).expect("it is there")
}

#[test]
fn many_threads_write_sync_and_read_what_they_wrote() {
    for engine in [EngineKind::Best, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = builder(directory.path()).engine(engine).build().expect("it is built");
        let shared = manager.allocate_named("shared", MIB).expect("room");
        std::thread::scope(|scope| {
            for thread in 0..6u8 {
                let (manager, shared) = (&manager, &shared);
                scope.spawn(move || {
                    let own = manager.allocate_named(&format!("own {thread}"), MIB + 5).expect("room");
                    for round in 0..8 {
                        let seed = thread * 10 + round;
                        own.write(0, &pattern(seed, own.bytes())).expect("written");
                        // Each thread writes its part of the same buffer.
                        shared.write(u64::from(thread) * 1000, &[seed; 1000]).expect("written");
                        if round % 2 == 0 {
                            manager.sync(&own).expect("durable");
                            manager.sync(shared).expect("durable");
                        }
                        holds(&own, seed);
                        let mut part = vec![0; 1000];
                        shared.read(u64::from(thread) * 1000, &mut part).expect("read");
                        assert_eq!(part, [seed; 1000]);
                    }
                    manager.sync(&own).expect("durable");
                });
            }
        });
        manager.sync(&shared).expect("durable");
        manager.check().expect("sound");
        drop((shared, manager));
        let manager = builder(directory.path()).build().expect("it is built");
        for thread in 0..6u8 {
            holds(&manager.open(&format!("own {thread}")).expect("it is there"), thread * 10 + 7);
            let mut part = vec![0; 1000];
            manager.open("shared").expect("there").read(u64::from(thread) * 1000, &mut part).expect("read");
            assert_eq!(part, [thread * 10 + 7; 1000]);
        }
    }
}

#[test]
fn what_is_empty_is_given_back_by_maintenance() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = builder(directory.path()).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let buffers: Vec<Buffer> = (0..30).map(|_| manager.allocate(MIB).expect("room")).collect();
    buffers.iter().for_each(|buffer| buffer.write(0, &pattern(1, MIB)).expect("written"));
    let disk = || manager.tiers()[1].files.expect("files").disk;
    let full = disk();
    drop(buffers);
    assert_eq!(disk(), full, "no maintenance ran");
    // Forty ticks make one compaction, which is a task.
    let begun = std::time::Instant::now();
    let mut now = 0;
    while disk() >= full / 4 && begun.elapsed() < Duration::from_secs(20) {
        manager.tick(now);
        now += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(disk() < full / 4, "{} of {full}", disk());
}

#[test]
fn a_named_buffer_whose_allocation_nobody_awaits_is_freed_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = manager(directory.path());
    let options = || BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
    for _ in 0..3 {
        let allocated = manager.allocate_async(4096, options());
        // It is there, whether or not the future says so.
        while manager.list().is_empty() {
            std::thread::yield_now();
        }
        drop(allocated);
        assert_eq!(manager.list(), []);
    }
    drop(manager.allocate_with(4096, options()).expect("the name is free"));
    assert_eq!(manager.list().len(), 1, "what was delivered stays until it is removed");
    manager.check().expect("sound");
}

#[test]
fn memory_grows_to_no_more_than_it_was_built_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager =
        Manager::builder().memory(8 * MIB).directory_of(directory.path(), 128 * MIB).build().expect("it is built");
    manager.resize(0, 2 * MIB).expect("a tier");
    manager.resize(0, u64::MAX).expect("a tier");
    assert_eq!(manager.tiers()[0].view.capacity, 8 * MIB);
    let large = manager.allocate(20 * MIB).expect("in files");
    large.write(0, &[7; 5]).expect("written");
}
