//! What tiers of memory hold while other programs need the memory, and after: facts of machines as copied files.
#![cfg(target_os = "linux")]

use crate::detect::world::World;
use std::time::Duration;
use tempfile::TempDir;
use terrace_device::{Device, DeviceBuffer};
use terrace_tiers::ledger::RefusalReason;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager, ManagerBuilder, Preset};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// MiB that a manager may still take for itself: 8 of staging memory, and 4.
const OWN: u64 = 12;

/// `/proc/meminfo` of a machine of 4 GiB: a thirty-second of that, 128 MiB, is for others. `mib`: what is left beside what
/// the manager itself may take.
fn available(world: World, mib: u64) -> World {
    available_kib(world, mib << 10)
}

fn available_kib(world: World, kib: u64) -> World {
    let kib = kib + (OWN << 10);
    world.file("proc/meminfo", &format!("MemTotal: {} kB\nMemAvailable: {kib} kB\n", 4 << 20))
}

fn stalled(world: World, percent: &str) -> World {
    let lines = format!(
        "some avg10={percent} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    );
    world.file("proc/pressure/memory", &lines)
}

/// A manager with 64 MiB of memory above files, which looks at this world.
fn manager(world: &World) -> (TempDir, Manager) {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(64 * MIB).directory_of(directory.path(), GIB).system_root(world.root());
    // What follows from a part of the memory is looked at by itself.
    let manager = builder.min_free(0).maintenance_interval(Duration::ZERO).build().expect("it is built");
    (directory, manager)
}

/// So many looks at the machine: four ticks each.
fn look(manager: &Manager, looks: u64) {
    let now = manager.tiers()[0].view.suspended_until.unwrap_or(0);
    (0..4 * looks).for_each(|_| manager.tick(now));
}

fn capacity(manager: &Manager) -> u64 {
    manager.tiers()[0].view.capacity
}

fn filled(manager: &Manager, mib: u64) -> Vec<Buffer> {
    let one = |at: u64| {
        let buffer = manager.allocate(MIB).expect("room");
        buffer.write(0, &vec![at as u8; MIB as usize]).expect("written");
        buffer
    };
    (0..mib).map(one).collect()
}

/// Waits until copies have made the tier as small as it must be.
fn until_it_fits(manager: &Manager) {
    let manager = manager.clone();
    terrace_tests::hung::bounded(move || {
        while manager.tiers()[0].view.used > capacity(&manager) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn memory_shrinks_when_others_need_it_and_grows_back() {
    let world = available(World::new(), 1000);
    let (_directory, manager) = manager(&world);
    let buffers = filled(&manager, 60);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 64 * MIB, "there is enough for all");
    // 60 MiB are held and 98 left: 30 too few for others.
    let world = available(world, 98);
    look(&manager, 1);
    let shrunk = capacity(&manager);
    assert!((28 * MIB..=34 * MIB).contains(&shrunk), "{shrunk}");
    until_it_fits(&manager);
    assert!(buffers.iter().enumerate().all(|(at, buffer)| buffer.lease_best().expect("room")[7] == at as u8));
    // Nothing is left: an eighth of the limit remains.
    let world = available(world, 0);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 8 * MIB);
    // Others are gone: the tier grows by an eighth of its limit at each look.
    let _world = available(world, 1000);
    for step in 2..=8 {
        look(&manager, 1);
        assert_eq!(capacity(&manager), step * 8 * MIB);
    }
    manager.check().expect("sound");
}

#[test]
fn a_buffer_that_fits_the_limit_is_not_too_large_while_others_need_memory() {
    let world = available(World::new(), 1000);
    let (_directory, manager) = manager(&world);
    let large = manager.allocate(32 * MIB).expect("room");
    large.write(0, &[7; 100]).expect("written");
    let world = available(world, 0);
    look(&manager, 1);
    until_it_fits(&manager);
    assert_eq!((capacity(&manager), manager.tiers()[0].view.limit), (8 * MIB, 64 * MIB));
    let refused = large.lease_best().map(drop);
    assert_eq!(refused, Err(Error::NoRoom { tier: 0 }), "for now");
    let alone = Manager::builder().memory(64 * MIB).system_root(world.root()).maintenance_interval(Duration::ZERO);
    let alone = alone.build().expect("it is built");
    look(&alone, 1);
    let refused = alone.allocate(32 * MIB).map(drop);
    let reason = |error: &Error| matches!(error, Error::Refused(refusal) if refusal.reason == RefusalReason::NoRoom);
    assert!(refused.as_ref().is_err_and(reason), "{refused:?}");
    let waits = alone.allocate_async(32 * MIB, BufferOptions { wait: true, ..BufferOptions::default() });
    let _world = available(world, 1000);
    look(&manager, 8);
    look(&alone, 8);
    assert_eq!(large.lease_best().map(|lease| lease[7]), Ok(7));
    waits.wait().expect("it has waited");
    assert_eq!(manager.check().and_then(|()| alone.check()), Ok(()));
}

#[test]
fn what_leaves_goes_back_to_the_system() {
    let world = available(World::new(), 1000);
    let (_directory, manager) = manager(&world);
    let _buffers = filled(&manager, 60);
    let _world = available(world, 0);
    look(&manager, 1);
    until_it_fits(&manager);
    look(&manager, 1);
    // The manager counts what it holds, not what it may: what it gave back is available to others, and to itself.
    assert_eq!(capacity(&manager), 8 * MIB);
    manager.check().expect("sound");
}

#[test]
fn memory_that_was_never_touched_is_not_held() {
    // 128 MiB are for others, and 20 are left.
    let world = available(World::new(), 148);
    let (_directory, manager) = manager(&world);
    // Two huge pages of staging memory are touched or not, as I/O ends sooner or later: what is touched is not left free.
    let holds = |bytes: u64| {
        let capacity = capacity(&manager);
        assert!((bytes..=bytes + 4 * MIB).contains(&capacity), "{capacity} instead of {bytes}");
    };
    let buffers: Vec<Buffer> = (0..16).map(|_| manager.allocate(MIB).expect("room")).collect();
    look(&manager, 1);
    // The system counts it as available.
    holds(20 * MIB);
    buffers.iter().for_each(|buffer| buffer.write(0, &[1; 100]).expect("written"));
    look(&manager, 2);
    // It is held, and so much more is available, says this system.
    holds(36 * MIB);
    drop(buffers);
    manager.check().expect("sound");
}

#[test]
fn what_was_freed_and_not_given_back_yet_is_held() {
    let world = available(World::new(), 1000);
    let (_directory, manager) = manager(&world);
    drop(filled(&manager, 20));
    let _world = available(world, 148);
    look(&manager, 1);
    // 128 MiB are for others, and 20 are left beside the 20 that the system does not have back.
    assert!((38 * MIB..=42 * MIB).contains(&capacity(&manager)), "{}", capacity(&manager));
}

#[test]
fn tasks_that_wait_for_memory_are_left_more() {
    // 160 MiB are left beside nothing held: 128 for others, or 256 at a tenth of the time stalled.
    let world = stalled(available(World::new(), 160), "0.00");
    let (_directory, manager) = manager(&world);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 32 * MIB);
    let world = stalled(world, "2.50");
    look(&manager, 1);
    assert_eq!(capacity(&manager), 8 * MIB, "the least");
    let _world = stalled(world, "0.00");
    look(&manager, 3);
    assert_eq!(capacity(&manager), 32 * MIB);
}

#[test]
fn control_groups_of_both_versions_bound_the_budget() {
    let (second, first) = ("sys/fs/cgroup/job", "sys/fs/cgroup/memory/job");
    let limited = |bytes: u64| {
        available(World::new(), 3000)
            .mount("0:20 /sys/fs/cgroup cgroup2 cgroup2 rw")
            .file("proc/self/cgroup", "0::/job\n")
            .file(&format!("{second}/memory.max"), &format!("{}\n", 320 * MIB))
            .file(&format!("{second}/memory.current"), &format!("{bytes}\n"))
    };
    // 320 MiB, of which 10 are for other programs of the group.
    let world = limited(100 * MIB);
    let (_directory, of_second) = manager(&world);
    look(&of_second, 1);
    assert_eq!(capacity(&of_second), 64 * MIB);
    let world = world.file(&format!("{second}/memory.current"), &format!("{}\n", (270 - OWN) * MIB));
    look(&of_second, 1);
    assert_eq!(capacity(&of_second), 40 * MIB);
    let stall = "some avg10=10.00 avg60=0.00 avg300=0.00 total=1\n";
    let _world = world.file(&format!("{second}/memory.pressure"), stall);
    look(&of_second, 1);
    assert_eq!(capacity(&of_second), 30 * MIB, "the group waits for memory");

    let world = available(World::new(), 3000)
        .mount("0:31 /sys/fs/cgroup/memory cgroup cgroup rw,memory")
        .file("proc/self/cgroup", "4:memory:/job\n")
        .file(&format!("{first}/memory.limit_in_bytes"), &format!("{}\n", 320 * MIB))
        .file(&format!("{first}/memory.usage_in_bytes"), &format!("{}\n", (290 - OWN) * MIB));
    let (_directory, of_first) = manager(&world);
    look(&of_first, 1);
    assert_eq!(capacity(&of_first), 20 * MIB);
}

#[test]
fn what_a_tier_keeps_is_a_part_of_the_memory_that_there_is() {
    let group = "sys/fs/cgroup/job";
    let world = available(World::new(), 3000)
        .mount("0:20 /sys/fs/cgroup cgroup2 cgroup2 rw")
        .file("proc/self/cgroup", "0::/job\n")
        .file(&format!("{group}/memory.max"), &format!("{}\n", 128 * MIB))
        .file(&format!("{group}/memory.current"), &format!("{}\n", 127 * MIB));
    let builder = Manager::builder().memory(GIB).system_root(world.root()).min_free(0);
    let builder = builder.maintenance_interval(Duration::ZERO);
    let manager = builder.build().expect("it is built");
    assert_eq!(capacity(&manager), 16 * MIB, "an eighth of the group's memory, not of the limit");
    // 75 MiB are left beside 4 for others, and the tier follows changes of a sixty-fourth of the group's memory.
    for (used, step) in
        [(125 - OWN, 16), (49 - OWN, 32), (49 - OWN, 48), (52 - OWN, 64), (52 - OWN, 72), (55 - OWN, 69)]
    {
        let file = world.root().join(group).join("memory.current");
        std::fs::write(file, format!("{}\n", used * MIB)).expect("written");
        look(&manager, 1);
        assert_eq!(capacity(&manager), step * MIB, "{used}");
    }
}

#[test]
fn a_system_that_says_nothing_changes_nothing() {
    let world = World::new();
    let (_directory, manager) = manager(&world);
    look(&manager, 2);
    assert_eq!(capacity(&manager), 64 * MIB);
}

#[test]
fn a_limit_of_the_user_and_the_budget_hold_together() {
    let world = available(World::new(), 168);
    let (_directory, manager) = manager(&world);
    assert_eq!(capacity(&manager), 40 * MIB, "before the first allocation");
    manager.resize(0, 64 * MIB).expect("a limit");
    assert_eq!(capacity(&manager), 40 * MIB, "a user's limit does not make memory");
    manager.resize(0, 16 * MIB).expect("a limit");
    assert_eq!(capacity(&manager), 16 * MIB);
    look(&manager, 1);
    manager.resize(0, 64 * MIB).expect("a limit");
    assert_eq!(capacity(&manager), 40 * MIB, "nor does one that was lower for a while");
}

#[test]
fn small_changes_of_what_is_left_are_ignored_below_the_limit() {
    // A thirty-second of the machine, 128 MiB, is for others; a change by at most 1 MiB, a sixty-fourth of the limit, is small.
    let left = |world: World, kib: u64| available_kib(world, (128 << 10) + kib);
    let world = left(World::new(), 40 << 10);
    let (_directory, manager) = manager(&world);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 40 * MIB);
    let world = left(world, (40 << 10) + 512);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 40 * MIB, "half a MiB more");
    let world = left(world, 41 << 10);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 40 * MIB, "1 MiB more");
    let world = left(world, (63 << 10) + 512);
    look(&manager, 4);
    assert_eq!(capacity(&manager), 63 * MIB + MIB / 2);
    let _world = left(world, 100 << 10);
    look(&manager, 1);
    assert_eq!(capacity(&manager), 64 * MIB, "the limit is reached, by half a MiB");
}

#[test]
fn a_driver_that_refused_early_leaves_an_eighth_of_the_limit() {
    let device = Device::host();
    device.set_capacity(12 * MIB);
    let builder = Manager::builder().device_of(&device, 64 * MIB).memory(64 * MIB);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let [_held, _elsewhere] = [7, 6].map(|mib| manager.allocate(mib * MIB).expect("room"));
    let tiers: Vec<_> = manager.list().iter().map(|buffer| buffer.tier).collect();
    assert_eq!(tiers, [0, 1]);
    let tick = |now| (0..40).for_each(|_| manager.tick(now));
    for now in [1, 9_999] {
        tick(now);
        assert_eq!(capacity(&manager), 8 * MIB, "7 MiB are held, and the device has 5 more");
    }
    tick(10_000);
    assert_eq!(capacity(&manager), 12 * MIB, "all that the device has");
}

#[test]
fn a_driver_that_refused_is_not_asked_for_more_for_a_while() {
    let device = Device::host();
    device.set_capacity(6 * MIB);
    let builder = Manager::builder().device_of(&device, 16 * MIB).memory(64 * MIB);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let tick = |now| (0..40).for_each(|_| manager.tick(now));
    let held = manager.allocate(4 * MIB).expect("room");
    // The device has less than the manager was told.
    let elsewhere = manager.allocate(4 * MIB).expect("memory has room");
    let tiers: Vec<_> = manager.list().iter().map(|buffer| buffer.tier).collect();
    assert_eq!(tiers, [0, 1]);
    assert!(manager.tiers()[0].view.suspended_until.is_some());
    tick(1);
    assert_eq!(capacity(&manager), 4 * MIB, "what it held, although 2 MiB more are left");
    assert_eq!(manager.promote(&elsewhere, 0).map_err(|error| error.to_string().is_empty()), Err(false));
    tick(20_000);
    assert!(capacity(&manager) > 5 * MIB, "it is asked again");
    drop(held);
    manager.promote(&elsewhere, 0).expect("room");
    manager.check().expect("sound");
}

#[test]
fn a_full_device_is_not_waited_for_once_all_that_was_freed_is_given_back() {
    let device = Device::host();
    device.set_capacity(3 * MIB);
    let builder = Manager::builder().device_of(&device, 4 * MIB).memory(4 * MIB);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let freed = manager.allocate(2 * MIB).expect("room on the device");
    assert_eq!(manager.list()[0].tier, 0);
    drop(freed);
    let stream = device.stream().expect("a stream");
    let _others = DeviceBuffer::<u8>::new(&device, &stream, 2 * MIB as usize).expect("room");
    terrace_tests::hung::bounded(move || {
        let _buffer = manager.allocate(2 * MIB).expect("room in memory");
        assert_eq!(manager.list()[0].tier, 1);
        manager.check().expect("sound");
    });
}

#[test]
fn others_find_what_is_to_be_left_to_them_but_no_more_than_an_eighth() {
    let world = available(World::new(), 612);
    let built = |min_free: Option<u64>| {
        let builder =
            Manager::builder().memory(512 * MIB).system_root(world.root()).maintenance_interval(Duration::ZERO);
        let builder = if let Some(bytes) = min_free { builder.min_free(bytes) } else { builder };
        builder.build().expect("it is built")
    };
    assert_eq!(capacity(&built(None)), 100 * MIB, "512 MiB are left to others");
    assert_eq!(capacity(&built(Some(0))), 484 * MIB, "a thirty-second of the machine in any case");
    assert_eq!(capacity(&built(Some(256 * MIB))), 356 * MIB);
    assert_eq!(capacity(&built(Some(GIB))), 100 * MIB, "an eighth of 4 GiB");
    let manager = built(None);
    manager.set("min_free", "256MiB").expect("it can be changed");
    look(&manager, 8);
    assert_eq!(capacity(&manager), 356 * MIB, "it grows in steps");
}

/// Bytes of memory that the manager's threads and staging memory may take beside a memory tier of 8 MiB.
fn staging(builder: ManagerBuilder) -> u64 {
    let world = available(World::new(), 1024 - OWN);
    let directory = tempfile::tempdir().expect("a directory");
    let builder = builder.memory(4 << 30).min_free(0).system_root(world.root());
    let manager = builder.directory_of(directory.path(), 64 * MIB).maintenance_interval(Duration::ZERO).build();
    // What is available, less a thirty-second of the machine, and 4 MiB for the manager itself.
    (1024 - 128 - 4) * MIB - manager.expect("it is built").tiers()[0].view.capacity
}

#[test]
fn staging_memory_is_as_large_as_said() {
    let [usual, constrained] = [Preset::Inference, Preset::Constrained].map(|preset| Manager::builder().preset(preset));
    // Of the log's MiB, what is touched already is no longer available either.
    let with_log = |bytes: u64| bytes..=bytes + MIB;
    assert!(with_log(8 * MIB).contains(&staging(usual)));
    assert!(with_log(2 * MIB).contains(&staging(constrained)), "two chunks");
    assert!(with_log(4 * MIB).contains(&staging(Manager::builder().staging(4 * MIB))));
}
