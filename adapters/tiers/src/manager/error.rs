//! Errors of the manager.

use crate::detect;
use crate::ledger::{Refusal, Rejected, SetupError};
use std::borrow::Cow;
use std::fmt;
use terrace_core::residence::Tier;
use terrace_core::settings::BadSetting;
use terrace_device::DeviceError;
use terrace_file::{FileFault, StoreError};

/// Why a call of a manager failed. The manager's buffers are as they were before the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No buffer could be granted.
    Refused(Refusal),
    /// The request is impossible for this buffer, or now.
    Rejected(Rejected),
    /// A file tier failed.
    Store(StoreError),
    /// A device failed or is lost. Bytes that only the device had are available again if the device recovers.
    Device(DeviceError),
    /// The ledger's settings are invalid.
    Setup(SetupError),
    /// The system refused memory.
    Memory(std::io::ErrorKind),
    /// The metadata of one more buffer does not fit into the memory tier, wherever the bytes are: free some, raise
    /// [`memory`](super::ManagerBuilder::memory), or raise [`chunk`](super::ManagerBuilder::chunk) where buffers have
    /// many chunks.
    TooMany {
        /// Number of buffers.
        buffers: usize,
    },
    /// The buffer was freed.
    Freed,
    /// The buffer is another manager's.
    OtherManager,
    /// A lease is held that excludes the call: release it first.
    Leased,
    /// The range is not inside the buffer.
    OutOfBounds {
        /// Offset of the first byte.
        offset: u64,
        /// Bytes of the range.
        bytes: u64,
        /// Size of the buffer in bytes.
        of: u64,
    },
    /// The bytes of leased buffers would exceed the cap: release leases, or raise the cap. A buffer also counts after
    /// its last lease is released, while a copy that began during that lease is in progress.
    PinnedCap {
        /// Size of the buffer in bytes.
        asked: u64,
        /// Bytes of all buffers that are leased already.
        pinned: u64,
        /// The limit.
        cap: u64,
    },
    /// No room could be made in the tier.
    NoRoom {
        /// The tier.
        tier: Tier,
    },
    /// A tier is suspended after a failure, until its backoff is over or the cause is gone.
    Suspended {
        /// The tier.
        tier: Tier,
        /// Milliseconds until the suspension ends, as of the last [`tick`](super::Manager::tick).
        left: u64,
        /// The failure.
        why: Box<Error>,
    },
    /// The manager has no tier that the call needs; the text says which.
    NoTier(&'static str),
    /// The manager has no tier of this kind.
    Absent(detect::TierKind),
    /// A mapped file is only read in place: it cannot be written, moved or made durable.
    Mapped,
    /// The buffer has no name, so it cannot be made durable: a restart finds buffers by name.
    Unnamed,
    /// Another buffer has this name.
    NameTaken(String),
    /// Two directories have a durable buffer of this name.
    Twice(String),
    /// The chunks of a durable buffer are larger than the staging memory or than a slab: build the manager with a
    /// [`chunk`](super::ManagerBuilder::chunk) of at least this size, and with caps of 64 times as many bytes.
    Chunks {
        /// Name of the buffer.
        name: String,
        /// Size of its chunks in bytes.
        bytes: u32,
    },
    /// The stored parts of a durable buffer of this name do not have the lengths of its chunks: no manager wrote it.
    BadBuffer(String),
    /// No buffer has this name.
    NoSuchName(String),
    /// The length of a name is invalid.
    BadName {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A setting is invalid.
    BadSetting(Cow<'static, str>),
    /// The manager was dropped before the operation ended.
    Closed,
    /// A copy panicked: a bug in a disk, a backend, or here.
    Panicked,
    /// This is a forked child of the process that built the manager: build another manager here, on another directory.
    Forked,
}

impl From<BadSetting> for Error {
    fn from(bad: BadSetting) -> Self {
        Self::BadSetting(bad.to_string().into())
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<FileFault> for Error {
    fn from(fault: FileFault) -> Self {
        Self::Store(StoreError::Fault(fault))
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Stale => Self::Freed,
            Rejected::Leased => Self::Leased,
            other => Self::Rejected(other),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Rejected(rejected) => rejected.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Memory(kind) => write!(f, "the system gives no memory: {kind}; free some, or lower `memory`"),
            Self::TooMany { buffers } => write!(
                f,
                "beside {buffers} buffers, what describes one more and its chunks does not fit into `memory`: free some, or \
                 raise `memory` or `chunk`"
            ),
            Self::Freed => write!(f, "the buffer was freed"),
            Self::OtherManager => write!(f, "the buffer is another manager's: ask the one that allocated it"),
            Self::Leased => write!(f, "a lease of the buffer is held that excludes this: give it back first"),
            Self::OutOfBounds { offset, bytes, of } => {
                write!(f, "{bytes} bytes from {offset} on are not all in the buffer, which has {of}")
            }
            Self::PinnedCap { asked, pinned, cap } => write!(
                f,
                "a lease of {asked} bytes: {pinned} are leased, and the cap is {cap}; give leases back, or raise `pinned_cap`"
            ),
            Self::NoRoom { tier } => {
                write!(
                    f,
                    "no room in tier {tier}, and none can be made: give leases back, free buffers, raise its capacity"
                )
            }
            Self::Suspended { tier, left, why } => {
                write!(f, "tier {tier} refused, and is tried again in {left} ms, or when it may succeed: {why}")
            }
            Self::NoTier(what) => {
                write!(f, "there is no tier {what} here: name one, or raise its capacity, when the manager is built")
            }
            Self::Absent(kind) => {
                write!(f, "there is no {kind} here: name one when the manager is built; `terrace tiers` lists them")
            }
            Self::Mapped => {
                write!(f, "a mapped file is only read, where it is: copy it into a buffer to write, move or keep it")
            }
            Self::Unnamed => write!(f, "a buffer without a name cannot be made durable: allocate it by name"),
            Self::NameTaken(name) => write!(f, "there is a buffer {name:?}: open it, or choose another name"),
            Self::Twice(name) => write!(
                f,
                "two directories have a durable buffer {name:?}: build a manager on one of them alone, and remove it there"
            ),
            Self::Chunks { name, bytes } => {
                write!(
                    f,
                    "the durable buffer {name:?} has chunks of {bytes} bytes: build the manager with a `chunk` of as many, and caps of 64 times that"
                )
            }
            Self::BadBuffer(name) => write!(
                f,
                "the durable buffer {name:?} has parts that are not as long as its chunks: it was not written by a manager; use another directory"
            ),
            Self::NoSuchName(name) => write!(f, "there is no buffer {name:?}: see `list`"),
            Self::BadName { bytes, most } => write!(f, "a name of {bytes} bytes: 1 to {most} can be"),
            Self::BadSetting(what) => write!(f, "{what}"),
            Self::Closed => write!(f, "the manager was closed meanwhile"),
            Self::Panicked => write!(f, "a copy of the buffer panicked: see what was printed, and report it"),
            Self::Forked => {
                write!(f, "not usable in a forked child: build a manager in the child, on a directory of its own")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => error.source(),
            Self::Suspended { why, .. } => Some(why),
            _ => None,
        }
    }
}
