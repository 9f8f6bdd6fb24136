//! Directories for files of a manager, as a configuration names them.
//!
//! Promises upward: paths as they were given; nothing is opened.
//! Asks from below: nothing.

use std::ffi::OsStr;
use std::path::PathBuf;

/// A directory for files of a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct DirectoryConfig {
    /// Where it is; it is made if it is not there.
    pub path: PathBuf,
    /// The bytes that its files may take; `None`: the setting `share_of_disk` of what is free.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cap: Option<u64>,
    /// What kind of disk it is on; `None`: what the system says.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: Option<DirectoryKind>,
}

/// The kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum DirectoryKind {
    /// Flash on NVMe.
    Nvme,
    /// Other flash.
    Ssd,
    /// A rotating disk.
    Hdd,
}

impl DirectoryKind {
    /// All, with the words for them.
    pub const ALL: [(&str, Self); 3] = [("nvme", Self::Nvme), ("ssd", Self::Ssd), ("hdd", Self::Hdd)];
}

impl DirectoryConfig {
    /// A directory of which nothing else is said.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cap: None, kind: None }
    }

    /// The directories of a list with colons between, as in `PATH`.
    pub(super) fn list(text: &OsStr) -> Vec<Self> {
        std::env::split_paths(text).filter(|path| !path.as_os_str().is_empty()).map(Self::new).collect()
    }
}
