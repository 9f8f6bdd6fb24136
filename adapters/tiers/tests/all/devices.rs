//! Tiers on devices: the host as a device, with memory of its own, and with memory that both address.
#![cfg(target_os = "linux")]

use crate::patterns;

use patterns::{holds, pattern};
use std::path::Path;
use std::time::Duration;
use terrace_device::{Device, DeviceBuffer, DeviceError};
use terrace_tiers::detect::TierKind;
use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::manager::ManagerBuilder;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;
const DEVICE: u8 = 0;
const MEMORY: u8 = 1;
const FILES: u8 = 2;

/// 4 MiB of the device, 4 MiB of memory, 64 MiB of files.
fn builder(device: &Device, path: &Path) -> ManagerBuilder {
    Manager::builder().device_of(device, 4 * MIB).memory(4 * MIB).directory_of(path, 64 * MIB).chunk(256 << 10)
}

/// Bytes at an address of the host's device.
fn at(address: u64, bytes: u64) -> Vec<u8> {
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    // SAFETY: the caller holds a lease of these bytes.
    let block = unsafe { device.wrap(&stream, address, bytes, None) }.expect("a block");
    let mut read = vec![0; bytes as usize];
    block.read(0, &mut read).expect("read");
    read
}

#[test]
fn buffers_begin_on_the_device_and_are_the_same_wherever_they_are_moved() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    let manager = builder(&device, directory.path()).build().expect("it is built");
    let kinds: Vec<_> = manager.tiers().iter().map(|tier| tier.kind).collect();
    assert_eq!(kinds[..2], [Some(TierKind::Gpu), Some(TierKind::Cpu)]);
    assert_eq!((manager.tier(TierKind::Gpu), manager.tier(TierKind::Cpu)), (Ok(DEVICE), Ok(MEMORY)));
    // 20 MiB: on the device, in memory, in files.
    let buffers: Vec<Buffer> = (0..19).map(|_| manager.allocate(MIB + 1000).expect("room")).collect();
    for (seed, buffer) in buffers.iter().enumerate() {
        holds_zeros(buffer);
        buffer.write(0, &pattern(seed as u8, buffer.bytes())).expect("written");
    }
    for (seed, buffer) in buffers.iter().enumerate() {
        holds(buffer, seed as u8);
        let lease = buffer.lease_device().expect("room on the device");
        assert_eq!(lease.tier(), DEVICE);
        assert!(at(lease.address(), buffer.bytes()) == pattern(seed as u8, buffer.bytes()), "buffer {seed}");
    }
    for (seed, buffer) in buffers.iter().enumerate().rev() {
        assert!(buffer.lease_best().expect("memory")[..] == pattern(seed as u8, buffer.bytes())[..]);
        manager.demote(buffer, FILES).expect("room in files");
        assert_eq!(manager.list()[seed].tier, FILES);
        manager.promote(buffer, DEVICE).expect("room on the device");
        assert_eq!(manager.list()[seed].tier, DEVICE);
        holds(buffer, seed as u8);
    }
    manager.check().expect("sound");
    for tier in manager.tiers() {
        assert!(tier.view.used <= tier.view.capacity, "{tier:?}");
    }
    drop(buffers);
    assert_eq!(manager.tiers().iter().map(|tier| tier.view.used).sum::<u64>(), 0);
    drop(manager);
    assert_eq!((device.stats().pool.in_use, device.stats().pinned.in_use), (0, 0), "all of it went back");
}

fn holds_zeros(buffer: &Buffer) {
    let mut read = vec![1; 5000];
    buffer.read(buffer.bytes() - 5000, &mut read).expect("read");
    assert!(read.iter().all(|byte| *byte == 0), "it was never written");
}

#[test]
fn what_a_device_wrote_is_what_all_read_and_what_is_durable() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    let manager = builder(&device, directory.path()).build().expect("it is built");
    let buffer = manager.allocate_named("weights", MIB).expect("room");
    buffer.write(0, &pattern(1, MIB)).expect("written");
    manager.sync(&buffer).expect("durable");
    let stream = device.stream().expect("a stream");
    {
        let lease = buffer.lease_device_mut().expect("room on the device");
        assert_eq!(buffer.lease_best().map(drop), Err(Error::Leased), "one writes");
        lease.lend(&stream).expect("lent");
        // SAFETY: the lease is held.
        let mut block = unsafe { device.wrap(&stream, lease.address(), MIB, None) }.expect("a block");
        block.fill(0, MIB / 2, 7).expect("filled");
    }
    let mut expected = pattern(1, MIB);
    expected[..MIB as usize / 2].fill(7);
    assert!(!manager.list()[0].durable);
    // A part of it, from the device; then all of it, in memory.
    let mut part = vec![0; 1000];
    buffer.read(MIB / 2 - 500, &mut part).expect("read");
    assert!(part == expected[MIB as usize / 2 - 500..][..1000]);
    assert_eq!(manager.list()[0].tier, DEVICE, "reading moved nothing");
    assert!(buffer.lease_best().expect("memory")[..] == expected[..]);
    manager.sync(&buffer).expect("durable");
    drop((buffer, manager));
    let manager = builder(&device, directory.path()).build().expect("it is built again");
    let buffer = manager.open("weights").expect("it is there");
    assert!(at(buffer.lease_device().expect("room").address(), MIB) == expected);
}

#[test]
fn a_buffer_that_memory_has_no_room_for_is_written_in_files() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    let manager = builder(&device, directory.path()).memory(0).build().expect("it is built");
    let buffer = manager.allocate(2 * MIB).expect("room");
    assert_eq!(manager.list()[0].tier, DEVICE);
    buffer.write(MIB, &pattern(3, MIB)).expect("written");
    buffer.write(0, &pattern(3, MIB)).expect("written");
    assert_eq!(manager.list()[0].tier, 1, "in files");
    assert_eq!(buffer.lease_best().map(drop).map_err(|error| matches!(error, Error::NoTier(_))), Err(true));
    let lease = buffer.lease_device().expect("room on the device");
    let expected = [pattern(3, MIB), pattern(3, MIB)].concat();
    assert!(at(lease.address(), 2 * MIB) == expected);
}

#[test]
fn a_device_that_others_have_filled_is_passed_over() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    device.set_capacity(3 * MIB);
    let stream = device.stream().expect("a stream");
    let others = DeviceBuffer::<u8>::new(&device, &stream, 2 * MIB as usize).expect("room");
    let manager = builder(&device, directory.path()).build().expect("it is built");
    // The tier may have 4 MiB, and the device has 1.
    let buffer = manager.allocate_named("large", 2 * MIB).expect("room in memory");
    assert_eq!((manager.list()[0].tier, manager.tiers()[0].view.suspended_until.is_some()), (MEMORY, true));
    buffer.write(0, &pattern(5, 2 * MIB)).expect("written");
    assert!(buffer.lease_device().is_err());
    holds(&buffer, 5);
    drop(others);
    // Maintenance finds what there is now.
    (1..=40).for_each(|now| manager.tick(now * 250));
    assert!(at(buffer.lease_device().expect("room on the device").address(), 2 * MIB) == pattern(5, 2 * MIB));
}

#[test]
fn a_full_device_is_tried_again_as_soon_as_others_have_given_memory_back() {
    let device = Device::host();
    device.set_capacity(3 * MIB);
    let stream = device.stream().expect("a stream");
    let others = DeviceBuffer::<u8>::new(&device, &stream, 2 * MIB as usize).expect("room");
    let builder = Manager::builder().device_of(&device, 4 * MIB).memory(4 * MIB).maintenance_interval(Duration::ZERO);
    let manager = builder.build().expect("it is built");
    let buffer = manager.allocate(2 * MIB).expect("room in memory");
    let rests = || manager.tiers()[0].view.suspended_until.is_some();
    manager.tick(1);
    assert!(rests(), "others have the memory still");
    drop(others);
    manager.tick(2);
    assert!(!rests(), "it would be tried again after a second");
    (0..40).for_each(|_| manager.tick(3));
    assert_eq!(manager.tiers()[0].view.capacity, 3 * MIB, "nor is it held to what it had when the device refused");
    manager.promote(&buffer, DEVICE).expect("room");
}

#[test]
fn every_fortieth_tick_looks_at_what_a_device_has_left() {
    let device = Device::host();
    let builder = Manager::builder().device_of(&device, 4 * MIB).memory(4 * MIB).maintenance_interval(Duration::ZERO);
    let manager = builder.build().expect("it is built");
    let capacity = || manager.tiers()[usize::from(DEVICE)].view.capacity;
    device.set_capacity(MIB);
    (1..40).for_each(|now| manager.tick(now * 250));
    assert_eq!(capacity(), 4 * MIB);
    manager.tick(40 * 250);
    assert_eq!(capacity(), MIB);
}

#[test]
fn a_full_device_is_full_for_buffers_also_where_pinned_memory_may_stand_in() {
    let device = Device::host();
    device.set_capacity(3 * MIB);
    device.set_fallback(true);
    let stream = device.stream().expect("a stream");
    let _others = DeviceBuffer::<u8>::new(&device, &stream, 2 * MIB as usize).expect("room");
    let manager = Manager::builder().device_of(&device, 4 * MIB).memory(4 * MIB).build().expect("it is built");
    let hint = PlacementHint { tier: Some(MEMORY), ..PlacementHint::default() };
    let buffer =
        manager.allocate_with(2 * MIB, BufferOptions { hint, ..BufferOptions::default() }).expect("room in memory");
    let refused = manager.promote(&buffer, DEVICE);
    assert!(matches!(refused, Err(Error::Device(DeviceError::OutOfMemory(_)))), "{refused:?}");
    assert_eq!((device.stats().pool.fallbacks, device.stats().pinned.allocations), (0, 0), "nothing was pinned for it");
}

#[test]
fn memory_that_a_device_shares_is_one_tier_which_both_address() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    let builder = Manager::builder().device(&device).memory(4 * MIB).directory_of(directory.path(), 64 * MIB);
    // No thread of the manager moves anything meanwhile.
    let manager = builder.chunk(256 << 10).maintenance_interval(Duration::ZERO).build().expect("it is built");
    assert_eq!(manager.tiers().len(), 2, "{manager:?}");
    assert_eq!(manager.tier(TierKind::Gpu), Err(Error::Absent(TierKind::Gpu)));
    let buffers: Vec<Buffer> = (0..8).map(|_| manager.allocate(MIB).expect("room")).collect();
    for (seed, buffer) in buffers.iter().enumerate() {
        buffer.write(0, &pattern(seed as u8, MIB)).expect("written");
    }
    for (seed, buffer) in buffers.iter().enumerate() {
        let lease = buffer.lease_device().expect("room");
        let moves = manager.move_stats();
        let bytes = buffer.lease_best().expect("the same memory");
        assert_eq!(bytes.as_ptr().addr() as u64, lease.address(), "one copy");
        assert!(bytes[..] == pattern(seed as u8, MIB)[..]);
        assert_eq!(manager.move_stats(), moves, "nothing was copied");
    }
    let lease = buffers[7].lease_device_mut().expect("room");
    assert_eq!(buffers[7].lease_best().map(drop), Err(Error::Leased));
    drop(lease);
    assert_eq!(buffers[7].lease_device_on(1).map(drop), Err(Error::NoTier("on a device")), "files have no address");
    manager.check().expect("sound");
    drop((buffers, manager));
    assert_eq!(device.stats().pinned.in_use, 0, "all of it went back");
}

#[test]
fn what_was_resized_stays_so() {
    let device = Device::host();
    let manager = Manager::builder().device_of(&device, 8 * MIB).memory(4 * MIB).maintenance_interval(Duration::ZERO);
    let manager = manager.build().expect("it is built");
    let buffers: Vec<Buffer> = (0..6).map(|_| manager.allocate(MIB).expect("room")).collect();
    assert_eq!(manager.tiers()[0].view.used, 6 * MIB);
    manager.resize(DEVICE, 2 * MIB).expect("a tier");
    (1..=80).for_each(|now| manager.tick(now * 250));
    let used = || manager.tiers()[0].view;
    assert!((0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        used().used <= 2 * MIB
    }));
    assert_eq!(used().capacity, 2 * MIB, "maintenance gives it no more");
    drop(buffers);
}

#[test]
fn a_call_that_reads_on_the_device_is_waited_for_and_no_lease_of_a_user_is() {
    let device = Device::host();
    let manager = Manager::builder().device_of(&device, 8 * MIB).memory(8 * MIB).build().expect("it is built");
    let buffer = manager.allocate(4 * MIB).expect("room");
    for round in 0..20 {
        // The last write is on the device alone.
        drop(buffer.lease_device_mut().expect("no lease is held"));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| buffer.read(0, &mut vec![0; 4 << 20]).expect("no lease is held"));
            }
            buffer.write(0, &[round; 100]).expect("no lease is held");
        });
    }
    let lease = buffer.lease_device().expect("it is there");
    assert_eq!(buffer.write(0, &[1]), Err(Error::Leased));
    // Meanwhile other threads read: in memory, on the device, by calls.
    assert_eq!(buffer.lease_best().expect("room")[..100], [19; 100]);
    assert_eq!(at(lease.address(), 100), [19; 100]);
    let none = Manager::builder().device(&device).memory(0).build();
    assert_eq!(none.map(drop).map_err(|error| matches!(error, Error::BadSetting(_))), Err(true));
}

#[test]
fn without_a_device_there_is_no_address_on_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::builder().memory(MIB).directory_of(directory.path(), 16 * MIB).build().expect("it is built");
    let buffer = manager.allocate(1000).expect("room");
    let no_tier = |error: Error| matches!(error, Error::NoTier(_));
    assert_eq!(buffer.lease_device().map(drop).map_err(no_tier), Err(true));
    assert_eq!(buffer.lease_device_mut().map(drop).map_err(no_tier), Err(true));
}

#[test]
fn directories_are_ordered_by_what_they_lie_on_and_a_device_can_be_hinted_at() {
    let (device, base) = (Device::host(), tempfile::tempdir().expect("a directory"));
    let path = |name: &str| base.path().join(name);
    let manager = Manager::builder()
        .device_of(&device, 4 * MIB)
        .memory(4 * MIB)
        .directory_as(path("slow"), TierKind::Hdd, Some(16 * MIB))
        .directory_as(path("fast"), TierKind::Nvme, Some(16 * MIB))
        .directory_as(path("usual"), TierKind::Ssd, Some(16 * MIB))
        .build()
        .expect("it is built");
    let kinds: Vec<_> = manager.tiers().iter().filter_map(|tier| tier.kind).collect();
    assert_eq!(kinds, [TierKind::Gpu, TierKind::Cpu, TierKind::Nvme, TierKind::Ssd, TierKind::Hdd]);
    assert!(manager.tiers()[2].device.ends_with("fast"));
    let hdd = manager.tier(TierKind::Hdd).expect("a disk that turns");
    let hint = PlacementHint { tier: Some(hdd), ..PlacementHint::default() };
    let buffer = manager.allocate_with(MIB, BufferOptions { hint, ..BufferOptions::default() }).expect("room");
    buffer.write(0, &pattern(9, MIB)).expect("written");
    assert_eq!(manager.list()[0].tier, hdd);
    // Down and up through all five.
    for tier in [3, 2, 1, 0] {
        manager.promote(&buffer, tier).expect("room");
        assert_eq!(manager.list()[0].tier, tier);
        holds(&buffer, 9);
    }
    // Each tier has a copy now: no byte moves.
    let moves = manager.move_stats();
    for tier in 1..=4 {
        manager.demote(&buffer, tier).expect("there is a copy");
        assert_eq!(manager.list()[0].tier, tier);
        holds(&buffer, 9);
    }
    assert_eq!((manager.move_stats().down, manager.move_stats().dropped), (moves.down, moves.dropped + 4));
    let cpu = Manager::builder().directory_as(path("cpu"), TierKind::Cpu, None).build();
    assert_eq!(cpu.map(drop).map_err(|error| matches!(error, Error::BadSetting(_))), Err(true));
}

#[test]
fn what_is_durable_is_found_in_whichever_directory_it_is() {
    let base = tempfile::tempdir().expect("a directory");
    let at = |name: &str| base.path().join(name);
    let with = |kinds: &[(&str, TierKind)]| {
        let builder = Manager::builder().memory(4 * MIB).chunk(64 << 10);
        let add = |builder: ManagerBuilder, (name, kind): &(&str, TierKind)| {
            builder.directory_as(at(name), *kind, Some(16 * MIB))
        };
        kinds.iter().fold(builder, add).build()
    };
    let write = |manager: &Manager, name: &str, seed| {
        let buffer = manager.allocate_named(name, 100_000).expect("room");
        buffer.write(0, &pattern(seed, 100_000)).expect("written");
        manager.sync(&buffer).expect("durable");
    };
    let old = with(&[("old", TierKind::Ssd)]).expect("it is built");
    write(&old, "first", 1);
    write(&old, "second", 2);
    drop(old);
    // A faster directory is added: it gets new durable buffers, and existing ones stay where they are.
    let both = [("old", TierKind::Ssd), ("new", TierKind::Nvme)];
    let manager = with(&both).expect("it is built");
    write(&manager, "third", 3);
    let first = manager.open("first").expect("it is there");
    first.write(0, &pattern(4, 100_000)).expect("written");
    manager.sync(&first).expect("durable");
    manager.remove("second").expect("removed");
    drop((first, manager));
    let manager = with(&both).expect("it is built");
    holds(&manager.open("first").expect("it is there"), 4);
    holds(&manager.open("third").expect("it is there"), 3);
    assert_eq!(manager.open("second").map(drop), Err(Error::NoSuchName("second".into())));
    drop(manager);
    let new = with(&[("new", TierKind::Nvme)]).expect("it is built");
    write(&new, "first", 5);
    drop(new);
    assert_eq!(with(&both).map(drop), Err(Error::Twice("first".into())));
    holds(&with(&[("old", TierKind::Hdd)]).expect("it is built").open("first").expect("nothing is lost"), 4);
}

#[test]
fn a_rejected_move_request_leaves_the_one_before_as_it_was() {
    let (device, directory) = (Device::host(), tempfile::tempdir().expect("a directory"));
    device.set_capacity(3 * MIB);
    let stream = device.stream().expect("a stream");
    let manager = builder(&device, directory.path()).build().expect("it is built");
    let hint = PlacementHint { tier: Some(MEMORY), ..PlacementHint::default() };
    let buffer =
        manager.allocate_with(2 * MIB, BufferOptions { hint, ..BufferOptions::default() }).expect("room in memory");
    let _others = DeviceBuffer::<u8>::new(&device, &stream, 2 * MIB as usize).expect("room");
    assert!(
        matches!(manager.promote(&buffer, DEVICE), Err(Error::Device(_))),
        "the tier has room, the device has none"
    );
    assert!(matches!(manager.promote(&buffer, 99), Err(Error::Rejected(_))));
    assert_eq!(manager.demote(&buffer, FILES), Ok(()));
}

#[test]
fn blank_memory_of_a_buffer_that_was_written_on_a_device_is_stale() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = Device::host();
    let builder =
        Manager::builder().device_of(&device, 4 * MIB).memory(4 * MIB).directory_of(directory.path(), 64 * MIB);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let hint = PlacementHint { tier: Some(MEMORY), ..PlacementHint::default() };
    let options = || BufferOptions { hint, ..BufferOptions::default() };
    let [written, leased] = [(); 2].map(|()| manager.allocate_with(MIB, options()).expect("room in memory"));
    for buffer in [&written, &leased] {
        manager.promote(buffer, DEVICE).expect("room on the device");
    }
    drop(written.lease_device_mut().expect("it is there"));
    written.write(5, &[7]).expect("written, where the newest bytes are");
    let mut bytes = [0; 8];
    written.read(0, &mut bytes).expect("read");
    assert_eq!(bytes, [0, 0, 0, 0, 0, 7, 0, 0]);
    let lease = leased.lease_device().expect("it is there");
    assert_eq!(leased.write(0, &[1]), Err(Error::Leased), "as any buffer that is leased");
    drop(lease);
    leased.write(0, &[1]).expect("written");
    manager.check().expect("sound");
}
