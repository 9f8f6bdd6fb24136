//! Races of many threads and processes on one name.

use crate::children::play;
use crate::common::{WAYS, bounded, by, gone, name, path, refused};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use terrace_shm::{SharedBuffer, ShmError, Way};

#[test]
fn a_file_that_is_cut_and_grown_all_the_time_ends_no_process() {
    bounded(|| {
        let name = name("cuts");
        let buffer = by(Way::File).create(&name, 1 << 16).unwrap();
        let (done, path) = (AtomicBool::new(false), crate::common::path(&name));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(9);
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                while !done.load(Ordering::Relaxed) {
                    file.set_len(random.u64(0..1 << 17)).unwrap();
                }
            });
            let typed = |error: ShmError| match error {
                ShmError::CutShort { .. } | ShmError::Damaged { .. } | ShmError::Torn { .. } => {}
                ShmError::Foreign { .. } | ShmError::Full { .. } => {}
                error => panic!("{error}"),
            };
            for _ in 0..2000 {
                buffer.read::<u64>(..).map(|lease| drop(lease.to_vec())).unwrap_or_else(typed);
                buffer.write::<u64>(..).and_then(|lease| lease.commit()).unwrap_or_else(typed);
                buffer.holders().map(drop).unwrap_or_else(typed);
                SharedBuffer::open(&name).map(drop).unwrap_or_else(typed);
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(buffer);
        assert!(!path.exists());
    });
}

#[test]
fn openers_that_are_refused_while_the_last_holder_drops_leave_no_file_behind() {
    bounded(|| {
        let name = name("refused");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        match refused(by(Way::File).expect_bytes(2).open(&name)) {
                            ShmError::OtherSize { .. } | ShmError::NotFound { .. } => {}
                            error => panic!("{error}"),
                        }
                        drop(by(Way::File).create(&name, 1));
                    }
                });
            }
            for _ in 0..500 {
                match by(Way::File).create(&name, 1) {
                    Ok(_) | Err(ShmError::Exists { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(crate::common::left(&name), [""; 0]);
    });
}

#[test]
fn threads_and_processes_race_to_create_open_and_drop_one_name() {
    for way in WAYS {
        bounded(move || {
            let name = name("race");
            let mut processes: Vec<_> = (0..4).map(|_| play("churn", way, &name).ready()).collect();
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..60 {
                            let buffer = by(way).open_or_create(&name, 4096).unwrap();
                            assert!(way == Way::Memfd || path(&name).exists(), "not one that lost its name");
                            let mut lease = buffer.write::<u64>(..).unwrap();
                            assert!(lease.iter().all(|count| *count == lease[0]));
                            let next = lease[0] + 1;
                            lease.fill(next);
                        }
                    });
                }
            });
            assert!(processes.iter_mut().all(|process| process.says().as_deref() == Some("done")));
            drop(processes);
            assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
            gone(&name);
        });
    }
}
