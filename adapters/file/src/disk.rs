//! The interface between a store and its disk: requests, each answered by one response, in any order.
//!
//! Promises upward: the store reaches storage through [`Disk`] alone, so that tests can simulate the disk.
//! A write survives a power cut only after a later [`DiskRequest::Sync`] of its file; the creation or removal of a file, only
//! after a later [`DiskRequest::SyncDirectory`].

use crate::fault::{FileFault, FileFaultReason};
use crate::frame::Frame;
use futures_channel::oneshot;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use terrace_guard::catch_panic;

/// The name of a store's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreFile {
    /// The store's identity, and a lower bound of how much of its log is durable.
    Superblock,
    /// The slab file with this number, which holds the bytes of pieces.
    Slab(u32),
    /// The log file with this number: its records say which pieces are durable, and where they lie.
    Log(u32),
}

/// The superblock's file name.
const SUPERBLOCK: &str = "terrace.superblock";

impl fmt::Display for StoreFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => f.write_str(SUPERBLOCK),
            Self::Slab(number) => write!(f, "terrace-{number:08x}.slab"),
            Self::Log(number) => write!(f, "terrace-{number:08x}.log"),
        }
    }
}

impl StoreFile {
    /// Parses a file name; `None` if no store writes such a name.
    pub fn from_name(name: &str) -> Option<Self> {
        if name == SUPERBLOCK {
            return Some(Self::Superblock);
        }
        let (number, kind) = name.strip_prefix("terrace-")?.split_once('.')?;
        let number = u32::from_str_radix(number, 16).ok()?;
        let file = match kind {
            "slab" => Self::Slab(number),
            "log" => Self::Log(number),
            _ => return None,
        };
        // Accept only the canonical spelling: no sign, no capitals, all leading zeros.
        (file.to_string() == name).then_some(file)
    }
}

/// A request to a disk.
#[derive(Debug)]
pub enum DiskRequest {
    /// Creates a file of the given size, with all its space allocated.
    ///
    /// Fails if the file exists or the disk is full. If the request fails, or the process dies before the response, a
    /// file of at most that size may remain; the store removes it before it creates a file with that name again.
    Create {
        /// The file to create.
        file: StoreFile,
        /// Its size, a multiple of a page.
        bytes: u64,
    },
    /// Removes a file; succeeds if no file has that name.
    Remove {
        /// The file to remove.
        file: StoreFile,
    },
    /// Makes earlier creations and removals durable.
    SyncDirectory,
    /// Reads a range of a file into the first `bytes` bytes of the frame.
    Read {
        /// The file to read.
        file: StoreFile,
        /// Offset in the file at which the range begins, in bytes; a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// Length of the range in bytes; a multiple of [`ALIGN`](crate::ALIGN).
        bytes: usize,
        /// The memory to read into.
        frame: Frame,
    },
    /// Writes the first `bytes` bytes of the frame to a range of a file.
    Write {
        /// The file to write.
        file: StoreFile,
        /// Offset in the file at which the range begins, in bytes; a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// Length of the range in bytes; a multiple of [`ALIGN`](crate::ALIGN).
        bytes: usize,
        /// The memory to write from.
        frame: Frame,
    },
    /// Makes earlier writes to the file durable.
    Sync {
        /// The file to sync.
        file: StoreFile,
    },
}

/// The response to a [`DiskRequest`].
#[derive(Debug)]
pub struct DiskResponse {
    /// Number of bytes read or written, possibly fewer than requested; 0 for requests of other kinds.
    pub result: Result<usize, FileFault>,
    /// The frame of the request, handed back; `None` if the request had none, or the disk is gone.
    pub frame: Option<Frame>,
}

impl DiskResponse {
    /// The response to a request that has no frame.
    pub fn without_frame(result: Result<(), FileFault>) -> Self {
        Self { result: result.map(|()| 0), frame: None }
    }
}

/// The sender through which the disk responds to a request.
///
/// If the disk drops it without a response, for example by a panic, the request fails with [`FileFaultReason::Closed`].
pub type ResponseSender = oneshot::Sender<DiskResponse>;

/// Storage of named files: what a store requires of its disk.
pub trait Disk: Send + Sync + 'static {
    /// The files on the disk, with their sizes.
    ///
    /// # Errors
    /// The error of the system.
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault>;

    /// Claims the disk for a store; returns false if another store of this process has claimed it.
    ///
    /// Two stores on one disk would overwrite each other's files. The default implementation always returns true: a
    /// disk that uses it must be given to one store only.
    fn claim(&self) -> bool {
        true
    }

    /// Releases the claim on the disk.
    fn release(&self) {}

    /// Whether the cause of a fault is gone, as far as the disk can tell without waiting.
    ///
    /// If true, the caller may retry at once. `bytes`: the most space that the retried request needs.
    fn has_recovered(&self, fault: &FileFault, bytes: u64) -> bool {
        let _ = (fault, bytes);
        false
    }

    /// Submits a request.
    ///
    /// The disk may read or write the request's frame at any time until it responds, even if the receiver was dropped.
    fn submit(&self, request: DiskRequest, reply: ResponseSender);
}

/// A disk that a store has claimed; dropping it releases the claim.
pub(crate) struct Claimed(Arc<dyn Disk>);

impl Claimed {
    /// Claims a disk.
    ///
    /// # Errors
    /// [`FileFaultReason::Busy`] if another store of this process has claimed the disk.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Result<Self, FileFault> {
        let busy =
            FileFault { call: "claim", file: "the disk".into(), offset: 0, code: 0, reason: FileFaultReason::Busy };
        // seeded: disk_claimed: disk.claim() => true
        if disk.claim() { Ok(Self(disk)) } else { Err(busy) }
    }
}

impl Deref for Claimed {
    type Target = dyn Disk;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Submits a request at once; returns a future that resolves to the response.
pub(crate) fn submit(disk: &dyn Disk, request: DiskRequest) -> impl Future<Output = DiskResponse> + use<> {
    let (reply, response) = oneshot::channel();
    // If the disk panics, it has already responded, or unwinding drops `reply`: then the future fails the request.
    catch_panic(|| disk.submit(request, reply));
    let gone =
        || FileFault { call: "submit", file: "the disk".into(), offset: 0, code: 0, reason: FileFaultReason::Closed };
    async move { response.await.unwrap_or_else(|_| DiskResponse { result: Err(gone()), frame: None }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_we_write_them_are_ours() {
        for file in [StoreFile::Superblock, StoreFile::Slab(0), StoreFile::Log(u32::MAX), StoreFile::Slab(0xabc)] {
            assert_eq!(StoreFile::from_name(&file.to_string()), Some(file));
        }
        for name in ["terrace-1.slab", "terrace-0000000A.slab", "terrace-+0000001.log", "terrace-00000001.txt", "x"] {
            assert_eq!(StoreFile::from_name(name), None, "{name}");
        }
    }
}
