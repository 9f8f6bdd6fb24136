//! Detects memory, GPUs and disks, measures their speed, and assigns each a tier.
//!
//! | file | what it is |
//! | --- | --- |
//! | `kind` | the tiers by name |
//! | `classify` | decides which tier a disk is: a pure function |
//! | `transport`, `block`, `mounts`, `disks` | disks and file systems, read from sysfs and `/proc` |
//! | `cpu`, `groups`, `pressure` | memory, its limits and its pressure, read from `/proc` |
//! | `budget` | how much memory tiers may have, each byte counted once |
//! | `measure` | measures the speed of a disk and of memory |
//!
//! Promises upward: detection writes nothing and never fails: what the system does not report is `None`. Measuring
//! writes one unnamed file, which the system removes however the process ends. Detection asks no driver: the caller
//! opens GPUs and describes them.
//! Asks from below: Linux. On other systems only the CPU's memory is listed.
//!
//! # Example
//! ```
//! use terrace_tiers::detect::Machine;
//! let machine = Machine::detect(Vec::new());
//! for disk in &machine.disks {
//!     println!("{} on {}: {:?}, {}", disk.device, disk.mount.display(), disk.class.tier, disk.class.reasons.join("; "));
//! }
//! assert_eq!(machine.budgets[0].of, ["cpu"]);
//! ```

mod block;
mod budget;
mod classify;
mod cpu;
mod disks;
mod groups;
mod kind;
pub mod measure;
mod mounts;
mod pressure;
mod transport;

pub use budget::{Budget, Gpu};
pub use classify::{BackingStore, DecidedBy, DiskClass, DiskFacts, ReadProfile, Unsuitable, classify};
pub use cpu::{CpuMemory, busy};
pub use disks::DetectedDisk;
pub use groups::{ControlGroups, GroupLimit};
pub use kind::{TierKind, UnknownTierKind};
pub use pressure::{PressureStall, StallTimes};
pub use transport::{Drive, Transport};

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// The memory, GPUs and disks of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The machine's memory.
    pub cpu: CpuMemory,
    /// GPUs, as the caller described them.
    pub gpus: Vec<Gpu>,
    /// Memory budgets for tiers: one entry for each physical memory, the machine's first.
    pub budgets: Vec<Budget>,
    /// File systems, sorted by mount point.
    pub disks: Vec<DetectedDisk>,
    /// The folder under which `proc` and `sys` are read: `/`, or a copy for tests.
    #[serde(skip)]
    root: PathBuf,
}

impl Machine {
    /// Detects this machine.
    pub fn detect(gpus: Vec<Gpu>) -> Self {
        Self::detect_under(Path::new("/"), gpus)
    }

    /// Detects the machine whose `/proc` and `/sys` are copied under another root.
    pub fn detect_under(root: &Path, gpus: Vec<Gpu>) -> Self {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.into());
        let cpu = CpuMemory::read(&root);
        let budgets = budget::budgets(&cpu, &gpus);
        Self { budgets, cpu, gpus, disks: disks::all(&root), root }
    }

    /// Finds the disk that a directory lies on; returns the disk's entry and the directory without links.
    ///
    /// Adds an entry to `disks` if the directory's file system is not listed by default (in memory, a read-only image).
    ///
    /// # Errors
    /// There is no such directory, or the system does not report what is mounted there.
    pub fn disk_of(&mut self, directory: &Path) -> Result<(&mut DetectedDisk, PathBuf), DetectError> {
        let (disk, real) = disks::of(&self.root, directory)?;
        let place = match self.disks.iter().position(|known| known.is_same(&disk)) {
            Some(place) => place,
            None => {
                self.disks.push(disk);
                self.disks.len() - 1
            }
        };
        Ok((&mut self.disks[place], real))
    }
}

/// Bytes of this machine's memory that are available now.
///
/// This is `MemAvailable`, or the bytes left under this process's tightest control group limit if those are fewer.
/// `None` where the system reports neither.
pub fn available_memory() -> Option<u64> {
    available_under(Path::new("/"))
}

/// As [`available_memory`], of the machine whose `/proc` and `/sys` are under another root.
pub(crate) fn available_under(root: &Path) -> Option<u64> {
    left(&CpuMemory::read(root))
}

/// Bytes of the machine's memory that tiers may have beside what they hold.
pub(crate) fn left(cpu: &CpuMemory) -> Option<u64> {
    budget::budgets(cpu, &[]).first()?.bytes
}

/// The error of a directory whose disk cannot be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectError {
    /// The directory.
    pub directory: PathBuf,
    /// The system's message.
    pub why: String,
}

impl fmt::Display for DetectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; give a directory that is there", self.directory.display(), self.why)
    }
}

impl std::error::Error for DetectError {}
