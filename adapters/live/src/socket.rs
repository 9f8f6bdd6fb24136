//! A descriptor through a Unix socket.
//!
//! Promises upward: sending never waits, and no client can make it wait; receiving waits for a bounded time.
//! Asks from below: `SCM_RIGHTS`.

use crate::error::LiveError;
use core::mem::MaybeUninit;
use core::time::Duration;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::{fs, io::Result as IoResult};

/// How long a reader waits for the descriptor.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The byte that goes with a descriptor: a message needs one.
const BYTE: u8 = b'T';

/// Listens at a path: replaces a socket that no program listens at, and refuses one that is in use.
pub fn listen(path: &Path) -> Result<UnixListener, LiveError> {
    let failed = |what| move |error| LiveError::Socket { path: path.into(), what, error };
    match fs::symlink_metadata(path) {
        Ok(about) if !about.file_type().is_socket() => return Err(LiveError::NoSocket { path: path.into() }),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(LiveError::InUse { path: path.into() }),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(failed("cannot replace the socket of a program that ended"))?;
            }
            Err(error) => return Err(failed("cannot tell whether another program listens")(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("cannot make a socket")(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed("cannot make a socket"))?;
    let private = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    private.and_then(|()| listener.set_nonblocking(true)).map_err(failed("cannot set the socket up"))?;
    Ok(listener)
}

/// Sends a descriptor to each client that waits, at most 64, and closes the connections.
pub fn serve(listener: &UnixListener, file: BorrowedFd<'_>) -> IoResult<()> {
    for _ in 0..64 {
        match listener.accept() {
            // A client that is gone, or whose buffer is full, gets nothing.
            Ok((client, _)) => _ = send(&client, file),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send(client: &UnixStream, file: BorrowedFd<'_>) -> IoResult<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::from(ErrorKind::OutOfMemory));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(client, &[IoSlice::new(&[BYTE])], &mut control, flags)?;
    Ok(())
}

/// Connects, and receives the descriptor.
pub fn receive(path: &Path) -> Result<OwnedFd, LiveError> {
    let failed = |what| move |error| LiveError::Socket { path: path.into(), what, error };
    let stream = UnixStream::connect(path).map_err(failed("cannot connect; give the socket of a running program"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("cannot set the socket up"))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let read = rustix::net::recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    match read.map_err(io::Error::from) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Err(LiveError::Silent { path: path.into(), seconds: PATIENCE.as_secs() });
        }
        Err(error) => return Err(failed("cannot receive")(error)),
    }
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.next().and_then(|mut files| files.next()).ok_or_else(|| LiveError::Foreign { path: path.into() })
}
