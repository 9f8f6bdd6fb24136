//! A forked child is refused, and its drops do nothing to its parent's holds.

use crate::common::{WAYS, bounded, by, name, path, refused};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_shm::{Offset, SharedBuffer, ShmError, Way};

/// Forks; the child does `work` and ends.
fn in_child<T>(values: T, work: impl FnOnce(T)) -> T {
    // SAFETY: the child takes no lock that another thread of the parent may hold, and ends below.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(60) };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(values)));
            // SAFETY: ends this process, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        child => {
            let mut status = -1;
            // SAFETY: our own child; the out parameter lives through the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child hangs (14), aborts (6) or panics (256)");
            values
        }
    }
}

#[test]
fn a_forked_child_is_refused_and_its_drops_do_nothing() {
    for way in WAYS {
        let name = name("fork");
        let buffer = by(way).create(&name, 4096).unwrap();
        let buffer = in_child(buffer, |buffer| {
            let forked = |error: ShmError| matches!(error, ShmError::Forked { .. });
            assert!(forked(refused(buffer.read::<u8>(..))) && forked(refused(buffer.try_write::<u8>(..))));
            assert!(forked(refused(buffer.write_after_crash::<u8>(..))) && forked(refused(buffer.recover())));
            assert!(forked(refused(buffer.holders())) && forked(refused(buffer.creator())));
            drop(buffer);
        });
        buffer.write::<u8>(..).unwrap().fill(1);
        drop(SharedBuffer::open(&name).unwrap());
        assert!(way == Way::Memfd || path(&name).exists());
        drop(buffer);
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
    }
}

#[test]
fn a_forked_child_with_a_lease_ends_nothing_of_its_parent_s() {
    for way in WAYS {
        let name = name("fork-lease");
        let buffer = by(way).create(&name, 64).unwrap();
        let mut lease = buffer.write::<u8>(..).unwrap();
        lease.fill(1);
        let lease = in_child(lease, |mut lease| {
            if way == Way::Memfd {
                assert!(lease.is_empty() && matches!(refused(lease.at(Offset::<u8>::new(0))), ShmError::Forked { .. }));
                assert!(matches!(refused(lease.at_mut(Offset::<u8>::new(0))), ShmError::Forked { .. }));
            }
            lease.iter_mut().for_each(|byte| *byte = 9);
            assert!(matches!(refused(lease.commit()), ShmError::Forked { .. }));
        });
        let other = SharedBuffer::open(&name).unwrap();
        assert!(matches!(refused(other.try_read::<u8>(..)), ShmError::Busy { .. }), "still the parent's");
        lease.commit().unwrap();
        assert_eq!(other.try_read::<u8>(..).unwrap()[..], [1; 64]);
    }
}

#[test]
fn a_forked_child_that_lives_on_holds_no_lease_no_place_and_no_file_of_its_parent_s() {
    for way in WAYS {
        let name = name("fork-lives");
        let buffer = by(way).create(&name, 64).unwrap();
        let (ended, end) = std::io::pipe().unwrap();
        // SAFETY: the child takes no lock that another thread of the parent may hold, and ends below.
        let child = match unsafe { libc::fork() } {
            0 => {
                drop(end);
                let _ = std::io::Read::read(&mut &ended, &mut [0]);
                // SAFETY: ends this process, and runs nothing of the parent's.
                unsafe { libc::_exit(0) }
            }
            child => child,
        };
        drop(ended);
        let other = SharedBuffer::open(&name).unwrap();
        std::mem::forget(buffer.read::<u8>(..).unwrap());
        drop(buffer);
        assert_eq!(other.holders().unwrap().len(), 1);
        assert!(!other.creator().unwrap().alive);
        drop(other.try_write::<u8>(..).unwrap());
        drop(other);
        assert!(!path(&name).exists());
        drop(end);
        // SAFETY: waits for our own child, and reads no status.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
    }
}

#[test]
fn forks_in_the_middle_of_other_threads_calls_harm_neither() {
    for way in WAYS {
        bounded(move || {
            let (shared, done) = (by(way).create(&name("fork-middle"), 4096).unwrap(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let mut lease = shared.write::<u64>(..).unwrap();
                            let next = lease[0] + 1;
                            lease.fill(next);
                            drop(lease);
                            drop(SharedBuffer::open(shared.name()).unwrap());
                        }
                    });
                }
                for _ in 0..40 {
                    let own = name("fork-middle-own");
                    in_child(&shared, |shared| {
                        assert!(matches!(refused(shared.read::<u8>(..)), ShmError::Forked { .. }));
                        let made = by(way).create(&own, 64).unwrap();
                        made.write::<u8>(..).unwrap().fill(1);
                        assert_eq!(SharedBuffer::open(&own).unwrap().read::<u8>(..).unwrap()[..], [1; 64]);
                    });
                }
                done.store(true, Ordering::Relaxed);
            });
            let lease = shared.read::<u64>(..).unwrap();
            assert!(lease.iter().all(|count| *count == lease[0]));
        });
    }
}

#[test]
fn a_forked_child_opens_and_serves_by_itself() {
    for way in WAYS {
        let name = name("fork-open");
        let buffer = by(way).create(&name, 64).unwrap();
        let own = crate::common::name("fork-own");
        let buffer = in_child(buffer, |_buffer| {
            SharedBuffer::open(&name).unwrap().write::<u8>(..).unwrap().fill(4);
            let made = by(way).create(&own, 64).unwrap();
            assert_eq!(SharedBuffer::open(&own).unwrap().bytes(), 64);
            drop(made);
        });
        assert_eq!(buffer.read::<u8>(..).unwrap()[..], [4; 64]);
        assert!(matches!(refused(SharedBuffer::open(&own)), ShmError::NotFound { .. }));
    }
}
