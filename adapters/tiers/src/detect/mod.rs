//! What this machine has: memory, GPUs, disks; how fast they are, and which tier each is.
//!
//! | file | what it is |
//! | --- | --- |
//! | `kind` | the tiers by name |
//! | `classify` | which tier a disk is: a pure function |
//! | `transport`, `block`, `mounts`, `disks` | what sysfs and `/proc` say of disks |
//! | `cpu`, `groups`, `pressure` | what they say of memory |
//! | `budget` | how much memory there is for tiers, counted once |
//! | `measure` | how fast a disk and the memory are |
//!
//! Promises upward: looking writes nothing and fails nowhere: what is not told is `None`. Measuring writes one file
//! without a name, which is gone whatever happens. GPUs are the caller's to open: no driver is asked here.
//! Asks from below: Linux. Elsewhere only the CPU is there.
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
pub use cpu::CpuMemory;
pub use disks::DetectedDisk;
pub use groups::{ControlGroups, GroupLimit};
pub use kind::{TierKind, UnknownTierKind};
pub use pressure::{PressureStall, StallTimes};
pub use transport::{Drive, Transport};

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Its memory.
    pub cpu: CpuMemory,
    /// GPUs, as the caller opened them.
    pub gpus: Vec<Gpu>,
    /// What tiers in memory may have, each memory once.
    pub budgets: Vec<Budget>,
    /// File systems, by place.
    pub disks: Vec<DetectedDisk>,
    /// Where `/proc` and `/sys` are.
    #[serde(skip)]
    root: PathBuf,
}

impl Machine {
    /// Looks at this machine.
    pub fn detect(gpus: Vec<Gpu>) -> Self {
        Self::detect_under(Path::new("/"), gpus)
    }

    /// Looks at what lies under another root: a copy of another machine's `/proc` and `/sys`.
    pub fn detect_under(root: &Path, gpus: Vec<Gpu>) -> Self {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.into());
        let cpu = CpuMemory::read(&root);
        let budgets = budget::budgets(&cpu, &gpus);
        Self { budgets, cpu, gpus, disks: disks::all(&root), root }
    }

    /// The entry of the disk that a directory lies on, and the directory without links.
    ///
    /// It is added where it is not listed (memory, images).
    ///
    /// # Errors
    /// There is no such directory, or the system does not say where it lies.
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
/// At most what the tightest control group allows. `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    budget::budgets(&CpuMemory::read(Path::new("/")), &[]).first()?.bytes
}

/// A directory that cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectError {
    /// Which.
    pub directory: PathBuf,
    /// What the system says.
    pub why: String,
}

impl fmt::Display for DetectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; give a directory that is there", self.directory.display(), self.why)
    }
}

impl std::error::Error for DetectError {}
