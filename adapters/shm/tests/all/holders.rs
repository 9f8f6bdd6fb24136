//! Deaths: of creators, of holders, of writers.

use crate::children::play;
use crate::common::{WAYS, by, gone, name, path, refused};
use terrace_shm::{LeaseKind, SharedBuffer, ShmError, Way, list};

#[test]
fn a_dead_creator_is_detected_and_holders_go_on_serving_opens() {
    for way in WAYS {
        let name = name("creator");
        let mut creator = play("create", way, &name).ready();
        let buffer = SharedBuffer::open(&name).unwrap();
        creator.kill();
        let told = buffer.creator().unwrap();
        assert!(told.is_creator && !told.alive && told.pid == creator.pid());
        let holders = buffer.holders().unwrap();
        assert_eq!(holders.iter().filter(|holder| holder.alive).count(), 1);
        assert!(holders.iter().any(|holder| holder.is_creator && !holder.alive));
        // A third process opens it from this one, and a fourth from the third.
        let third = play("open", way, &name).ready();
        let told = buffer.creator().unwrap();
        assert_eq!((told.pid, told.alive, told.is_creator), (creator.pid(), false, true), "the third has its place");
        drop(buffer);
        let again = SharedBuffer::open(&name).unwrap();
        drop((third, again));
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
        gone(&name);
    }
}

#[test]
fn a_dead_holder_is_detected_and_its_place_is_taken_again() {
    for way in WAYS {
        let name = name("holder");
        let buffer = by(way).create(&name, 4096).unwrap();
        for _ in 0..7 {
            let mut holder = play("open", way, &name).ready();
            let alive =
                |pid| buffer.holders().unwrap().iter().find(|holder| holder.pid == pid).map(|found| found.alive);
            assert_eq!(alive(holder.pid()), Some(true));
            holder.kill();
            assert_eq!(alive(holder.pid()), Some(false));
        }
        assert_eq!(buffer.holders().unwrap().len(), 2, "one place for all of them");
    }
}

#[test]
fn a_dead_lessee_frees_its_lease_and_a_half_written_buffer_is_told() {
    for way in WAYS {
        crate::common::bounded(move || kill_a_lessee(way));
    }
}

fn kill_a_lessee(way: Way) {
    {
        let name = name("lessee");
        let buffer = by(way).create(&name, 4096).unwrap();
        let mut writer = play("lease", way, &name).ready();
        assert!(matches!(refused(buffer.try_read::<u8>(..)), ShmError::Busy { .. }));
        let lease = |buffer: &SharedBuffer| buffer.holders().unwrap()[1].lease;
        assert_eq!(lease(&buffer), LeaseKind::Write);
        // A reader waits while the writer is killed: the waiter learns of it without being woken.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| buffer.read::<u8>(..).map(|lease| lease.to_vec()));
            std::thread::sleep(std::time::Duration::from_millis(10));
            writer.kill();
            match (way, waits.join().unwrap()) {
                (Way::Memfd, Err(ShmError::Torn { pid, .. })) => assert_eq!(pid, writer.pid()),
                (Way::File, Ok(bytes)) => assert_eq!(bytes, [0; 4096], "never written back"),
                (_, told) => panic!("{told:?}"),
            }
        });
        assert_eq!(lease(&buffer), LeaseKind::Write, "the one it died with");
        if way == Way::Memfd {
            assert!(matches!(refused(buffer.write::<u8>(..)), ShmError::Torn { .. }));
            assert_eq!(buffer.recover().unwrap(), Some(writer.pid()));
            let bytes = buffer.read::<u64>(..).unwrap();
            assert_eq!((bytes[0], bytes[511]), (99, 0), "accepted as they are");
        }
        assert_eq!(buffer.recover().unwrap(), None);
    }
}

#[test]
fn the_next_open_removes_the_file_of_dead_holders() {
    let name = name("stale");
    for _ in 0..2 {
        play("create", Way::File, &name).ready().kill();
        assert!(path(&name).exists());
        let found = list().unwrap().into_iter().find(|found| found.name == name).unwrap();
        assert_eq!(found.alive, Some(false));
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
        assert!(!path(&name).exists());
    }
    // So does the next creation.
    play("create", Way::File, &name).ready().kill();
    drop(by(Way::File).create(&name, 1).unwrap());
    assert!(!path(&name).exists());
}

#[test]
fn the_kernel_removes_the_memory_of_dead_holders() {
    let name = name("memory");
    play("create", Way::Memfd, &name).ready().kill();
    gone(&name);
    assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
}

#[test]
fn a_full_table_is_a_typed_error() {
    for way in WAYS {
        let name = name("full");
        let mut holds = vec![by(way).create(&name, 1).unwrap()];
        holds.extend((1..64).map(|_| SharedBuffer::open(&name).unwrap()));
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::Full { slots: 64, .. }));
        holds.truncate(63);
        assert!(SharedBuffer::open(&name).is_ok());
        assert_eq!(holds[5].holders().unwrap().len(), 63);
    }
}
