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
    /// The identity of the store, and a lower bound of what is durable.
    Superblock,
    /// Bytes of pieces.
    Slab(u32),
    /// The records that say which pieces are durable, and where they lie.
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
        // Only the canonical spelling: no sign, no capitals, all leading zeros.
        (file.to_string() == name).then_some(file)
    }
}

/// A request to a disk.
#[derive(Debug)]
pub enum DiskRequest {
    /// Creates a file of that size with all its space allocated.
    ///
    /// Fails if the file exists or the disk is full. A failure, or the death of the process meanwhile, may leave a file of that
    /// size or less; the store does not create that name again.
    Create {
        /// The file to create.
        file: StoreFile,
        /// Its size, a multiple of a page.
        bytes: u64,
    },
    /// Removes a file; succeeds if there is none.
    Remove {
        /// The file to remove.
        file: StoreFile,
    },
    /// Makes earlier creations and removals durable.
    SyncDirectory,
    /// Reads into the front of the frame.
    Read {
        /// The file to read.
        file: StoreFile,
        /// The first byte, a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// The number of bytes, a multiple of [`ALIGN`](crate::ALIGN).
        bytes: usize,
        /// The memory to read into.
        frame: Frame,
    },
    /// Writes the front of the frame.
    Write {
        /// The file to write.
        file: StoreFile,
        /// The first byte, a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// The number of bytes, a multiple of [`ALIGN`](crate::ALIGN).
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
    /// Bytes moved, possibly fewer than requested; 0 for a request that moves none.
    pub result: Result<usize, FileFault>,
    /// The request's frame.
    pub frame: Option<Frame>,
}

impl DiskResponse {
    /// The response to a request without a frame.
    pub fn without_frame(result: Result<(), FileFault>) -> Self {
        Self { result: result.map(|()| 0), frame: None }
    }
}

/// Takes the response.
///
/// A sender that is dropped without one, also by a disk that panics, fails the request: the disk is gone.
pub type ResponseSender = oneshot::Sender<DiskResponse>;

/// Storage of named files, as the store needs it.
pub trait Disk: Send + Sync + 'static {
    /// The files on the disk, with their sizes.
    ///
    /// # Errors
    /// The system's.
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault>;

    /// Claims the disk for a store.
    ///
    /// False if another store of this process has it, whose files this one would overwrite. The default always succeeds: the
    /// maker of such a disk must give it to one store only.
    fn claim(&self) -> bool {
        true
    }

    /// Ends the claim.
    fn release(&self) {}

    /// Whether the cause of a fault is gone, as far as the disk sees at once.
    ///
    /// Then a retry makes sense before its time. `bytes`: the most that a request takes.
    fn has_recovered(&self, fault: &FileFault, bytes: u64) -> bool {
        let _ = (fault, bytes);
        false
    }

    /// Submits a request.
    ///
    /// Its frame may be read or written at any time until the response, also when no receiver is left.
    fn submit(&self, request: DiskRequest, reply: ResponseSender);
}

/// A disk that a store has claimed, released on drop.
pub(crate) struct Claimed(Arc<dyn Disk>);

impl Claimed {
    /// Claims a disk.
    ///
    /// # Errors
    /// [`FileFaultReason::Busy`]: another store of this process has it.
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

/// Submits a request at once, and returns a future of its response.
pub(crate) fn submit(disk: &dyn Disk, request: DiskRequest) -> impl Future<Output = DiskResponse> + use<> {
    let (reply, response) = oneshot::channel();
    // A disk that panics has responded already, or drops the sender, which is a response too.
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
