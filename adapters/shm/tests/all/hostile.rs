//! Races of many threads and processes on one name.

use crate::children::play;
use crate::common::{WAYS, bounded, by, gone, name, refused};
use std::thread;
use terrace_shm::{SharedBuffer, ShmError};

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
