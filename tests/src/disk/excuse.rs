//! Which errors are just: each must have a fault that explains it.
//!
//! Promises upward: an operation is excused by what fired, and by damaged sectors that were read, while it was under way; by
//! nothing else but what a sync that failed earlier may have dropped.

use super::{Fault, Fired, Kind, Marks, SimDisk};
use terrace_file::{StoreError, StoreFile, StoreOptions, StoreStats};

/// What the disk had done when an operation began.
#[derive(Clone, Debug)]
pub struct Window {
    /// Faults that had fired.
    pub fired: usize,
    marks: Marks,
    /// How full the store was then.
    stats: Option<StoreStats>,
    /// A log had lost something even then.
    lost: bool,
    /// A log had a bad sector even then.
    damaged: bool,
}

/// Nothing, or why no fault explains it.
pub type Just = Result<(), &'static str>;

fn just(explained: bool, why: &'static str) -> Just {
    if explained { Ok(()) } else { Err(why) }
}

/// Whether no slab can be made.
pub fn is_full(stats: Option<StoreStats>, options: &StoreOptions) -> bool {
    stats.is_some_and(|stats| stats.disk + stats.reserved + options.slab_bytes > stats.cap)
}

impl Window {
    /// From now on.
    pub fn open(disk: &SimDisk, stats: Option<StoreStats>) -> Self {
        let marks = disk.marks();
        Self { fired: marks.fired, marks, stats, lost: false, damaged: false }
    }

    /// Faults since that make an order fail, or tell it wrongly.
    fn faults(&self, disk: &SimDisk) -> Vec<Fired> {
        let mut fired = disk.fired(self.fired);
        fired.retain(|fired| fired.fault != Fault::Slow);
        fired
    }

    fn read_damage(&self, disk: &SimDisk) -> bool {
        disk.marks().damaged_slab_reads != self.marks.damaged_slab_reads
    }

    /// A file was refused since the disk has no room for it.
    pub fn disk_was_full(&self, disk: &SimDisk) -> bool {
        disk.marks().full != self.marks.full
    }

    /// A write is tried twice, at two places: one fault is no excuse, unless there is no other place.
    pub fn put(&self, disk: &SimDisk, error: &StoreError, now: Option<StoreStats>, options: &StoreOptions) -> Just {
        let full = is_full(self.stats, options) || is_full(now, options) || self.disk_was_full(disk);
        let faults = self.faults(disk);
        let writes = faults.iter().filter(|fired| fired.line.kind == Kind::Write).count();
        let creates = faults.iter().any(|fired| fired.line.kind == Kind::Create);
        match error {
            StoreError::Full { asked, largest, .. } => just(
                (full && (largest < asked || !faults.is_empty())) || creates,
                "there is room, or room for another slab",
            ),
            _ => just(
                writes > 1 || creates || (writes == 1 && full) || self.disk_was_full(disk),
                "one write failed at most",
            ),
        }
    }

    /// A read is tried twice: one fault is no excuse, unless it lasts.
    pub fn get(&self, disk: &SimDisk) -> Just {
        let faults = self.faults(disk);
        let slab =
            |fired: &&Fired| matches!(fired.line.file, Some(StoreFile::Slab(_))) && fired.line.kind == Kind::Read;
        let reads = faults.iter().filter(slab).count();
        just(reads > 1 || self.read_damage(disk), "what was read was as it was written, and one read failed at most")
    }

    /// `oldest`: faults that had fired when the first of its pieces was put.
    pub fn commit(&self, disk: &SimDisk, error: &StoreError, oldest: usize) -> Just {
        // The next log would be larger than what the cap leaves.
        if matches!(error, StoreError::Full { asked, largest, .. } if largest < asked) {
            return Ok(());
        }
        let earlier = disk.fired(oldest.min(self.fired));
        let dropped = earlier.iter().any(|fired| matches!(fired.line.kind, Kind::Sync | Kind::SyncDirectory));
        let fired = !self.faults(disk).is_empty() || self.disk_was_full(disk);
        just(
            fired || (dropped && oldest != usize::MAX) || self.read_damage(disk),
            "no fault fired while it was under way",
        )
    }

    /// Tidying also ends where there is no room to move something to.
    pub fn tidy(&self, disk: &SimDisk, error: &StoreError) -> Just {
        let fired = !self.faults(disk).is_empty() || self.disk_was_full(disk);
        let full = matches!(error, StoreError::Full { .. });
        just(fired || full || self.read_damage(disk), "no fault fired while it was under way")
    }

    /// Anything that goes wrong, or is bad where it was read, may end what takes many steps.
    pub fn many_steps(&self, disk: &SimDisk) -> Just {
        let fired = !self.faults(disk).is_empty() || self.disk_was_full(disk) || self.read_damage(disk);
        just(fired, "no fault fired while it was under way")
    }

    /// Notes what the logs have lost already, `earlier` on other disks: the store may remove or mend it.
    pub fn latch(&mut self, disk: &SimDisk, earlier: bool) {
        (self.lost, self.damaged) = (earlier || self.log_may_be_lost(disk), disk.log_is_damaged());
    }

    /// Whether a log may have lost something that was durable: both copies of a block are bad, or two faults that told nothing
    /// hit logs, or a name went that was durable. Reads that failed are no excuse: what they hide is still there.
    pub fn log_may_be_lost(&self, disk: &SimDisk) -> bool {
        let log = |fired: &&Fired| matches!(fired.line.file, Some(StoreFile::Log(_) | StoreFile::Superblock));
        let silent = |fired: &&Fired| fired.fault == Fault::FlipRead || fired.fault.lies();
        let hits = self.faults(disk).iter().filter(log).filter(silent).count();
        self.lost || disk.marks().names_lost > 0 || disk.log_is_lost() || hits + usize::from(self.damaged) > 1
    }
}
