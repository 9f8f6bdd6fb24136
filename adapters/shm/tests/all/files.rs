//! Files: what another process may do to one at any moment, and what else may stand at its path.

use crate::children::play;
use crate::common::{by, name, path, refused};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use terrace_shm::{SharedBuffer, ShmError, Way};

fn cut(name: &str, bytes: u64) {
    OpenOptions::new().write(true).open(path(name)).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_cut_short_is_a_typed_error_and_no_signal() {
    for bytes in [0, 3, 4095, 4096, 4097, 8192, 13_999] {
        let name = name("cut");
        let buffer = by(Way::File).create(&name, 10_000).unwrap();
        let read = buffer.read::<u8>(..).unwrap();
        cut(&name, bytes);
        assert!(read.iter().all(|byte| *byte == 0), "a copy");
        drop(read);
        for error in [refused(buffer.read::<u8>(..)), refused(buffer.read::<u8>(0..1)), refused(buffer.write::<u8>(..))]
        {
            assert!(matches!(error, ShmError::CutShort { bytes: 14_096, found, .. } if found == bytes), "{error}");
        }
        let error = refused(SharedBuffer::open(&name));
        let told =
            matches!(error, ShmError::CutShort { .. }) || (bytes < 96 && matches!(error, ShmError::Foreign { .. }));
        assert!(told, "{bytes}: {error}");
        // Cut by a process that died: removed.
        drop(buffer);
        assert!(!path(&name).exists());
    }
}

#[test]
fn a_file_cut_short_under_a_write_lease_is_told_by_its_commit() {
    let name = name("cut-write");
    let buffer = by(Way::File).create(&name, 10_000).unwrap();
    let mut lease = buffer.write::<u8>(..).unwrap();
    lease.fill(1);
    cut(&name, 5000);
    assert!(matches!(refused(lease.commit()), ShmError::CutShort { found: 5000, .. }));
    // The same with a header that is gone.
    let over = crate::common::name("over-write");
    let buffer = by(Way::File).create(&over, 10_000).unwrap();
    let lease = buffer.write::<u8>(..).unwrap();
    OpenOptions::new().write(true).open(path(&over)).unwrap().write_all(&[0xff; 8]).unwrap();
    assert!(matches!(refused(lease.commit()), ShmError::Damaged { .. }));
    fs::remove_file(path(&over)).unwrap();
}

#[test]
fn a_header_that_another_process_writes_over_is_told() {
    let name = name("over");
    let buffer = by(Way::File).create(&name, 4096).unwrap();
    let mut file = OpenOptions::new().write(true).open(path(&name)).unwrap();
    file.write_all(&[0xff; 96]).unwrap();
    assert!(matches!(refused(buffer.read::<u8>(..)), ShmError::Damaged { .. }));
    assert!(matches!(refused(SharedBuffer::open(&name)), ShmError::Foreign { .. }));
    // Magic and version as they should be, the rest random.
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..300 {
        let mut header: [u8; 4096] = std::array::from_fn(|_| random.u8(..));
        header[..12].copy_from_slice(b"TERRASHM\x01\0\0\0");
        file.rewind().unwrap();
        file.write_all(&header).unwrap();
        let error = refused(SharedBuffer::open(&name));
        assert!(matches!(error, ShmError::Damaged { .. } | ShmError::CutShort { .. }), "{error}");
        let _ = (buffer.holders(), buffer.creator());
        assert!(matches!(refused(buffer.read::<u8>(..)), ShmError::Damaged { .. }));
    }
    fs::remove_file(path(&name)).unwrap();
}

#[test]
fn what_else_stands_at_the_path_is_told_and_stays() {
    let name = name("else");
    let path = path(&name);
    let told = |what: &str| {
        for error in [refused(by(Way::File).open(&name)), refused(by(Way::File).create(&name, 1))] {
            assert!(matches!(error, ShmError::Foreign { .. }), "{what}: {error}");
        }
        assert!(fs::symlink_metadata(&path).is_ok(), "{what}");
    };
    fs::create_dir(&path).unwrap();
    told("a folder");
    fs::remove_dir(&path).unwrap();
    let other = crate::common::name("other");
    let buffer = by(Way::File).create(&other, 1).unwrap();
    std::os::unix::fs::symlink(crate::common::path(&other), &path).unwrap();
    told("a link, even to a buffer");
    drop(buffer);
    fs::remove_file(&path).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    told("a socket");
    drop(socket);
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    told("a pipe");
    fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().write_all(b"a letter").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    told("a file of another program");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_was_cut_by_a_process_that_died_is_removed() {
    for bytes in [0, 5, 100, 5000] {
        let name = name("cut-dead");
        play("create", Way::File, &name).ready().kill();
        cut(&name, bytes);
        drop(by(Way::File).create(&name, 1).unwrap());
        assert!(!path(&name).exists());
    }
}

#[test]
fn a_name_taken_away_and_given_anew_is_another_buffer() {
    let name = name("renamed");
    let old = by(Way::File).create(&name, 4096).unwrap();
    fs::remove_file(path(&name)).unwrap();
    let new = by(Way::File).create(&name, 8192).unwrap();
    drop(old);
    assert!(path(&name).exists(), "the old one removes only its own");
    assert_eq!(SharedBuffer::open(&name).unwrap().bytes(), 8192);
    drop(new);
    assert!(!path(&name).exists());
}
