//! Durable buffers between a start and their first use: they count, are listed and keep their names.
#![cfg(target_os = "linux")]

use crate::patterns;

use patterns::{holds, pattern};
use std::path::Path;
use std::sync::Barrier;
use terrace_tiers::ledger::{PlacementHint, Refusal, RefusalReason, TenantQuota};
use terrace_tiers::manager::{BufferInfo, ManagerBuilder};
use terrace_tiers::{BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;

/// Bytes of each buffer: in part of a page, in pages, in several chunks.
const SIZES: [u64; 6] = [1, 100, 4096, 5000, CHUNK + 1, 3 * CHUNK];

fn builder(path: &Path) -> ManagerBuilder {
    let capped = TenantQuota { cap: MIB, ..TenantQuota::UNLIMITED };
    Manager::builder()
        .memory(4 * MIB)
        .directory_of(path, 64 * MIB)
        .chunk(CHUNK as usize)
        .tenant(TenantQuota::UNLIMITED)
        .tenant(capped)
}

fn build(path: &Path) -> Manager {
    builder(path).build().expect("it is built")
}

fn in_files(name: &str, tenant: u16) -> BufferOptions {
    let hint = PlacementHint { tier: Some(1), keep: false };
    BufferOptions { name: Some(name.into()), tenant, hint, ..BufferOptions::default() }
}

fn name(which: usize) -> String {
    format!("buffer {which}")
}

/// Makes buffers of all sizes durable, those with odd numbers for the second tenant. They are in files alone.
fn fill(manager: &Manager) {
    for (which, bytes) in SIZES.into_iter().enumerate() {
        let buffer = manager.allocate_with(bytes, in_files(&name(which), which as u16 % 2)).expect("room");
        buffer.write(0, &pattern(which as u8, bytes)).expect("written");
        manager.sync(&buffer).expect("durable");
    }
}

/// What a user can learn of all buffers: the list by name, the bytes of files, and those that the second tenant has left.
fn seen(manager: &Manager) -> (Vec<BufferInfo>, u64, u64, u64) {
    manager.check().expect("sound");
    let mut list = manager.list();
    list.sort_by(|one, other| one.name.cmp(&other.name));
    let tiers = manager.tiers();
    let asked = manager.allocate_with(MIB, BufferOptions { tenant: 1, ..BufferOptions::default() }).map(drop);
    let Err(Error::Refused(Refusal { reason: RefusalReason::OverCap, largest, .. })) = asked else {
        panic!("the second tenant has less than its cap: {asked:?}")
    };
    (list, tiers[1].view.used, tiers[0].view.capacity, largest)
}

#[test]
fn they_count_and_are_listed_as_they_were() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = build(directory.path());
    fill(&first);
    let before = seen(&first);
    let pages: u64 = SIZES.iter().map(|bytes| bytes.next_multiple_of(4096)).sum();
    let second_tenant: u64 = SIZES.iter().skip(1).step_by(2).sum();
    assert_eq!((before.0.len(), before.1, before.3), (SIZES.len(), pages, MIB - second_tenant));
    drop(first);
    let second = build(directory.path());
    assert_eq!(seen(&second), before, "before any is opened");
    for which in 0..SIZES.len() {
        holds(&second.open(&name(which)).expect("it is there"), which as u8);
        assert_eq!(seen(&second), before, "after {which} was opened");
    }
    assert_eq!(second.open("buffer").map(drop), Err(Error::NoSuchName("buffer".into())));
}

#[test]
fn a_buffer_takes_no_room_and_no_name_of_one_that_is_not_open() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&build(directory.path()));
    let second = build(directory.path());
    let view = second.tiers()[1].view;
    assert!(view.used > 0);
    let room = view.capacity - view.used;
    let refused = second.allocate_with(room + 1, in_files("new", 0)).map(drop);
    assert!(
        matches!(refused, Err(Error::Refused(Refusal { reason: RefusalReason::NoRoom, largest, .. })) if largest == room),
        "{refused:?}, {view:?}"
    );
    let new = second.allocate_with(room, in_files("new", 0)).expect("all that is left");
    assert_eq!(second.tiers()[1].view.used, view.capacity);
    for which in 0..SIZES.len() {
        assert_eq!(second.allocate_named(&name(which), 1).map(drop), Err(Error::NameTaken(name(which))));
    }
    drop(new);
    (0..SIZES.len()).for_each(|which| holds(&second.open(&name(which)).expect("it is there"), which as u8));
}

#[test]
fn all_that_open_one_at_once_get_the_same_buffer() {
    const THREADS: usize = 4;
    let directory = tempfile::tempdir().expect("a directory");
    fill(&build(directory.path()));
    for round in 0..20 {
        let (second, begin) = (build(directory.path()), Barrier::new(THREADS));
        let open = |_| {
            begin.wait();
            second.open(&name(3)).expect("it is there")
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || open(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        opened[0].write(0, &[round; 5]).expect("written");
        for other in &opened {
            let mut read = [0; 5];
            other.read(0, &mut read).expect("read");
            assert_eq!(read, [round; 5]);
        }
        assert_eq!(second.list().len(), SIZES.len());
        second.check().expect("sound");
    }
}

#[test]
fn one_is_removed_without_having_been_opened() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&build(directory.path()));
    let second = build(directory.path());
    let (list, used, memory, left) = seen(&second);
    second.remove(&name(3)).expect("removed");
    let after = seen(&second);
    let others: Vec<_> = list.into_iter().filter(|one| one.name != Some(name(3))).collect();
    assert_eq!((after.0, after.1, after.3), (others.clone(), used - 2 * 4096, left + SIZES[3]));
    assert!(after.2 >= memory);
    assert_eq!(second.remove(&name(3)), Err(Error::NoSuchName(name(3))));
    second.allocate_named(&name(3), 7).expect("the name is free");
    drop(second);
    assert_eq!(seen(&build(directory.path())).0, others);
}

#[test]
fn those_that_no_run_opened_stay_durable_beside_those_that_were_written() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&build(directory.path()));
    for (run, bytes) in SIZES.into_iter().enumerate().take(3) {
        let manager = build(directory.path());
        let buffer = manager.open(&name(run)).expect("it is there");
        manager.promote(&buffer, 0).expect("memory");
        buffer.write(0, &pattern(100 + run as u8, bytes)).expect("written");
        manager.sync(&buffer).expect("durable");
        manager
            .sync(&manager.allocate_with(10, in_files(&format!("of run {run}"), 0)).expect("room"))
            .expect("durable");
        assert_eq!(manager.list().len(), SIZES.len() + run + 1);
    }
    let last = build(directory.path());
    for which in 0..SIZES.len() {
        let seed = if which < 3 { 100 + which as u8 } else { which as u8 };
        holds(&last.open(&name(which)).expect("it is there"), seed);
    }
    assert_eq!(last.list().len(), SIZES.len() + 3, "and no object of a later run has the number of an earlier one's");
}

#[test]
fn two_directories_with_a_buffer_of_one_name_are_no_manager() {
    let (first, second) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    fill(&build(first.path()));
    let other = build(second.path());
    other.sync(&other.allocate_named("other", 5).expect("room")).expect("durable");
    let both = || builder(first.path()).directory_of(second.path(), 64 * MIB).build();
    drop(other);
    let together = both().expect("all names differ");
    assert_eq!(together.list().len(), SIZES.len() + 1);
    let opened = ["other", &name(5)].map(|name| together.open(name).expect("it is there").bytes());
    assert_eq!(opened, [5, SIZES[5]]);
    drop(together);
    let other = build(second.path());
    other.sync(&other.allocate_named(&name(5), 5).expect("room")).expect("durable");
    drop(other);
    assert_eq!(both().map(drop), Err(Error::Twice(name(5))));
}

#[test]
fn they_count_where_memory_describes_no_more_buffers() {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&build(directory.path()));
    let small =
        || Manager::builder().memory(CHUNK).directory_of(directory.path(), 64 * MIB).chunk(CHUNK as usize).build();
    let second = small().expect("all are described");
    let mut held = Vec::new();
    let full = loop {
        match second.allocate_with(1, BufferOptions { hint: in_files("", 0).hint, ..BufferOptions::default() }) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::TooMany { buffers: SIZES.len() + held.len() });
    (0..SIZES.len()).for_each(|which| holds(&second.open(&name(which)).expect("it was described"), which as u8));
    second.check().expect("sound");
}
