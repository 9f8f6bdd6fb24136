//! Why a store refuses a call.

use crate::disk::StoreFile;
use crate::fault::{FileFault, FileFaultReason};
use std::fmt;

/// Why a store refused a call. What was durable before the call stays durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The store has no room: drop pieces, or raise the cap.
    Full {
        /// Bytes requested.
        asked: u64,
        /// Bytes of the largest free extent.
        largest: u64,
        /// The most bytes that all files of the store may take.
        cap: u64,
    },
    /// The disk failed.
    Fault(FileFault),
    /// A file is missing or is not as the store wrote it: restore it, or use another directory.
    Damaged {
        /// The file.
        file: StoreFile,
    },
    /// Another program wrote a file with one of the store's names; the store changed nothing.
    Foreign {
        /// The file.
        file: StoreFile,
    },
    /// An earlier version wrote a file in a format that this one does not read; the store changed nothing.
    Older {
        /// The file.
        file: StoreFile,
        /// The version of its format.
        version: u32,
    },
    /// A log belongs to another store than the superblock; the store changed nothing.
    OtherStore {
        /// The log.
        file: StoreFile,
    },
    /// Another program removed, renamed, replaced or cut the log or the superblock of an open store.
    ///
    /// The file that lost its name holds what was durable; every later commit fails.
    LogGone {
        /// The file.
        file: StoreFile,
    },
    /// The number in a file's name exceeds what the store can have reached, or leaves no next number.
    BadNumber {
        /// The file.
        file: StoreFile,
    },
    /// A later version wrote a file; the store changed nothing.
    Newer {
        /// The file.
        file: StoreFile,
        /// The version of its format.
        version: u32,
    },
    /// The durable data exceeds the cap.
    CapTooSmall {
        /// Bytes that the durable data takes on the disk.
        needs: u64,
        /// The most bytes that all files of the store may take.
        cap: u64,
    },
    /// An option is out of range.
    BadOptions(&'static str),
    /// The piece was put into another store, or into this one before it was reopened.
    OtherPiece,
    /// The meta data is too long.
    MetaTooLong {
        /// The length of the meta data in bytes.
        bytes: usize,
        /// The greatest length permitted, in bytes.
        most: usize,
    },
    /// A piece is larger than a slab, a frame or the frame pool permits, or is empty.
    TooLarge {
        /// Bytes requested.
        asked: usize,
        /// The most bytes that a piece may have here.
        most: usize,
    },
}

impl StoreError {
    /// The error when the bytes read are not those that were written.
    pub(super) fn corrupt(file: StoreFile, offset: u64) -> Self {
        Self::lost(file, offset, true)
    }

    /// The error when a piece that a log names is lost: its file exists but does not hold it (`there`), or does not
    /// exist.
    pub(super) fn lost(file: StoreFile, offset: u64, there: bool) -> Self {
        let (file, reason) = (file.to_string(), if there { FileFaultReason::Corrupt } else { FileFaultReason::Gone });
        Self::Fault(FileFault { call: "read", file, offset, code: 0, reason })
    }

    /// The error of a failed sync: the writes that it covered may be lost.
    pub(super) fn unsynced(file: StoreFile) -> Self {
        Self::Fault(FileFault {
            call: "sync",
            file: file.to_string(),
            offset: 0,
            code: 0,
            reason: FileFaultReason::Device,
        })
    }

    /// The error of a call in a forked child of the process that opened the store.
    pub fn forked() -> Self {
        Self::Fault(FileFault::forked("store"))
    }

    /// The error when the disk read or wrote fewer bytes than requested.
    pub(super) fn short(call: &'static str, file: StoreFile, offset: u64) -> Self {
        Self::Fault(FileFault { call, file: file.to_string(), offset, code: 0, reason: FileFaultReason::UnexpectedEnd })
    }
}

impl From<FileFault> for StoreError {
    fn from(fault: FileFault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { asked, largest, cap } => write!(
                f,
                "no room for {asked} bytes: the largest free stretch has {largest}, the cap is {cap}; free something, or raise the cap"
            ),
            Self::Fault(fault) => fault.fmt(f),
            Self::Damaged { file } => {
                write!(f, "{file} is not as it was written: restore it, or use another directory")
            }
            Self::Foreign { file } => {
                write!(f, "{file} is another program's: use another directory; nothing was changed")
            }
            Self::Older { file, version } => {
                write!(
                    f,
                    "{file} has form {version}, from an earlier version of terrace: use that, or another directory; nothing was changed"
                )
            }
            Self::OtherStore { file } => {
                write!(
                    f,
                    "{file} belongs to another store than this directory does: move it away, and restore what it replaced; nothing was changed"
                )
            }
            Self::LogGone { file } => {
                write!(
                    f,
                    "{file} was removed, renamed, replaced or cut while the store was open: nothing is made durable any more; copy what you need elsewhere"
                )
            }
            Self::BadNumber { file } => {
                write!(
                    f,
                    "{file} has a number that this store cannot have reached, or cannot go on from: move it away if the store did not write it"
                )
            }
            Self::Newer { file, version } => {
                write!(f, "{file} has form {version}, from a later version of terrace: use that; nothing was changed")
            }
            Self::CapTooSmall { needs, cap } => {
                write!(f, "what is kept takes {needs} bytes on the disk, more than the cap of {cap}: raise the cap")
            }
            Self::BadOptions(what) => write!(f, "{what}"),
            Self::OtherPiece => write!(
                f,
                "the piece was put into another store, or before this one was opened: put its bytes into this one"
            ),
            Self::MetaTooLong { bytes, most } => write!(f, "a name of {bytes} bytes: {most} at most"),
            Self::TooLarge { asked, most } => write!(f, "a piece of {asked} bytes: {most} at most"),
        }
    }
}

impl std::error::Error for StoreError {}
