//! What a store says when it refuses.

use crate::disk::StoreFile;
use crate::fault::{FileFault, FileFaultReason};
use std::fmt;

/// Why a store could not do something. What was durable before still is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// There is no room: drop pieces, or raise the cap.
    Full {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes of the largest stretch that is free.
        largest: u64,
        /// Bytes that the store may take.
        cap: u64,
    },
    /// The disk refused.
    Fault(FileFault),
    /// A file is not what the store wrote, or it is gone: restore it, or use another directory.
    Damaged {
        /// Which.
        file: StoreFile,
    },
    /// A file has a name of the store's, and was written by another program: nothing was touched.
    Foreign {
        /// Which.
        file: StoreFile,
    },
    /// A file was written by an earlier version, whose form this one does not read: nothing was touched.
    Older {
        /// Which.
        file: StoreFile,
        /// The version of its form.
        version: u32,
    },
    /// A log belongs to another store than the directory does: nothing was touched.
    OtherStore {
        /// Which.
        file: StoreFile,
    },
    /// Another program removed, renamed, replaced or cut the log, or the superblock, while the store was open. What was durable
    /// before stands in the file that is gone; nothing is made durable any more.
    LogGone {
        /// Which.
        file: StoreFile,
    },
    /// A file has a number that the store cannot have reached, or cannot go on from.
    BadNumber {
        /// Which.
        file: StoreFile,
    },
    /// A file was written by a later version: nothing was touched.
    Newer {
        /// Which.
        file: StoreFile,
        /// The version of its form.
        version: u32,
    },
    /// What is durable does not fit under the cap.
    CapTooSmall {
        /// Bytes that it takes on the disk.
        needs: u64,
        /// Bytes that the store may take.
        cap: u64,
    },
    /// An option that cannot be.
    BadOptions(&'static str),
    /// The piece was put into another store, or into this one before it was opened anew.
    OtherPiece,
    /// Names are at most so long.
    MetaTooLong {
        /// Bytes of it.
        bytes: usize,
        /// At most.
        most: usize,
    },
    /// More memory than there are frames for.
    TooLarge {
        /// Bytes that were asked for.
        asked: usize,
        /// At most.
        most: usize,
    },
}

impl StoreError {
    /// What was read is not what was written.
    pub(super) fn corrupt(file: StoreFile, offset: u64) -> Self {
        Self::lost(file, offset, true)
    }

    /// What a log names is not in that file, or the file is not there.
    pub(super) fn lost(file: StoreFile, offset: u64, there: bool) -> Self {
        let (file, reason) = (file.to_string(), if there { FileFaultReason::Corrupt } else { FileFaultReason::Gone });
        Self::Fault(FileFault { call: "read", file, offset, code: 0, reason })
    }

    /// A sync failed, and what it should have made durable is not to be trusted.
    pub(super) fn unsynced(file: StoreFile) -> Self {
        Self::Fault(FileFault {
            call: "sync",
            file: file.to_string(),
            offset: 0,
            code: 0,
            reason: FileFaultReason::Device,
        })
    }

    /// In a child of the process that opened the store.
    pub(super) fn forked() -> Self {
        Self::Fault(FileFault::forked("store"))
    }

    /// The disk moved fewer bytes than were asked for, again.
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
