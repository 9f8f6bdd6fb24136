//! Readers that never stop keep no writer or move waiting; a copy keeps no reader waiting.
#![cfg(target_os = "linux")]

use crate::turns::{by_hand, drive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use terrace_device::Device;
use terrace_tests::hung::bounded;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;
const READERS: usize = if cfg!(miri) { 2 } else { 4 };
const WRITES: u64 = if cfg!(miri) { 10 } else { 1000 };

/// Runs `work` beside threads that read a buffer in tight loops; each reads it some times at least.
fn beside_readers(buffer: &Buffer, work: impl FnOnce()) {
    let (ends, reads) = (AtomicBool::new(false), [(); READERS].map(|()| AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for read in &reads {
            scope.spawn(|| {
                let mut bytes = vec![0; buffer.bytes() as usize];
                while !ends.load(Ordering::Relaxed) || read.load(Ordering::Relaxed) < 3 {
                    match buffer.read(0, &mut bytes) {
                        // Compares few bytes, so that the reads of these threads leave hardly a moment without a brief lease.
                        Ok(()) => assert!(bytes.iter().step_by(4000).all(|byte| *byte == bytes[0]), "half of a write"),
                        // A lease to write is held.
                        Err(error) => assert_eq!(error, Error::Leased),
                    }
                    read.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        work();
        ends.store(true, Ordering::Relaxed);
    });
}

fn manager(directory: &std::path::Path) -> Manager {
    let builder = Manager::builder().memory(8 * MIB).directory_of(directory, 64 * MIB).chunk(64 << 10);
    builder.build().expect("it is built")
}

#[test]
fn a_writer_gets_its_turn_a_thousand_times_among_readers_that_never_stop() {
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = manager(directory.path());
        let buffer = manager.allocate(256 << 10).expect("room");
        beside_readers(&buffer, || {
            for count in 0..WRITES {
                let bytes = vec![count as u8; 256 << 10];
                match count % 3 {
                    0 => buffer.write(0, &bytes).expect("calls alone have it"),
                    1 => buffer.write_async(0, bytes).wait().expect("calls alone have it"),
                    _ => buffer.lease_mut().expect("calls alone have it").copy_from_slice(&bytes),
                }
            }
        });
        assert_eq!(buffer.lease_best().expect("memory")[0], (WRITES - 1) as u8);
        manager.check().expect("sound");
    });
}

#[test]
fn moves_and_removal_get_their_turn_among_readers_that_never_stop() {
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let manager = manager(directory.path());
        let buffer = manager.allocate_named("a", 200_000).expect("room");
        buffer.write(0, &[0; 200_000]).expect("room");
        beside_readers(&buffer, || {
            for count in 0..WRITES / 100 {
                manager.demote(&buffer, 1).expect("calls alone have it");
                buffer.write(0, &[count as u8; 200_000]).expect("calls alone have it");
                manager.promote(&buffer, 0).expect("calls alone have it");
                manager.sync(&buffer).expect("calls alone have it");
                drop(buffer.lease_best().expect("calls alone have it"));
            }
        });
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    while buffer.read(0, &mut [0; 100]) != Err(Error::Freed) {
                        assert!(!ends.load(Ordering::Relaxed), "it was removed");
                    }
                });
            }
            manager.remove("a").expect("calls alone have it");
        });
        manager.check().expect("sound");
    });
}

#[test]
fn moves_between_a_device_and_memory_get_their_turn_among_readers_that_never_stop() {
    bounded(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let builder = Manager::builder().device_of(&Device::host(), 4 * MIB).memory(4 * MIB).chunk(64 << 10);
        let manager = builder.directory_of(directory.path(), 64 * MIB).build().expect("it is built");
        let buffer = manager.allocate_named("a", 200_000).expect("room");
        beside_readers(&buffer, || {
            for count in 0..WRITES / 100 {
                // Leaves the device, is copied to memory beside readers, and back.
                buffer.write(0, &[count as u8; 200_000]).expect("calls alone have it");
                drop(buffer.lease_device_mut().expect("calls alone have it"));
                drop(buffer.lease_best().expect("calls alone have it"));
                manager.sync(&buffer).expect("calls alone have it");
            }
        });
        manager.check().expect("sound");
    });
}

#[test]
fn readers_go_on_beside_a_copy_that_a_writer_waits_for() {
    bounded(|| {
        for device in [false, true] {
            let mut builder = Manager::builder().memory(8 * MIB);
            if device {
                builder = builder.device_of(&Device::host(), 8 * MIB);
            }
            let (_directory, tasks, manager) = by_hand(builder);
            let options = BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
            let buffer = drive(&tasks, manager.allocate_async(4 * MIB, options)).expect("room");
            drive(&tasks, buffer.write_async(0, vec![1; 4 << 20])).expect("written");
            if device {
                drop(drive(&tasks, buffer.lease_device_async()).expect("room"));
            }
            let files = usize::from(device) + 1;
            let lease = drive(&tasks, buffer.lease_best_async()).expect("memory");
            let synced = manager.sync_async(&buffer);
            while manager.tiers()[files].view.used == 0 {
                assert!(tasks.run_one(0), "a copy begins");
            }
            drop(lease);
            // The copy does not go on, as no task is run. Two wait for its end, and say so.
            let mut wanted = Box::pin(buffer.lease_mut_async());
            assert!(wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let written = buffer.write_async(0, vec![2; 100]);
            for round in 0..3 {
                // The readers end within the call: nothing else runs.
                for thread in 0..4 {
                    let mut read = Box::pin(buffer.read_async(0, 4 << 20));
                    let polled = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    let Poll::Ready(read) = polled else { panic!("reader {thread} waits for a copy in round {round}") };
                    assert!(read.expect("read").iter().all(|byte| *byte == 1));
                    assert_eq!(buffer.try_lease().map(|lease| lease.map(|lease| lease[0])), Ok(Some(1)));
                }
            }
            assert!(manager.tiers()[files].view.used > 0 && !manager.list()[0].durable);
            drive(&tasks, synced).expect("it is durable");
            drop(drive(&tasks, wanted).expect("the copy has ended"));
            drive(&tasks, written).expect("the copy has ended");
            tasks.run(Duration::MAX);
            manager.check().expect("sound");
        }
    });
}
