//! Holders that keep no rule: what they send, and what they write into the header.

use crate::common::{address, bounded, by, gone, name, refused, uid, until};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;
use terrace_shm::{SharedBuffer, ShmError, Way};

const SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Memory that begins with some bytes, under some seals.
fn memory(bytes: u64, header: &[u8], seals: SealFlags) -> File {
    let made = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    if bytes > 0 {
        rustix::fs::fallocate(&made, FallocateFlags::empty(), 0, bytes).unwrap();
    }
    let file = File::from(made);
    file.write_all_at(&header[..header.len().min(bytes as usize)], 0).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// A header as the format has it, little-endian: memfd, 4096 bytes, this user's.
fn header() -> Vec<u8> {
    let mut header = b"TERRASHM\x01\0\0\0\x01\0\0\0\0\x10\0\0".to_vec();
    header.resize(4096, 0);
    header[56..60].copy_from_slice(&uid().to_le_bytes());
    header
}

/// Answers one opener as a holder does, with these descriptors.
fn answer(listener: &UnixListener, files: &[BorrowedFd<'_>]) {
    let client = listener.accept().unwrap().0;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    let bytes = b"TERRASHM\x01\0\0\0\0\0\0\0";
    rustix::net::sendmsg(&client, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// What an opener says to a holder that sends this memory, and its own listener unless another descriptor is given.
fn told(memory: &impl AsFd, other: Option<&OwnedFd>) -> Result<SharedBuffer, ShmError> {
    let name = name("impostor");
    let listener = UnixListener::bind_addr(&address(&name)).unwrap();
    thread::scope(|scope| {
        let opens = scope.spawn(|| by(Way::Memfd).patience(Duration::from_secs(20)).open(&name));
        let own = listener.as_fd();
        answer(&listener, &[memory.as_fd(), other.map_or(own, |other| other.as_fd())]);
        opens.join().unwrap()
    })
}

#[test]
fn memory_that_is_no_sealed_buffer_is_refused() {
    bounded(|| {
        let cases = [
            (8192, SealFlags::empty()),
            (8192, SealFlags::SHRINK),
            (8192, SealFlags::GROW),
            (8192, SIZE | SealFlags::WRITE),
            (8192, SIZE | SealFlags::FUTURE_WRITE),
            (4096, SIZE),
            (100, SIZE),
            (0, SIZE),
            (8191, SIZE),
            (12_288, SIZE),
        ];
        for (bytes, seals) in cases {
            let error = refused(told(&memory(bytes, &header(), seals), None));
            let typed = matches!(error, ShmError::Foreign { .. } | ShmError::Damaged { .. });
            assert!(typed, "{bytes} {seals:?}: {error}");
        }
        assert_eq!(told(&memory(8192, &header(), SIZE), None).unwrap().bytes(), 4096, "this one is as it should be");
        let mut other = header();
        other[56..60].copy_from_slice(&(uid() + 1).to_le_bytes());
        assert!(matches!(refused(told(&memory(8192, &other, SIZE), None)), ShmError::Damaged { .. }), "another owner");
        // No memory at all: a file, a folder, a socket, a pipe.
        let folder = File::open("/tmp").unwrap();
        let file = OpenOptions::new().read(true).open(std::env::current_exe().unwrap()).unwrap();
        let (pipe, _end) = std::io::pipe().unwrap();
        for error in [refused(told(&folder, None)), refused(told(&file, None)), refused(told(&pipe, None))] {
            assert!(matches!(error, ShmError::Foreign { .. }), "{error}");
        }
    });
}

#[test]
fn a_descriptor_that_does_not_listen_at_the_name_is_refused() {
    bounded(|| {
        let good = memory(8192, &header(), SIZE);
        let elsewhere: OwnedFd = UnixListener::bind_addr(&address(&name("elsewhere"))).unwrap().into();
        let file: OwnedFd = File::open("/dev/null").unwrap().into();
        let pair: OwnedFd = std::os::unix::net::UnixStream::pair().unwrap().0.into();
        let internet: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        for other in [&elsewhere, &file, &pair, &internet] {
            let error = refused(told(&good, Some(other)));
            assert!(matches!(error, ShmError::Foreign { .. }), "{error}");
        }
        // One descriptor, and more than two: none of them is kept.
        for count in [1, 3, 8] {
            let name = name("count");
            let listener = UnixListener::bind_addr(&address(&name)).unwrap();
            let pipe = std::io::pipe().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| answer(&listener, &vec![pipe.1.as_fd(); count]));
                let error = refused(by(Way::Memfd).open(&name));
                assert!(matches!(error, ShmError::Foreign { .. }), "{error}");
            });
            drop(pipe.1);
            // The end of the pipe is seen once no copy is left.
            assert_eq!(std::io::Read::read(&mut &pipe.0, &mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn a_peer_that_shuts_one_socket_down_keeps_no_other_buffer_from_being_opened() {
    bounded(|| {
        let names: Vec<_> = (0..3).map(|_| name("shut")).collect();
        let made: Vec<_> = names.iter().map(|name| by(Way::Memfd).create(name, 4096).unwrap()).collect();
        for name in &names[..2] {
            rustix::net::shutdown(listener_of(name), rustix::net::Shutdown::Both).unwrap();
            assert!(matches!(refused(SharedBuffer::open(name)), ShmError::NotFound { .. }), "it does not listen");
        }
        for _ in 0..20 {
            assert_eq!(SharedBuffer::open(&names[2]).unwrap().bytes(), 4096);
        }
        until("the thread that answers sleeps", || {
            let before = ticks();
            thread::sleep(Duration::from_millis(100));
            ticks() == before
        });
        drop(made);
    });
}

#[test]
fn a_peer_that_makes_the_socket_wait_stops_no_holder() {
    bounded(|| {
        let name = name("waits");
        let made = by(Way::Memfd).create(&name, 4096).unwrap();
        // Two holds wake for one opener, and one of them finds none.
        let second = SharedBuffer::open(&name).unwrap();
        let listener = listener_of(&name);
        rustix::io::ioctl_fionbio(&listener, false).unwrap();
        for _ in 0..3 {
            drop(SharedBuffer::open(&name).unwrap());
            rustix::io::ioctl_fionbio(&listener, false).unwrap();
        }
        drop((made, second, listener));
        gone(&name);
    });
}

/// The socket that listens at a name, as every opener gets it.
fn listener_of(name: &str) -> OwnedFd {
    let client = UnixStream::connect_addr(&address(name)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 16];
    let mut bytes = [IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(&client, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.flatten().nth(1).unwrap()
}

/// Processor time of the threads that answer openers in this process, in ticks.
fn ticks() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let ours = stats.filter(|stat| stat.contains("(terrace-shm)"));
    ours.map(|stat| stat.split(' ').skip(13).take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn random_headers_are_typed_errors() {
    bounded(|| {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..300 {
            let mut bytes = header();
            let from = if round % 2 == 0 { 12 } else { 16 };
            bytes[from..].iter_mut().for_each(|byte| *byte = random.u8(..));
            let error = refused(told(&memory(8192, &bytes, SIZE), None));
            assert!(matches!(error, ShmError::Damaged { .. } | ShmError::Foreign { .. }), "{error}");
        }
        // The part that never changes is right, all that follows is random: the buffer opens, and no call panics.
        for _ in 0..50 {
            let mut bytes = header();
            bytes[96..].iter_mut().for_each(|byte| *byte = random.u8(..));
            use_it(&told(&memory(8192, &bytes, SIZE), None).unwrap());
        }
    });
}

/// Every call on a buffer: it may fail, in its own words.
fn use_it(buffer: &SharedBuffer) {
    let _ = (buffer.holders().unwrap(), buffer.creator().unwrap());
    match buffer.try_read::<u8>(..) {
        Ok(_) | Err(ShmError::Torn { .. } | ShmError::Busy { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    match buffer.write_timeout::<u8>(.., Duration::from_millis(1)) {
        Ok(mut lease) => lease.fill(1),
        Err(ShmError::Torn { .. } | ShmError::Busy { .. }) => drop(buffer.recover().unwrap()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_peer_that_writes_over_the_header_all_the_time_breaks_no_call() {
    bounded(|| {
        let name = name("scribble");
        let buffer = by(Way::Memfd).create(&name, 4096).unwrap();
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let path = entries
            .map(|entry| entry.path())
            .find(|path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(&name)));
        let file = OpenOptions::new().write(true).open(path.unwrap()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(6);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let bytes: [u8; 4096] = std::array::from_fn(|_| random.u8(..));
                    file.write_all_at(&bytes, 0).unwrap();
                }
            });
            for _ in 0..300 {
                use_it(&buffer);
                match SharedBuffer::open(&name) {
                    Ok(_) | Err(ShmError::Foreign { .. } | ShmError::Damaged { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        drop(buffer);
        gone(&name);
    });
}
