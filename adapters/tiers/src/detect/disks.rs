//! Lists file systems with the disks below them: joins mounts and block devices.
//!
//! Promises upward: one entry for each file system, however often it is mounted; nothing is written; file systems of
//! other machines are listed but never queried, as they may not answer.
//! Asks from below: [`mounts`](super::mounts), [`block`](super::block), `statvfs`.

use super::DetectError;
use super::block::{by_mount_source, by_number};
use super::classify::{BackingStore, DiskClass, DiskFacts, ReadProfile, classify};
use super::kind::TierKind;
use super::measure::DiskFigures;
use super::mounts::{Mount, mount_of, parse};
use super::transport::Drive;
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};

/// A file system and the disks below it.
#[derive(Clone, Debug, Serialize)]
pub struct DetectedDisk {
    /// Name in `/dev` of the disk or of the uppermost device of a stack; without a block device, the source of the
    /// mount.
    pub device: String,
    /// Mount point of the file system. Of several mounts: a writable one before others, then one of the file system's
    /// root, then the one with the shortest path.
    #[serde(serialize_with = "lossy")]
    pub mount: PathBuf,
    /// Type of the file system.
    pub file_system: String,
    /// Total bytes.
    pub capacity_bytes: Option<u64>,
    /// Bytes that this user can still write.
    pub free_bytes: Option<u64>,
    /// The physical disks below it.
    pub drives: Vec<Drive>,
    /// Which tier the disk can be, and why.
    #[serde(flatten)]
    pub class: DiskClass,
    /// The measured figures.
    pub measured: Option<DiskFigures>,
    /// Why the disk was not measured, if that was tried.
    pub not_measured: Option<String>,
    #[serde(skip)]
    facts: DiskFacts,
    /// Identifies the file system: all its mounts have the same key.
    #[serde(skip)]
    key: String,
}

/// Serialises a path; bytes that are not UTF-8 are replaced, as JSON holds text only.
fn lossy<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

impl DetectedDisk {
    /// Sets the kind that the user declares, which overrides detection, and classifies the disk again.
    pub fn declare(&mut self, kind: TierKind) {
        self.facts.declared = Some(kind);
        self.class = classify(&self.facts);
    }

    /// Stores measured figures and classifies the disk again, or stores why it was not measured.
    pub fn record(&mut self, measured: Result<DiskFigures, String>) {
        match measured {
            Ok(figures) => {
                self.facts.profile = Some(ReadProfile {
                    random_over_sequential: figures.random_over_sequential,
                    depth_scaling: figures.depth_scaling,
                    latency_ns: figures.random_4k_read_p50_ns,
                });
                (self.measured, self.not_measured) = (Some(figures), None);
                self.class = classify(&self.facts);
            }
            Err(why) => self.not_measured = Some(why),
        }
    }

    /// Whether both are entries of the same file system.
    pub fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
    }

    fn new(root: &Path, mounts: &[Mount], mount: &Mount) -> Self {
        let (backing, block) = below(root, mounts, mount);
        let space = space(root, mount);
        let (device, drives) = match block {
            Some(block) => (block.name, block.drives),
            None => (mount.source.clone(), Vec::new()),
        };
        let key = match mount.device.0 {
            // Subvolumes of one btrfs, and mounts of one network file system, differ in their device numbers but share
            // their source.
            0 if mount.file_system == "btrfs" => format!("{} {}", mount.file_system, mount.source),
            0 if mount.backing() == BackingStore::Network => format!("{} {}", mount.file_system, mount.source),
            _ => format!("{}:{}", mount.device.0, mount.device.1),
        };
        let facts = DiskFacts {
            declared: None,
            file_system: mount.file_system.clone(),
            backing,
            read_only: mount.read_only,
            drives: drives.clone(),
            profile: None,
        };
        Self {
            device,
            mount: mount.point.clone(),
            file_system: mount.file_system.clone(),
            capacity_bytes: space.map(|(capacity, _)| capacity),
            free_bytes: space.map(|(_, free)| free),
            drives,
            class: classify(&facts),
            measured: None,
            not_measured: None,
            facts,
            key,
        }
    }
}

/// Finds what a mount stores its bytes on, and the block device there. An overlay stores its bytes where its upper
/// folder lies, if the mount of that folder is visible.
fn below(root: &Path, mounts: &[Mount], mount: &Mount) -> (BackingStore, Option<super::block::BlockDevice>) {
    let upper =
        mount.upper_dir().and_then(|upper| mount_of(mounts, &upper)).filter(|under| under.device != mount.device);
    let under = upper.unwrap_or(mount);
    let block = match under.backing() {
        BackingStore::Disks => by_number(root, under.device).or_else(|| by_mount_source(root, &under.source)),
        BackingStore::Unknown => by_mount_source(root, &under.source),
        BackingStore::Memory | BackingStore::Network | BackingStore::WindowsDrive => None,
    };
    let backing = if block.is_some() { BackingStore::Disks } else { under.backing() };
    (backing, block)
}

/// Total bytes of a file system, and bytes free for this user. `None` on a network, as another machine may not answer.
fn space(root: &Path, mount: &Mount) -> Option<(u64, u64)> {
    if mount.backing() == BackingStore::Network {
        return None;
    }
    statvfs(&inside(root, &mount.point))
}

#[cfg(target_os = "linux")]
fn statvfs(path: &Path) -> Option<(u64, u64)> {
    let told = rustix::fs::statvfs(path).ok()?;
    let capacity = told.f_blocks.saturating_mul(told.f_frsize);
    Some((capacity, told.f_bavail.saturating_mul(told.f_frsize).min(capacity)))
}

#[cfg(not(target_os = "linux"))]
fn statvfs(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Maps an absolute path of the detected system to the path under `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn mounts(root: &Path) -> Vec<Mount> {
    std::fs::read(root.join("proc/self/mountinfo")).map(|text| parse(&text)).unwrap_or_default()
}

/// Lists every file system that is listed by default, sorted by mount point.
pub(super) fn all(root: &Path) -> Vec<DetectedDisk> {
    let mounts = mounts(root);
    let listed = |mount: &&Mount| {
        // Skips mounts that a later mount on the same point hides, and mounts on files such as a container's
        // /etc/hosts.
        mount.is_listed()
            && mount_of(&mounts, &mount.point) == Some(*mount)
            && (mount.backing() == BackingStore::Network || inside(root, &mount.point).is_dir())
    };
    let mut chosen: Vec<&Mount> = mounts.iter().filter(listed).collect();
    chosen.sort_by_key(|mount| (mount.read_only, mount.root != Path::new("/"), mount.point.as_os_str().len()));
    let mut disks: Vec<DetectedDisk> = Vec::new();
    for disk in chosen.into_iter().map(|mount| DetectedDisk::new(root, &mounts, mount)) {
        if !disks.iter().any(|known| known.is_same(&disk)) {
            disks.push(disk);
        }
    }
    disks.sort_by(|one, other| one.mount.cmp(&other.mount));
    disks
}

/// Finds the file system that a directory lies in; returns its entry and the directory without links.
pub(super) fn of(root: &Path, directory: &Path) -> Result<(DetectedDisk, PathBuf), DetectError> {
    let fail = |why: std::io::Error| DetectError { directory: directory.into(), why: why.to_string() };
    let absolute = std::path::absolute(directory).map_err(fail)?;
    let real = std::fs::canonicalize(inside(root, &absolute)).map_err(fail)?;
    if !real.is_dir() {
        return Err(fail(std::io::ErrorKind::NotADirectory.into()));
    }
    let mounts = mounts(root);
    let place = Path::new("/").join(real.strip_prefix(root).unwrap_or(&real));
    let none = || fail(std::io::Error::other("the system does not say what is mounted there"));
    let mount = mount_of(&mounts, &place).ok_or_else(none)?;
    Ok((DetectedDisk::new(root, &mounts, mount), real))
}
