//! Destructors of thread-locals may use a manager, even after the manager's own thread-locals are gone.
#![cfg(target_os = "linux")]

use std::cell::RefCell;
use std::sync::mpsc;
use terrace_file::EngineKind;
use terrace_tiers::{Buffer, Error, Manager};

const MIB: u64 = 1 << 20;

/// Runs when a thread ends.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
}

fn build(directory: &std::path::Path, kind: EngineKind) -> Option<Manager> {
    let builder = Manager::builder().memory(4 * MIB).directory_of(directory, 64 * MIB).engine(kind);
    builder.build().map_err(|error| assert!(kind == EngineKind::IoUring, "{error}")).ok()
}

/// Makes all kinds of calls, and drops everything.
fn use_all((manager, buffer): (Manager, Buffer)) -> Result<(), Error> {
    buffer.write(0, &[2; 100])?;
    manager.sync(&buffer)?;
    // Down and up again.
    manager.demote(&buffer, 1)?;
    let mut read = [0; 100];
    buffer.read(0, &mut read)?;
    assert_eq!(read, [2; 100]);
    assert_eq!(buffer.lease_best()?[..100], read);
    buffer.lease_mut()?[0] = 3;
    let other = manager.allocate(3 * MIB)?;
    other.write(0, &[4; 3 << 20])?;
    drop((other, manager.sync_async(&buffer)));
    manager.sync(&buffer)
}

/// Uses a manager in the destructor of a thread-local, which was there before the manager's own, or came after them.
fn at_the_end_of_a_thread(kind: EngineKind, before: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, (told, tell)) = (directory.path().to_owned(), mpsc::channel());
    let thread = std::thread::spawn(move || {
        // Thread-locals go in the reverse of the order in which they came.
        if before {
            LAST.with(|_| ());
        }
        let Some(manager) = build(&path, kind) else { return };
        let buffer = manager.allocate_named("a", MIB).expect("room");
        buffer.write(0, &[1; 100]).expect("written");
        manager.sync(&buffer).expect("durable");
        let work = move || drop(told.send(use_all((manager, buffer))));
        LAST.with_borrow_mut(|last| last.0 = Some(Box::new(work)));
    });
    thread.join().expect("no panic");
    let Ok(used) = tell.recv() else { return assert!(kind == EngineKind::IoUring, "nothing was used") };
    assert_eq!(used, Ok(()));
    let manager = build(directory.path(), kind).expect("the last one is gone");
    let buffer = manager.open("a").expect("durable");
    assert_eq!(buffer.lease_best().expect("read")[..2], [3, 2]);
}

#[test]
fn a_manager_is_used_and_dropped_in_destructors_of_thread_locals() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        for before in [true, false] {
            at_the_end_of_a_thread(kind, before);
        }
    }
}
