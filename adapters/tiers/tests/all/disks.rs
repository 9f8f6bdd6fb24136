//! Managers on disks of a program's own, and what disks are asked for.
#![cfg(target_os = "linux")]

use crate::turns::{by_hand_on, drive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use terrace_file::{
    Directory, Disk, DiskRequest, EngineKind, Executor, FileFault, ResponseSender, StoreFile, StoreOptions,
};
use terrace_tests::hung::bounded;
use terrace_tiers::{BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

/// A disk that notes how many bytes each read asks for.
struct Noted(Directory, Mutex<Vec<usize>>);

impl Disk for Noted {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        self.0.files()
    }

    fn submit(&self, request: DiskRequest, reply: ResponseSender) {
        if let DiskRequest::Read { bytes, .. } = request {
            self.1.lock().expect("no panic").push(bytes);
        }
        self.0.submit(request, reply);
    }
}

#[test]
fn a_long_read_in_files_lets_others_take_their_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let disk = Arc::new(Noted(files, Mutex::default()));
    let (tasks, manager) = by_hand_on(Arc::clone(&disk) as Arc<dyn Disk>, Manager::builder().memory(MIB));
    let buffer = |bytes| drive(&tasks, manager.allocate_async(bytes, BufferOptions::default())).expect("room");
    // Both are larger than memory. The long one takes all staging memory many times; the last chunk of the other is shorter.
    let (long, short) = (buffer(48 * MIB), buffer(MIB + MIB / 2));
    for buffer in [&long, &short] {
        drive(&tasks, buffer.write_async(0, vec![7; buffer.bytes() as usize])).expect("written");
    }
    let reads = [&long, &short].map(|buffer| buffer.read_async(0, buffer.bytes() as usize));
    for (read, buffer) in reads.into_iter().zip([&long, &short]) {
        assert_eq!(drive(&tasks, read).expect("read"), vec![7; buffer.bytes() as usize]);
    }
    let asked = disk.1.lock().expect("no panic");
    let at = asked.iter().position(|bytes| *bytes == 512 << 10);
    // Before it: eight chunks that had staging memory by then, fifteen that waited for it, and the first of its own.
    assert!(at.is_some_and(|at| at <= 24), "number {at:?} of {}", asked.len());
}

/// A disk that panics on demand.
pub struct Panics(pub Directory, pub Arc<AtomicBool>);

impl Disk for Panics {
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault> {
        self.0.files()
    }

    fn submit(&self, order: DiskRequest, reply: ResponseSender) {
        assert!(!self.1.load(Ordering::Relaxed), "in a disk, on purpose");
        self.0.submit(order, reply);
    }
}

#[test]
fn a_disk_that_panics_is_one_that_refuses() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let panics = Arc::new(AtomicBool::new(false));
    let disk = Arc::new(Panics(files, Arc::clone(&panics)));
    let (tasks, manager) = by_hand_on(disk, Manager::builder().memory(4 * MIB));
    let buffer = drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    drive(&tasks, buffer.write_async(0, vec![7; 1 << 20])).expect("written");
    let refused = |told: Result<(), Error>| assert!(matches!(told, Err(Error::Store(_))), "{told:?}");
    panics.store(true, Ordering::Relaxed);
    refused(drive(&tasks, manager.demote_async(&buffer, 1)));
    panics.store(false, Ordering::Relaxed);
    manager.tick(3_600_000);
    drive(&tasks, manager.demote_async(&buffer, 1)).expect("moved");
    panics.store(true, Ordering::Relaxed);
    refused(drive(&tasks, buffer.read_async(0, 1)).map(drop));
    refused(drive(&tasks, buffer.write_async(0, vec![8])));
    refused(drive(&tasks, buffer.lease_best_async()).map(drop));
    panics.store(false, Ordering::Relaxed);
    manager.tick(7_200_000);
    assert!(drive(&tasks, buffer.read_async(0, 1 << 20)).expect("it is there").iter().all(|byte| *byte == 7));
    assert_eq!(drive(&tasks, buffer.lease_best_async()).expect("brought up")[0], 7);
    manager.check().expect("sound");
}

#[test]
fn a_disk_whose_tasks_were_not_given_is_driven_all_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(4 * MIB).disk(Arc::new(files), StoreOptions::new(64 * MIB));
    bounded(move || {
        let manager = builder.build().expect("it is built");
        let buffer = manager.allocate_named("a", MIB).expect("room");
        buffer.write(0, &[7]).expect("written");
        manager.sync(&buffer).expect("durable");
        manager.demote(&buffer, 1).expect("moved");
        assert_eq!(buffer.lease_best().expect("read")[0], 7);
    });
}
