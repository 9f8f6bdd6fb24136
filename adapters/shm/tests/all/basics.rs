//! Names, sizes, types, ranges: what is refused, and with which error.

use crate::common::{WAYS, by, gone, name, refused};
use std::time::Duration;
use terrace_shm::{NAME_BYTES, Offset, SharedBuffer, ShmError, Way, list};

#[test]
fn a_buffer_is_created_opened_and_gone_with_its_last_holder() {
    for way in WAYS {
        let name = name("life");
        let made = by(way).create(&name, 10_000).unwrap();
        assert_eq!((made.name(), made.bytes(), made.way()), (&*name, 10_000, way));
        made.write::<u8>(..).unwrap().fill(7);
        let opened = SharedBuffer::open(&name).unwrap();
        assert_eq!((opened.bytes(), opened.way()), (10_000, way));
        drop(made);
        assert!(opened.read::<u8>(..).unwrap().iter().all(|byte| *byte == 7));
        assert!(matches!(refused(by(way).create(&name, 1)), ShmError::Exists { .. }));
        let third = SharedBuffer::open(&name).unwrap();
        drop((opened, third));
        assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::NotFound { .. }));
        gone(&name);
        // The name is free at once.
        drop(by(way).create(&name, 1).unwrap());
        gone(&name);
    }
}

#[test]
fn names_that_break_the_rule_are_refused_and_the_rule_is_told() {
    let long = "x".repeat(NAME_BYTES + 1);
    let longer = "x".repeat(300);
    for name in ["", "a/b", "../a", ".hidden", "a\0b", "a b", "ä", "a\n", &long, &longer] {
        for way in WAYS {
            for error in [refused(by(way).create(name, 1)), refused(by(way).open(name))] {
                assert!(matches!(error, ShmError::Name { .. }), "{error}");
                assert!(error.to_string().contains("1 to 80 bytes of A-Z a-z 0-9 . _ -"), "{error}");
            }
        }
    }
    let longest = format!("{:x<80}", name("longest"));
    assert!(WAYS.iter().all(|way| by(*way).create(&longest, 1).is_ok()));
}

#[test]
fn no_patience_is_too_long_and_none_is_enough() {
    for way in WAYS {
        let name = name("patience");
        let made = by(way).patience(Duration::MAX).create(&name, 8).unwrap();
        drop(made.read_timeout::<u8>(.., Duration::MAX).unwrap());
        drop(made.write_timeout::<u8>(.., Duration::ZERO).unwrap());
        assert!(by(way).patience(Duration::MAX).open(&name).is_ok());
        assert!(matches!(by(way).patience(Duration::ZERO).open(&name), Ok(_) | Err(ShmError::Silent { .. })));
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for way in WAYS {
        for bytes in [0, usize::MAX, isize::MAX as usize, isize::MAX as usize / 2 + 1] {
            let error = refused(by(way).create(&name("size"), bytes));
            assert!(matches!(error, ShmError::Size { .. }), "{error}");
        }
        // More than there is: an error now, not a signal later.
        let error = refused(by(way).create(&name("size"), 1 << 50));
        assert!(matches!(error, ShmError::NoMemory { .. }), "{error}");
    }
}

#[test]
fn another_size_and_another_type_are_told() {
    for way in WAYS {
        let name = name("other");
        let made = by(way).element::<u32>("pixels").create(&name, 4096).unwrap();
        let error = refused(by(way).expect_bytes(8192).open(&name));
        assert!(matches!(error, ShmError::OtherSize { asked: 8192, found: 4096, .. }), "{error}");
        let error = refused(by(way).open_or_create(&name, 8192));
        assert!(matches!(error, ShmError::OtherSize { .. }), "{error}");
        for other in
            [by(way).element::<u64>("pixels"), by(way).element::<[u16; 2]>("pixels"), by(way).element::<u32>("depths")]
        {
            assert!(matches!(refused(other.open(&name)), ShmError::OtherType { .. }));
        }
        assert!(by(way).element::<u32>("pixels").expect_bytes(4096).open(&name).is_ok());
        assert!(by(way).open_or_create(&name, 4096).is_ok());
        drop(made);
        let made = by(way).open_or_create(&name, 1).unwrap();
        assert!(matches!(refused(by(way).element::<u32>("x").open(&name)), ShmError::OtherType { .. }), "without one");
        drop(made);
    }
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(8192))]
struct TooAligned([[u8; 4096]; 2]);

#[test]
fn ranges_beyond_the_end_and_misaligned_views_are_refused() {
    for way in WAYS {
        let buffer = by(way).create(&name("range"), 10_000).unwrap();
        for (start, end) in [(0, 10_001), (10_001, 10_001), (5, 4), (usize::MAX, usize::MAX), (0, usize::MAX)] {
            assert!(matches!(refused(buffer.read::<u8>(start..end)), ShmError::OutOfRange { .. }));
            assert!(matches!(refused(buffer.write::<u8>(start..end)), ShmError::OutOfRange { .. }));
        }
        assert!(matches!(refused(buffer.read::<u8>(0..=usize::MAX)), ShmError::OutOfRange { .. }));
        for range in [1..9, 0..9, 4..12, 0..9999] {
            assert!(matches!(refused(buffer.read::<u64>(range.clone())), ShmError::Misaligned { .. }));
            assert!(matches!(refused(buffer.write::<u64>(range)), ShmError::Misaligned { .. }));
        }
        assert!(matches!(refused(buffer.read::<()>(..)), ShmError::Misaligned { size: 0, .. }));
        assert!(matches!(refused(buffer.read::<TooAligned>(0..8192)), ShmError::Misaligned { align: 8192, .. }));
        assert_eq!(buffer.read::<u64>(8..8).unwrap().len(), 0);
        assert_eq!(buffer.read::<Line>(64..64 * 100).unwrap().len(), 99);
        buffer.write::<Line>(64..128).unwrap()[0] = Line([9; 64]);
        assert_eq!(buffer.read::<u16>(62..66).unwrap()[..], [0, 0x0909]);
        assert_eq!(buffer.read::<u8>(9_999..).unwrap().len(), 1);
    }
}

#[test]
fn offsets_mean_the_same_in_each_view_and_never_reach_beyond_it() {
    for way in WAYS {
        let name = name("offset");
        let buffer = by(way).create(&name, 8192).unwrap();
        let mut lease = buffer.write::<u8>(..).unwrap();
        *lease.at_mut(Offset::<u64>::new(5000)).unwrap() = 77;
        *lease.at_mut(Offset::<Offset<u64>>::new(16)).unwrap() = Offset::new(5000);
        assert_eq!(*lease.at(Offset::<u64>::new(5000)).unwrap(), 77);
        lease.commit().unwrap();
        let opened = SharedBuffer::open(&name).unwrap();
        let lease = opened.read::<u8>(8..8000).unwrap();
        let stored = *lease.at(Offset::<Offset<u64>>::new(16)).unwrap();
        assert_eq!((stored.bytes(), *lease.at(stored).unwrap()), (5000, 77));
        assert_eq!(lease.slice_at(Offset::<u64>::new(4992), 3).unwrap(), [0, 77, 0]);
        for beyond in [0, 7, 7_993, 8_000, 8_192, u64::MAX, u64::MAX - 7, 1 << 63] {
            assert!(matches!(refused(lease.at(Offset::<u64>::new(beyond))), ShmError::OutOfRange { .. }), "{beyond}");
        }
        assert!(matches!(refused(lease.at(Offset::<u64>::new(5001))), ShmError::Misaligned { .. }));
        for count in [usize::MAX, usize::MAX / 8, 1000] {
            assert!(matches!(refused(lease.slice_at(Offset::<u64>::new(16), count)), ShmError::OutOfRange { .. }));
        }
    }
}

#[test]
fn the_list_has_the_names_of_both_ways() {
    let name = name("list");
    let made: Vec<_> = WAYS.iter().map(|way| by(*way).create(&name, 1).unwrap()).collect();
    let found: Vec<_> = list().unwrap().into_iter().filter(|found| found.name == name).collect();
    let ways: Vec<_> = found.iter().map(|found| (found.way, found.alive, found.uid)).collect();
    let uid = crate::common::uid();
    assert_eq!(ways, [(Way::Memfd, Some(true), uid), (Way::File, Some(true), uid)]);
    drop(made);
    crate::common::until("nothing is listed", || list().unwrap().iter().all(|found| found.name != name));
}

#[test]
fn a_sealed_buffer_cannot_change_its_size() {
    let name = name("sealed");
    let _buffer = by(Way::Memfd).create(&name, 10_000).unwrap();
    let link = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .find(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains(&name)));
    let file = std::fs::OpenOptions::new().write(true).open(link.unwrap().path()).unwrap();
    assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
}
