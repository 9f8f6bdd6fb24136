//! What the store asks of a disk: orders, each answered once, in any order.
//!
//! Promises upward: [`Disk`] is all that the store knows of the world below it, so that a simulated disk can take its place.
//! What a write has written survives a power cut only after a later [`DiskRequest::Sync`] of that file; that a file was made or
//! removed, only after a later [`DiskRequest::SyncDirectory`].

use crate::fault::{FileFault, FileFaultReason};
use crate::frame::Frame;
use futures_channel::oneshot;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use terrace_guard::calm;

/// A file of the store's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreFile {
    /// Which store it is, and how much is durable at least.
    Superblock,
    /// Bytes of buffers.
    Slab(u32),
    /// What is durable, and where it lies.
    Log(u32),
}

/// The superblock's name.
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
    /// The file of that name, if it is one of the store's.
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
        // Only as we write them: no signs, no capitals, no missing zeros.
        (file.to_string() == name).then_some(file)
    }
}

/// One thing to do.
#[derive(Debug)]
pub enum DiskRequest {
    /// Make a file of so many bytes, all of whose space is taken. Refused when it is there, or the disk is full. A disk that
    /// fails, and a process that ends here, may leave a file of any size, at most this: it is not made again under this name.
    Create {
        /// Which.
        file: StoreFile,
        /// Bytes, a multiple of a page.
        bytes: u64,
    },
    /// Remove a file; one that is not there is removed already.
    Remove {
        /// Which.
        file: StoreFile,
    },
    /// Let what was made and removed before survive a power cut.
    SyncDirectory,
    /// Fill the front of the frame.
    Read {
        /// From which file.
        file: StoreFile,
        /// From which byte, a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// How many bytes, a multiple of it too.
        bytes: usize,
        /// Where to.
        frame: Frame,
    },
    /// Write the front of the frame.
    Write {
        /// To which file.
        file: StoreFile,
        /// To which byte, a multiple of [`ALIGN`](crate::ALIGN).
        offset: u64,
        /// How many bytes, a multiple of it too.
        bytes: usize,
        /// From where.
        frame: Frame,
    },
    /// Let what was written to the file before survive a power cut.
    Sync {
        /// Which.
        file: StoreFile,
    },
}

/// What came of an order.
#[derive(Debug)]
pub struct DiskResponse {
    /// Bytes moved, which may be fewer than were asked for; 0 where none were to move.
    pub result: Result<usize, FileFault>,
    /// The memory back.
    pub frame: Option<Frame>,
}

impl DiskResponse {
    /// Of an order without memory.
    pub fn without_frame(result: Result<(), FileFault>) -> Self {
        Self { result: result.map(|()| 0), frame: None }
    }
}

/// Where the answer goes. Dropped without one, also by a disk that panics, the asker learns that the disk is gone.
pub type ResponseSender = oneshot::Sender<DiskResponse>;

/// Does orders.
pub trait Disk: Send + Sync + 'static {
    /// The files that are there, with their sizes.
    ///
    /// # Errors
    /// The system's.
    fn files(&self) -> Result<Vec<(StoreFile, u64)>, FileFault>;

    /// A store begins to use it. False: another one does, whose files it would overwrite. Without, whoever makes the disk gives it
    /// to one store only.
    fn claim(&self) -> bool {
        true
    }

    /// The store that claimed it is gone.
    fn release(&self) {}

    /// Whether what made it refuse an order is gone, as far as that is seen at once: then the order is tried again before its time.
    /// `bytes`: what an order takes at most.
    fn has_recovered(&self, fault: &FileFault, bytes: u64) -> bool {
        let _ = (fault, bytes);
        false
    }

    /// Takes an order. What it reads and writes may happen at any time until the answer, whether or not anybody still waits.
    fn submit(&self, order: DiskRequest, reply: ResponseSender);
}

/// A disk that one store has. Dropped, another may have it.
pub(crate) struct Claimed(Arc<dyn Disk>);

impl Claimed {
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

/// Asks at once; the answer can be waited for.
pub(crate) fn ask(disk: &dyn Disk, order: DiskRequest) -> impl Future<Output = DiskResponse> + use<> {
    let (reply, answer) = oneshot::channel();
    // One that panics has answered already, or drops the reply: that is an answer too.
    calm(|| disk.submit(order, reply));
    let gone =
        || FileFault { call: "submit", file: "the disk".into(), offset: 0, code: 0, reason: FileFaultReason::Closed };
    async move { answer.await.unwrap_or_else(|_| DiskResponse { result: Err(gone()), frame: None }) }
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
