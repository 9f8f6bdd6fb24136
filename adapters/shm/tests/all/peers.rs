//! What else may listen at a name, and connect to it.

use crate::children::{Played, command, play};
use crate::common::{address, bounded, by, gone, name, refused, until};
use std::io::Write as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;
use std::thread;
use std::time::Duration;
use terrace_shm::{SharedBuffer, ShmError, Way};

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_socket_that_speaks_something_else_is_told() {
    bounded(|| {
        for text in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            b"T",
            b"TERRASHM\x02\0\0\0\0\0\0\0",
            b"TERRASHM\x01\0\0\0\0\0\0\0",
        ] {
            let name = name("foreign");
            let listener = UnixListener::bind_addr(&address(&name)).unwrap();
            let server = thread::spawn(move || listener.accept().unwrap().0.write_all(text).unwrap());
            let error = refused(SharedBuffer::open(&name));
            assert!(matches!(error, ShmError::Foreign { .. }), "{error}");
            server.join().unwrap();
        }
    });
}

#[test]
fn a_socket_that_stays_silent_is_told_in_time() {
    bounded(|| {
        let name = name("silent");
        let listener = UnixListener::bind_addr(&address(&name)).unwrap();
        let opens = by(Way::Memfd).patience(SHORT);
        assert!(matches!(refused(opens.open(&name)), ShmError::Silent { waited: SHORT, .. }));
        assert!(matches!(refused(opens.create(&name, 1)), ShmError::Exists { .. }));
        // One that closes each connection at once.
        let closes = thread::spawn(move || {
            listener.set_nonblocking(true).unwrap();
            let mut seen = 0;
            for _ in 0..400 {
                seen += u32::from(listener.accept().is_ok());
                thread::sleep(Duration::from_micros(500));
            }
            seen
        });
        assert!(matches!(refused(opens.open(&name)), ShmError::Silent { .. }));
        assert!(closes.join().unwrap() > 1, "it tried again");
        assert!(matches!(refused(opens.open(&name)), ShmError::NotFound { .. }));
    });
}

#[test]
fn sockets_of_another_type_are_not_in_the_way_and_one_that_does_not_listen_is_told() {
    bounded(|| {
        let opens = by(Way::Memfd).patience(SHORT);
        let name = name("type");
        let datagrams = UnixDatagram::bind_addr(&address(&name)).unwrap();
        assert!(matches!(refused(opens.open(&name)), ShmError::NotFound { .. }));
        drop((opens.create(&name, 1).unwrap(), datagrams));
        let (family, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let bound = rustix::net::socket(family, stream, None).unwrap();
        let text = format!("terrace-shm/{}/{name}", crate::common::uid());
        rustix::net::bind(&bound, &rustix::net::SocketAddrUnix::new_abstract_name(text.as_bytes()).unwrap()).unwrap();
        assert!(matches!(refused(opens.open(&name)), ShmError::NotFound { .. }));
        assert!(matches!(refused(opens.create(&name, 1)), ShmError::Foreign { .. }));
        drop(bound);
        until("a process that is being started has it no longer", || opens.create(&name, 1).is_ok());
    });
}

#[test]
fn clients_that_never_read_or_go_away_disturb_nothing() {
    bounded(|| {
        let name = name("idle");
        let buffer = by(Way::Memfd).create(&name, 4096).unwrap();
        let idle: Vec<_> = (0..300).map(|_| UnixStream::connect_addr(&address(&name)).unwrap()).collect();
        (0..300).for_each(|_| drop(UnixStream::connect_addr(&address(&name)).unwrap()));
        drop(SharedBuffer::open(&name).unwrap());
        buffer.write::<u8>(..).unwrap().fill(1);
        drop((buffer, idle));
        gone(&name);
    });
}

#[test]
fn a_holder_that_is_stopped_keeps_no_opener_waiting_while_another_lives() {
    bounded(|| {
        let name = name("stopped");
        let creator = play("create", Way::Memfd, &name).ready();
        let holder = play("open", Way::Memfd, &name).ready();
        let signal = |signal: &str, pid: u32| {
            let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
            assert!(sent.success());
            let stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
            until("the signal arrives", || stopped() == (signal == "-STOP"));
        };
        signal("-STOP", creator.pid());
        for _ in 0..20 {
            drop(SharedBuffer::open(&name).unwrap());
        }
        signal("-STOP", holder.pid());
        let error = refused(by(Way::Memfd).patience(SHORT).open(&name));
        assert!(matches!(error, ShmError::Silent { .. }), "{error}");
        signal("-CONT", holder.pid());
        drop(SharedBuffer::open(&name).unwrap());
    });
}

#[test]
fn a_holder_without_descriptors_answers_when_it_has_some_again() {
    bounded(|| {
        let name = name("starved");
        let mut creator = play("starve", Way::Memfd, &name).ready();
        assert!(matches!(refused(by(Way::Memfd).patience(SHORT).open(&name)), ShmError::Silent { .. }));
        creator.go_on();
        drop(by(Way::Memfd).patience(Duration::from_secs(60)).open(&name).unwrap());
        assert!(creator.ends_well());
    });
}

#[test]
fn a_hundred_openers_at_once_are_all_answered() {
    bounded(|| {
        let name = name("hundred");
        let _buffer = by(Way::Memfd).create(&name, 4096).unwrap();
        // The table has 64 places: whoever finds it full is told so.
        let full = thread::scope(|scope| {
            let opens = || match SharedBuffer::open(&name) {
                Ok(buffer) => {
                    thread::sleep(Duration::from_millis(2));
                    u32::from(buffer.bytes() != 4096)
                }
                Err(ShmError::Full { .. }) => 0,
                Err(error) => panic!("{error}"),
            };
            let all: Vec<_> = (0..100).map(|_| scope.spawn(opens)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
        });
        assert_eq!(full, 0);
    });
}

#[test]
fn without_proc_every_call_says_so() {
    let name = name("proc");
    for way in crate::common::WAYS {
        let inner = command("without-proc", way, &name);
        let script = "umount -l /proc && exec \"$0\" \"$@\"";
        let mut outer = Command::new("unshare");
        outer.args(["-m", "sh", "-c", script]).arg(inner.get_program()).args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
        outer.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        outer.stderr(std::process::Stdio::null());
        let mut child = Played::start(outer);
        let Some(created) = child.says() else {
            println!("SKIP without_proc_every_call_says_so: run as root, with unshare (apt-get install util-linux)");
            return;
        };
        assert_eq!(created, "Err(NoProc)");
        assert!(child.says().unwrap().starts_with("Err(NotFound"));
        assert_eq!(child.says().unwrap(), "Err(NoProc)");
    }
    gone(&name);
}
