//! The abstract socket that gives memory a name.
//!
//! Promises upward: a call waits for a bounded time; a name that a process of another user holds is told as such; no descriptor of
//! a peer is kept unless it is what it should be.
//! Asks from below: abstract Unix sockets, `SCM_RIGHTS`, `SO_PEERCRED`.
//!
//! The answer of a holder is 16 bytes: "TERRASHM", the version, a status; with it go the memory and the listening socket itself, so
//! that the name outlives its creator.

use crate::error::ShmError;
use crate::layout::VERSION;
use crate::name::BufferName;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

const MAGIC: &[u8; 8] = b"TERRASHM";
const ANSWER_BYTES: usize = 16;
/// Openers that wait for a holder to accept; what comes beyond tries again.
const BACKLOG: i32 = 128;
/// How long an opener sleeps before it tries again.
const PAUSE: Duration = Duration::from_millis(1);

/// What a holder's answer brings.
#[derive(Debug)]
pub struct Received {
    /// The memfd.
    pub memory: OwnedFd,
    /// The socket that listens at the name.
    pub listener: OwnedFd,
}

/// The user and the process behind a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its process; 0 for one in another PID namespace.
    pub pid: u32,
}

/// Asks the system for the other end's user. For a client that is the process that called `listen`.
pub fn peer(socket: BorrowedFd<'_>) -> Result<Peer, ShmError> {
    let told = nix::sys::socket::getsockopt(&socket, PeerCredentials);
    let told = told.map_err(|error| ShmError::System { what: "asking for a peer's user", error: error.into() })?;
    Ok(Peer { uid: told.uid(), pid: told.pid() as u32 })
}

/// How an opener finds a buffer.
#[derive(Debug)]
pub struct NameSearch<'a> {
    /// The buffer's name.
    pub name: &'a BufferName,
    /// The user whose name it is.
    pub owner: u32,
    /// Users besides the owner whose sockets are trusted.
    pub users: &'a [u32],
    /// How long to wait for an answer.
    pub patience: Duration,
}

/// Takes the name. `Exists` or `Squatted` where another process has it.
pub fn listen(search: &NameSearch<'_>) -> Result<OwnedFd, ShmError> {
    let (address, deadline) = (search.name.address(search.owner)?, Instant::now() + search.patience);
    let socket = new_socket()?;
    loop {
        match rustix::net::bind(&socket, &address) {
            Ok(()) => break,
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(ShmError::system("taking a name")(error)),
        }
        // A process that is being started may keep the socket of a last holder open for a moment, and never answers.
        let connected = connect(search, deadline)?;
        match connected.as_ref().map(|socket| receive(search, socket.as_fd(), deadline)) {
            Some(Ok(Some(_)) | Err(ShmError::Silent { .. } | ShmError::Refused { .. })) => {
                return Err(ShmError::Exists { name: search.name.text() });
            }
            Some(Err(error)) => return Err(error),
            // Its last holder ends just now, or its creator does not listen yet.
            None | Some(Ok(None)) if Instant::now() < deadline => sleep(PAUSE),
            None => return Err(search.foreign("a socket that does not listen")),
            Some(Ok(None)) => return Err(search.silent()),
        }
    }
    rustix::net::listen(&socket, BACKLOG).map_err(ShmError::system("listening at a name"))?;
    Ok(socket)
}

/// Gets memory and socket from any holder. `NotFound` where there is none.
pub fn fetch(search: &NameSearch<'_>) -> Result<Received, ShmError> {
    let deadline = Instant::now() + search.patience;
    loop {
        let Some(socket) = connect(search, deadline)? else { return Err(search.not_found()) };
        if let Some(received) = receive(search, socket.as_fd(), deadline)? {
            return Ok(received);
        }
        // The holder ended before it answered: another one may live.
        if Instant::now() > deadline {
            return Err(search.silent());
        }
        sleep(PAUSE);
    }
}

/// A connection to a socket of a trusted user; `None` where no process listens.
fn connect(search: &NameSearch<'_>, deadline: Instant) -> Result<Option<OwnedFd>, ShmError> {
    let address = search.name.address(search.owner)?;
    let socket = new_socket()?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::CONNREFUSED) => return Ok(None),
            // Others wait too: the backlog is full.
            Err(Errno::AGAIN) if Instant::now() < deadline => sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(search.silent()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ShmError::system("connecting to a name")(error)),
        }
    }
    let peer = peer(socket.as_fd())?;
    match peer.uid == search.owner || search.users.contains(&peer.uid) {
        true => Ok(Some(socket)),
        false => Err(ShmError::Squatted { name: search.name.text(), uid: peer.uid, pid: peer.pid }),
    }
}

/// The answer; `None` where the connection ended without one.
fn receive(search: &NameSearch<'_>, socket: BorrowedFd<'_>, deadline: Instant) -> Result<Option<Received>, ShmError> {
    if !readable(socket, deadline)? {
        return Err(search.silent());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; ANSWER_BYTES];
    let told = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut answer)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let bytes = match told {
        Ok(told) => told.bytes,
        Err(Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(ShmError::system("receiving memory")(error)),
    };
    if bytes == 0 {
        return Ok(None);
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<OwnedFd> = files.flatten().collect();
    match status(&answer[..bytes]) {
        Some((VERSION, 0)) => {}
        Some((VERSION, _)) => {
            let uid = rustix::process::geteuid().as_raw();
            return Err(ShmError::Refused { name: search.name.text(), uid });
        }
        Some(_) => return Err(search.foreign("it answers in another version")),
        None => return Err(search.foreign("it answers something else")),
    }
    let [memory, listener] =
        <[OwnedFd; 2]>::try_from(files).map_err(|_| search.foreign("it answers without memory"))?;
    is_listener(search, &listener)?;
    Ok(Some(Received { memory, listener }))
}

/// Whether a descriptor that a peer sent is the socket that listens at the name.
fn is_listener(search: &NameSearch<'_>, listener: &OwnedFd) -> Result<(), ShmError> {
    let wrong = || search.foreign("the socket it sends is not the one that listens at the name");
    let listens = rustix::net::sockopt::socket_acceptconn(listener).map_err(|_| wrong())?;
    let address = rustix::net::getsockname(listener).map_err(|_| wrong())?;
    let address = rustix::net::SocketAddrUnix::try_from(address).map_err(|_| wrong())?;
    match listens && address == search.name.address(search.owner)? {
        true => Ok(()),
        false => Err(wrong()),
    }
}

/// Version and status of an answer.
fn status(answer: &[u8]) -> Option<(u32, u32)> {
    let rest = answer.strip_prefix(MAGIC)?;
    let (version, status) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*version), u32::from_le_bytes(*status.first_chunk()?)))
}

/// Accepts one client of a listener that does not wait; `None` where none is left.
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(client) => Ok(Some(client)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Answers a client: memory and listener, or that its user is not allowed.
///
/// Never waits; a client that is gone gets nothing.
pub fn answer(client: BorrowedFd<'_>, files: Option<[BorrowedFd<'_>; 2]>) {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(&u32::from(files.is_none()).to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    _ = rustix::net::sendmsg(client, &[IoSlice::new(&bytes)], &mut control, flags);
}

/// Waits until there is something to read, or until the deadline.
fn readable(socket: BorrowedFd<'_>, deadline: Instant) -> Result<bool, ShmError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ShmError::system("waiting for memory")(error)),
        }
    }
}

fn new_socket() -> Result<OwnedFd, ShmError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    socket.map_err(ShmError::system("making a socket"))
}

impl NameSearch<'_> {
    /// What has the name is no buffer.
    pub fn foreign(&self, what: &'static str) -> ShmError {
        ShmError::Foreign { name: self.name.text(), what }
    }

    /// No holder answered.
    pub fn silent(&self) -> ShmError {
        ShmError::Silent { name: self.name.text(), waited: self.patience }
    }

    /// No holder has the name.
    pub fn not_found(&self) -> ShmError {
        ShmError::NotFound { name: self.name.text(), uid: self.owner }
    }
}
