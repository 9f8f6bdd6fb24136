//! Leases between threads and between two holds in one process, which exclude each other as two processes do.

use crate::common::{WAYS, bounded, by, name, refused};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use terrace_shm::{LeaseKind, SharedBuffer, ShmError};

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn readers_share_and_a_writer_excludes_all() {
    for way in WAYS {
        let name = name("share");
        let (one, two) = (by(way).create(&name, 64).unwrap(), SharedBuffer::open(&name));
        let two = two.unwrap();
        // Between two holds, and between threads of one.
        for (a, b) in [(&one, &two), (&one, &one)] {
            let read = a.read::<u8>(..).unwrap();
            drop(b.try_read::<u8>(..).unwrap());
            assert!(matches!(refused(b.try_write::<u8>(..)), ShmError::Busy { .. }));
            let began = Instant::now();
            assert!(matches!(refused(b.write_timeout::<u8>(.., SHORT)), ShmError::Busy { waited: SHORT, .. }));
            assert!(began.elapsed() >= SHORT);
            drop(read);
            let write = b.try_write::<u8>(..).unwrap();
            assert!(matches!(refused(a.try_read::<u8>(0..1)), ShmError::Busy { .. }));
            assert!(matches!(refused(a.read_timeout::<u8>(0..1, SHORT)), ShmError::Busy { .. }));
            assert!(matches!(refused(a.try_write::<u8>(1..2)), ShmError::Busy { .. }));
            write.commit().unwrap();
            drop(a.try_write::<u8>(..).unwrap());
        }
    }
}

#[test]
fn a_waiter_gets_the_lease_when_it_is_released() {
    for way in WAYS {
        bounded(move || {
            let name = name("waiter");
            let (one, two) = (by(way).create(&name, 64).unwrap(), SharedBuffer::open(&name).unwrap());
            for buffer in [&one, &two] {
                let (held, released) = (one.read::<u8>(..).unwrap(), AtomicBool::new(false));
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let lease = buffer.write::<u8>(..).unwrap();
                        assert!(released.load(Ordering::SeqCst));
                        drop(lease);
                    });
                    thread::sleep(Duration::from_millis(5));
                    released.store(true, Ordering::SeqCst);
                    drop(held);
                });
            }
        });
    }
}

#[test]
fn one_that_waits_comes_before_those_that_ask_later() {
    for way in WAYS {
        bounded(move || {
            let name = name("queue");
            let (one, two) = (by(way).create(&name, 64).unwrap(), SharedBuffer::open(&name).unwrap());
            for (waits, asks) in [(&one, &two), (&one, &one), (&two, &one)] {
                let held = one.read::<u8>(..).unwrap();
                thread::scope(|scope| {
                    let writer = scope.spawn(|| drop(waits.write::<u8>(..).unwrap()));
                    crate::common::until("the writer waits", || asks.try_read::<u8>(..).is_err());
                    drop(held);
                    writer.join().unwrap();
                });
                // One that gives up leaves the queue.
                let held = one.read::<u8>(..).unwrap();
                assert!(matches!(refused(waits.write_timeout::<u8>(.., SHORT)), ShmError::Busy { .. }));
                drop((held, asks.try_read::<u8>(..).unwrap()));
            }
        });
    }
}

#[test]
fn threads_and_holds_count_without_losing_one() {
    for way in WAYS {
        bounded(move || {
            let name = name("count");
            let holds: Vec<_> = (0..3).map(|_| by(way).open_or_create(&name, 4096).unwrap()).collect();
            thread::scope(|scope| {
                for thread in 0..6 {
                    let buffer = &holds[thread % 3];
                    scope.spawn(move || {
                        for _ in 0..100 {
                            let mut lease = buffer.write::<u64>(..).unwrap();
                            let next = lease[0] + 1;
                            lease.fill(next);
                            lease.commit().unwrap();
                            let lease = buffer.read::<u64>(..).unwrap();
                            assert!(lease.iter().all(|count| *count == lease[0]));
                        }
                    });
                }
            });
            assert_eq!(holds[0].read::<u64>(..).unwrap()[511], 600);
        });
    }
}

#[test]
fn a_panic_inside_a_write_lease_leaves_no_half_new_bytes_unseen() {
    for way in WAYS {
        let name = name("panic");
        let buffer = by(way).create(&name, 64).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut lease = buffer.write::<u8>(..).unwrap();
            lease[0] = 1;
            std::panic::resume_unwind(Box::new("half way"));
        }));
        assert!(panicked.is_err());
        match way {
            terrace_shm::Way::Memfd => {
                let error = refused(buffer.try_read::<u8>(..));
                assert!(matches!(error, ShmError::Torn { pid, .. } if pid == std::process::id()), "{error}");
                assert!(matches!(refused(buffer.try_write::<u8>(..)), ShmError::Torn { .. }));
                buffer.write_after_crash::<u8>(..).unwrap().fill(2);
                assert_eq!(buffer.read::<u8>(..).unwrap()[..], [2; 64]);
            }
            terrace_shm::Way::File => assert_eq!(buffer.try_read::<u8>(..).unwrap()[..], [0; 64], "never written back"),
        }
    }
}

#[test]
fn a_write_lease_dropped_while_an_older_panic_unwinds_is_no_torn_one() {
    struct Closes(SharedBuffer);
    impl Drop for Closes {
        fn drop(&mut self) {
            self.0.write::<u8>(..).expect("whole").fill(3);
        }
    }
    for way in WAYS {
        let name = name("unwind");
        let buffer = by(way).create(&name, 8).unwrap();
        let closes = Closes(SharedBuffer::open(&name).unwrap());
        let thread = thread::spawn(move || {
            let _closes = closes;
            std::panic::resume_unwind(Box::new("older"));
        });
        assert!(thread.join().is_err());
        assert_eq!(buffer.try_read::<u8>(..).unwrap()[..], [3; 8]);
    }
}

#[test]
fn a_forgotten_lease_ends_with_its_hold() {
    for way in WAYS {
        let name = name("forget");
        let (one, two) = (by(way).create(&name, 8).unwrap(), SharedBuffer::open(&name).unwrap());
        std::mem::forget(two.write::<u8>(..).unwrap());
        assert!(matches!(refused(one.try_read::<u8>(..)), ShmError::Busy { .. }));
        drop(two);
        let told = one.try_read::<u8>(..).map(drop);
        assert_eq!(matches!(told, Err(ShmError::Torn { .. })), way == terrace_shm::Way::Memfd, "{told:?}");
        assert_eq!(one.recover().unwrap().is_some(), way == terrace_shm::Way::Memfd);
        drop(one.try_read::<u8>(..).unwrap());
    }
}

#[test]
fn statistics_tell_each_lease() {
    for way in WAYS {
        let name = name("statistics");
        let (one, two) = (by(way).create(&name, 8).unwrap(), SharedBuffer::open(&name).unwrap());
        let leases =
            |by: &SharedBuffer| -> Vec<_> { by.holders().unwrap().iter().map(|holder| holder.lease).collect() };
        assert_eq!(leases(&one), [LeaseKind::None; 2]);
        let (first, second) = (one.read::<u8>(..).unwrap(), two.read::<u8>(..).unwrap());
        assert_eq!(leases(&two), [LeaseKind::Read; 2]);
        drop((first, second));
        let write = two.write::<u8>(..).unwrap();
        assert_eq!(leases(&one), [LeaseKind::None, LeaseKind::Write]);
        drop(write);
        assert_eq!(leases(&one), [LeaseKind::None; 2]);
        drop(two);
        assert_eq!(leases(&one).len(), 1);
    }
}
