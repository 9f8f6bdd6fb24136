//! Faults: what goes wrong, and when.
//!
//! Promises upward: a fault fires once, at the first order it fits from its index on; what fired is told, with the place.

use super::log::{Kind, Line};
use crate::Random;
use terrace_file::StoreFile;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No space for a new file.
    Full,
    /// EIO. Of a write any of the sectors may be written; a file that should be made may be there, with any size.
    Error,
    /// Fewer bytes are moved than were asked for.
    Short,
    /// One bit is read wrongly, once.
    FlipRead,
    /// One bit turns on the disk: of what is read or written, or anywhere.
    FlipDisk,
    /// A sync fails. What it should have made durable may be dropped, and later syncs know nothing of it.
    SyncFails,
    /// A sync says that it is done, and is not.
    SyncLost,
    /// A write says that it is done, and is not.
    WriteLost,
    /// A write lands elsewhere.
    Misdirected,
    /// The answer comes after many others.
    Slow,
    /// This order and some after it fail.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Full,
        Self::Error,
        Self::Short,
        Self::FlipRead,
        Self::FlipDisk,
        Self::SyncFails,
        Self::SyncLost,
        Self::WriteLost,
        Self::Misdirected,
        Self::Slow,
        Self::Gone,
    ];

    /// Whether it can happen to such an order.
    pub fn fits(self, kind: Kind) -> bool {
        let (read, write) = (kind == Kind::Read, kind == Kind::Write);
        let sync = matches!(kind, Kind::Sync | Kind::SyncDirectory);
        match self {
            Self::Full => kind == Kind::Create,
            Self::Error => !sync,
            Self::Short => read || write,
            Self::FlipRead => read,
            Self::SyncFails | Self::SyncLost => sync,
            Self::WriteLost | Self::Misdirected => write,
            Self::FlipDisk | Self::Slow | Self::Gone => true,
        }
    }

    /// Whether what is on the disk differs from what it said, from then on.
    pub fn lies(self) -> bool {
        matches!(self, Self::FlipDisk | Self::SyncLost | Self::WriteLost | Self::Misdirected)
    }
}

/// Which files a fault may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any, and orders that name none.
    Any,
    /// Bytes of buffers.
    Slabs,
    /// What is durable, and where it lies: logs and the superblock.
    Logs,
}

impl Target {
    fn hits(self, file: Option<StoreFile>) -> bool {
        match (self, file) {
            (Self::Any, _)
            | (Self::Slabs, Some(StoreFile::Slab(_)))
            | (Self::Logs, Some(StoreFile::Log(_) | StoreFile::Superblock)) => true,
            (Self::Slabs | Self::Logs, _) => false,
        }
    }
}

/// A fault to come.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// From which order on, counted as they complete.
    pub at: u64,
    /// What.
    pub fault: Fault,
    /// To whom.
    pub on: Target,
}

impl Planned {
    /// Whether this order is the one.
    pub(super) fn is_due(&self, line: &Line) -> bool {
        line.index >= self.at && self.fault.fits(line.kind) && self.on.hits(line.file)
    }
}

/// Three to nine faults, spread over so many orders: those that a store must survive without loss, and in every fourth plan any.
pub fn some_faults(random: &mut Random, orders: u64) -> Vec<Planned> {
    let any = random.once_in(4);
    let mut plan: Vec<Planned> = (0..3 + random.below(6))
        .map(|_| {
            let fault = Fault::ALL[random.below(Fault::ALL.len() as u64) as usize];
            // What lies, lies about pieces; logs have their turn below.
            let on = if fault.lies() && !any { Target::Slabs } else { Target::Any };
            Planned { at: random.below(orders), fault, on }
        })
        .collect();
    if !any && random.once_in(2) {
        let fault = [Fault::FlipDisk, Fault::WriteLost, Fault::Misdirected][random.below(3) as usize];
        plan.push(Planned { at: random.below(orders), fault, on: Target::Logs });
    }
    plan
}

/// A fault that fired.
#[derive(Clone, Copy, Debug)]
pub struct Fired {
    /// What.
    pub fault: Fault,
    /// To which order.
    pub line: Line,
}
