//! Locks of an open file description, which the kernel releases when the process that holds them dies.
//!
//! Promises upward: a lock that another description holds is seen exactly, also at the moment of its holder's death; a lock waits
//! for nothing.
//! Asks from below: `F_OFD_SETLK`, `F_OFD_GETLK` (Linux 3.15).
//!
//! The locked bytes lie far beyond the data, where no file has any: they are names of locks, nothing else.

use crate::error::ShmError;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Where locks begin: far beyond the end of any file, far below the largest offset.
const BASE: i64 = 1 << 62;

/// What a lock stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockName {
    /// Shared by each holder for as long as it holds the file; exclusive for the one that removes the file.
    Life,
    /// Shared by read leases, exclusive for a write lease.
    Lease,
    /// Exclusive for one that waits for `Lease`: others queue behind it, so that none waits for ever.
    Queue,
    /// Exclusive for the holder that has this slot.
    Slot(u32),
}

impl LockName {
    fn offset(self) -> i64 {
        match self {
            Self::Life => BASE,
            Self::Lease => BASE + 1,
            Self::Queue => BASE + 2,
            Self::Slot(slot) => BASE + 3 + i64::from(slot),
        }
    }
}

/// A description that carries locks.
///
/// No other process may have it, so that its locks end with this process.
#[derive(Debug)]
pub struct LockFile(Arc<OwnedFd>);

impl LockFile {
    /// Locks on a description that was opened for this value, and is passed to no process.
    pub fn new(file: Arc<OwnedFd>) -> Self {
        Self(file)
    }

    /// Takes a lock shared, if no other description holds it exclusively.
    pub fn try_shared(&self, name: LockName) -> Result<bool, ShmError> {
        self.set(libc::F_RDLCK, name.offset(), 1)
    }

    /// Takes a lock exclusively, if no other description holds it.
    pub fn try_exclusive(&self, name: LockName) -> Result<bool, ShmError> {
        self.set(libc::F_WRLCK, name.offset(), 1)
    }

    /// Releases one lock.
    pub fn unlock(&self, name: LockName) {
        // Releasing splits no range, so that it needs no memory and cannot fail.
        _ = self.set(libc::F_UNLCK, name.offset(), 1);
    }

    /// Releases every lock: a forked child may keep the description open after this process closed it.
    pub fn unlock_all(&self) {
        _ = self.set(libc::F_UNLCK, BASE, 0);
    }

    /// Whether another description holds the lock.
    pub fn is_held_elsewhere(&self, name: LockName) -> Result<bool, ShmError> {
        let mut lock = region(libc::F_WRLCK, name.offset(), 1);
        let asked = fcntl(self.0.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock));
        asked.map_err(|error| ShmError::System { what: "asking for a lock", error: error.into() })?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    fn set(&self, kind: i32, start: i64, bytes: i64) -> Result<bool, ShmError> {
        match fcntl(self.0.as_fd(), FcntlArg::F_OFD_SETLK(&region(kind, start, bytes))) {
            Ok(_) => Ok(true),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
            Err(error) => Err(ShmError::System { what: "taking a lock", error: error.into() }),
        }
    }
}

fn region(kind: i32, start: i64, bytes: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: bytes, l_pid: 0 }
}
