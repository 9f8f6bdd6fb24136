//! Ten thousand leases at once, of as many buffers and of one.
#![cfg(target_os = "linux")]

use crate::patterns::{holds, pattern};
use std::time::Duration;
use terrace_tests::hung::bounded;
use terrace_tiers::{Buffer, Error, Lease, Manager};

const MIB: u64 = 1 << 20;
const COUNT: u64 = if cfg!(miri) { 100 } else { 10_000 };
const SMALL: u64 = 1000;

/// Memory for the small buffers and some more; only they may be leased together.
fn manager(directory: &std::path::Path) -> Manager {
    let builder = Manager::builder().memory(32 * MIB).directory_of(directory, 256 * MIB).chunk(256 << 10);
    let builder = builder.pinned_cap(COUNT * SMALL).maintenance_interval(Duration::ZERO);
    builder.build().expect("it is built")
}

/// Other buffers, more than memory has room for, are allocated, written, evicted and read.
fn others_go_on(manager: &Manager) {
    let others: Vec<Buffer> = (0..40).map(|_| manager.allocate(MIB).expect("room is made")).collect();
    for (seed, buffer) in (0..).zip(&others) {
        buffer.write(0, &pattern(seed, MIB)).expect("no lease is held");
    }
    (0..).zip(&others).for_each(|(seed, buffer)| holds(buffer, seed));
    manager.demote(&others[0], 1).expect("no lease is held");
    holds(&others[0], 0);
    manager.check().expect("sound");
}

#[test]
fn ten_thousand_buffers_are_leased_at_once_and_all_come_back() {
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = manager(directory.path());
        let buffers: Vec<Buffer> = (0..COUNT).map(|_| manager.allocate(SMALL).expect("room")).collect();
        for (at, buffer) in (0u64..).zip(&buffers) {
            buffer.write(0, &at.to_le_bytes()).expect("written");
        }
        let mut leases: Vec<Lease<'_>> = buffers.iter().map(|buffer| buffer.lease_best().expect("the cap")).collect();
        let places: Vec<*const u8> = leases.iter().map(|lease| lease.as_ptr()).collect();
        let more = manager.allocate(SMALL).expect("room");
        more.write(0, &[7]).expect("calls are not pinned");
        let (cap, pinned) = (COUNT * SMALL, COUNT * SMALL);
        let full = Some(Error::PinnedCap { asked: SMALL, pinned, cap });
        assert_eq!(
            (more.lease_best().err(), more.try_lease().err(), more.lease_mut().err()),
            (full.clone(), full.clone(), full)
        );
        drop(buffers[0].lease_best().expect("it is counted already"));
        others_go_on(&manager);
        assert_eq!(buffers[9].write(0, &[1]), Err(Error::Leased));
        assert_eq!(manager.demote(&buffers[9], 1), Err(Error::Leased));
        // None was moved meanwhile.
        for (at, lease) in (0u64..).zip(&leases) {
            assert_eq!((&lease[..8], lease.as_ptr()), (&at.to_le_bytes()[..], places[at as usize]));
        }
        assert_eq!(manager.list().iter().filter(|listed| listed.leased).count() as u64, COUNT);
        // One comes back: one can be leased.
        drop(leases.pop());
        drop(more.lease_best().expect("there is room under the cap"));
        drop(leases);
        manager.check().expect("sound");
        assert!(manager.list().iter().all(|listed| !listed.leased));
        // All may be leased again, and all may leave.
        drop(more);
        drop(buffers.iter().map(|buffer| buffer.lease_mut().expect("no lease is held")).collect::<Vec<_>>());
        buffers.iter().for_each(|buffer| manager.prefetch_async(buffer).wait().expect("no lease is held"));
        manager.resize(0, MIB).expect("a tier");
        while manager.tiers()[0].view.used > MIB {
            std::thread::yield_now();
        }
        for (at, buffer) in (0u64..).zip(&buffers) {
            let mut read = [0; 8];
            buffer.read(0, &mut read).expect("read");
            assert_eq!(u64::from_le_bytes(read), at);
        }
        manager.check().expect("sound");
        drop(buffers);
        assert_eq!(manager.tiers().iter().map(|tier| tier.view.used).sum::<u64>(), 0);
    });
}

#[test]
fn ten_thousand_leases_of_one_buffer_are_one_and_all_come_back() {
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = manager(directory.path());
        let buffer = manager.allocate_named("one", MIB).expect("room");
        buffer.write(0, &pattern(3, MIB)).expect("written");
        let mut leases: Vec<Lease<'_>> = (0..COUNT).map(|_| buffer.lease_best().expect("one is counted")).collect();
        assert!(leases.iter().all(|lease| lease.as_ptr() == leases[0].as_ptr()));
        others_go_on(&manager);
        manager.sync(&buffer).expect("it is only read");
        holds(&buffer, 3);
        let leased = || {
            let tries = [
                buffer.write(0, &[1]),
                buffer.lease_mut().map(drop),
                manager.demote(&buffer, 1),
                manager.remove("one"),
            ];
            assert_eq!(tries, [(); 4].map(|()| Err(Error::Leased)));
        };
        leased();
        // The lease after the last that the word counts is refused, and is none.
        if !cfg!(miri) {
            leases.extend((COUNT..65_535).map(|_| buffer.lease_best().expect("one is counted")));
            assert_eq!(
                (buffer.lease_best().err(), buffer.try_lease().err()),
                (Some(Error::Leased), Some(Error::Leased))
            );
            holds(&buffer, 3);
        }
        // Given back by many threads, while others take and give back.
        let last = leases.pop();
        std::thread::scope(|scope| {
            while !leases.is_empty() {
                let part = leases.split_off(leases.len() - leases.len().min(10_000));
                scope.spawn(|| drop(part));
                scope.spawn(|| (0..1000).for_each(|_| drop(buffer.try_lease())));
            }
        });
        leased();
        manager.check().expect("sound");
        drop(last);
        buffer.write(0, &[1]).expect("no lease is held");
        manager.demote(&buffer, 1).expect("no lease is held");
        buffer.lease_mut().expect("no lease is held")[0] = 2;
        manager.remove("one").expect("no lease is held");
        manager.check().expect("sound");
        assert_eq!(manager.tiers().iter().map(|tier| tier.view.used).sum::<u64>(), 0);
    });
}

#[test]
fn what_memory_has_no_room_for_in_one_place_goes_to_files() {
    let directory = tempfile::tempdir().expect("a directory");
    for device in [false, true] {
        let mut builder =
            Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB).pinned_cap(64 * MIB);
        if device {
            builder = builder.device_of(&terrace_device::Device::host(), MIB / 2);
        }
        let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
        let tier = usize::from(device);
        let mut buffers: Vec<Option<Buffer>> =
            (0..8).map(|_| Some(manager.allocate(MIB - (16 << 10)).expect("room"))).collect();
        buffers.iter().flatten().for_each(|buffer| buffer.write(0, &[7; 1000]).expect("written"));
        // Every other one goes, and no other may move.
        buffers.iter_mut().step_by(2).for_each(|buffer| *buffer = None);
        let leases: Vec<Lease<'_>> =
            buffers.iter().flatten().map(|buffer| buffer.lease_best().expect("memory")).collect();
        let free = manager.tiers()[tier].view.capacity - manager.tiers()[tier].view.used;
        assert!(free >= 3 * MIB, "{free}");
        let large = manager.allocate(3 * MIB).expect("files have room");
        large.write(0, &pattern(1, 3 * MIB)).expect("written");
        holds(&large, 1);
        assert!(leases.iter().all(|lease| lease[..1000] == [7; 1000]));
        manager.check().expect("sound");
    }
}
