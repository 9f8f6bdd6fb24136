//! Physical memory behind descriptors of files.
//!
//! Upward: [`World::export`] and [`World::import`]; memory lives while one of its descriptors is open
//! ([`World::forget_closed`]).
//! From below: a descriptor is one end of a pair of sockets. The other end, kept here, ends when the caller has closed
//! all copies; `/proc` says which socket a number is.

use crate::abi::codes::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::abi::{Outcome, c_int};
use crate::machine::{Fault, World};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A descriptor that a caller has of physical memory.
pub struct ExportedDescriptor {
    /// The memory.
    pub handle: u64,
    /// The socket, by the name that `/proc` has for it.
    socket: PathBuf,
    /// The end that stays here.
    other: UnixStream,
}

/// How `/proc` names sockets: one that is not known here is another process's.
const SOCKETS: &str = "socket:";

impl World {
    /// A new descriptor of physical memory that can be shared so. It is the caller's to close.
    pub fn export(&mut self, handle: u64, kind: c_int) -> Outcome<c_int> {
        let Some(memory) = self.memory.physical.get(handle).filter(|memory| memory.references > 0) else {
            let text = format!("cuMemExportToShareableHandle of {}", self.memory.physical.fate(handle));
            self.report.add(Fault::BadHandle, text);
            return Err(INVALID_VALUE);
        };
        if kind.count_ones() != 1 || memory.properties.handle_types & kind == 0 {
            return Err(INVALID_VALUE);
        }
        let (other, theirs) = UnixStream::pair().map_err(|_| OUT_OF_MEMORY)?;
        other.set_nonblocking(true).map_err(|_| OUT_OF_MEMORY)?;
        let socket = name(theirs.as_raw_fd()).ok_or(OUT_OF_MEMORY)?;
        self.memory.exports.push(ExportedDescriptor { handle, socket, other });
        Ok(theirs.into_raw_fd())
    }

    /// One more holder of the memory behind a descriptor. Those of other processes are not supported.
    pub fn import(&mut self, descriptor: usize) -> Outcome<u64> {
        let socket = c_int::try_from(descriptor).ok().and_then(name).ok_or(INVALID_VALUE)?;
        let Some(export) = self.memory.exports.iter().find(|export| export.socket == socket) else {
            let of_another = socket.to_string_lossy().starts_with(SOCKETS);
            return Err(if of_another { NOT_SUPPORTED } else { INVALID_VALUE });
        };
        let handle = export.handle;
        self.memory.physical.get_mut(handle).ok_or(INVALID_VALUE)?.references += 1;
        Ok(handle)
    }

    /// Forgets descriptors that were closed, and frees memory that nothing else holds.
    pub fn forget_closed(&mut self) {
        let exports = std::mem::take(&mut self.memory.exports);
        let (open, closed) = exports.into_iter().partition(ExportedDescriptor::is_open);
        self.memory.exports = open;
        closed.into_iter().for_each(|export| self.drop_unused(export.handle));
    }
}

impl ExportedDescriptor {
    fn is_open(&self) -> bool {
        let read = (&self.other).read(&mut [0]);
        read.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |bytes| bytes > 0)
    }
}

/// The name of an open descriptor's file.
fn name(descriptor: c_int) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()
}
