//! The kinds of tiers.
//!
//! Promises upward: stable names; ordered from the fastest to the slowest.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kind of a tier. A faster kind compares as less than a slower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    /// A device's own memory.
    Gpu,
    /// The machine's memory.
    Cpu,
    /// NVMe: flash with many parallel queues.
    Nvme,
    /// Flash that is not NVMe: SATA, eMMC, memory cards, virtual disks.
    Ssd,
    /// Rotating disks: each seek costs milliseconds.
    Hdd,
}

impl TierKind {
    /// The kind's name on command lines and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Nvme => "nvme",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
        }
    }

    /// Whether tiers of this kind store their bytes in files on a disk.
    pub fn is_disk(self) -> bool {
        self >= Self::Nvme
    }
}

impl fmt::Display for TierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of parsing a name that is not the name of a tier kind; holds the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTierKind(pub String);

impl fmt::Display for UnknownTierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no tier; give gpu, cpu, nvme, ssd or hdd", self.0)
    }
}

impl std::error::Error for UnknownTierKind {}

impl FromStr for TierKind {
    type Err = UnknownTierKind;

    fn from_str(text: &str) -> Result<Self, UnknownTierKind> {
        let all = [Self::Gpu, Self::Cpu, Self::Nvme, Self::Ssd, Self::Hdd];
        all.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownTierKind(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_the_faster_is_less() {
        let all = ["gpu", "cpu", "nvme", "ssd", "hdd"].map(|name| name.parse::<TierKind>().expect("a name"));
        assert!(all.is_sorted() && all.map(TierKind::is_disk) == [false, false, true, true, true]);
        assert_eq!(format!("{:>5}|{}", all[2], all[4]), " nvme|hdd");
        assert!("NVMe".parse::<TierKind>().expect_err("no such name").to_string().contains("`NVMe`"));
    }
}
