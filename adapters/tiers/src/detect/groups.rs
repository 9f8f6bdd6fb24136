//! Reads the memory limits of the control groups (versions 1 and 2) of this process.
//!
//! Promises upward: lists every limit from the process's group up to the root, nearest first, with the bytes used under
//! it; unlimited groups are left out.
//! Asks from below: `/proc/self/cgroup`, `/proc/self/mountinfo` and the groups' files, under a root that tests choose.
//!
//! A container sees either its own group as the root, or the machine's tree and its path in it: the root of the mount
//! is cut off the path before the rest is looked up under the mount point.

use super::mounts::{Mount, parse};
use super::pressure::PressureStall;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A limit of at least this many bytes means unlimited: version 1 of control groups then reports 2^63 less a page.
const NO_LIMIT: u64 = 1 << 62;

/// A memory limit of one control group, with the bytes used and left under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupLimit {
    /// Path of the control group's folder.
    pub group: String,
    /// Most bytes that all processes of the group may have together.
    pub limit_bytes: u64,
    /// Bytes that the group's processes have, without inactive page cache, which the kernel reclaims first, and without
    /// half of the active one, as `MemAvailable` counts.
    pub used_bytes: u64,
    /// `limit_bytes` less `used_bytes`.
    pub room_bytes: u64,
}

/// Memory limits and pressure of this process's control groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ControlGroups {
    /// Memory limits, nearest group first.
    pub limits: Vec<GroupLimit>,
    /// Memory pressure of this process's own control group; `None` where the kernel does not report it.
    pub memory_pressure: Option<PressureStall>,
    /// I/O pressure of this process's own control group; `None` where the kernel does not report it.
    pub io_pressure: Option<PressureStall>,
}

impl ControlGroups {
    /// Reads the control groups of this process.
    pub fn read(root: &Path) -> Self {
        let mounts = std::fs::read(root.join("proc/self/mountinfo")).map(|text| parse(&text)).unwrap_or_default();
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let mut found = Self::default();
        for line in groups.lines() {
            // The line is `0::/path` for control groups of version 2, `5:memory:/path` for version 1.
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            if controllers.is_empty() {
                found.second(root, &mounts, path);
            } else if controllers.split(',').any(|name| name == "memory") {
                found.first(root, &mounts, path);
            }
        }
        found
    }

    /// The lowest of the limits in bytes.
    pub fn lowest_limit(&self) -> Option<&GroupLimit> {
        self.limits.iter().min_by_key(|limit| limit.limit_bytes)
    }

    /// The limit under which the fewest bytes are left.
    pub fn least_room(&self) -> Option<&GroupLimit> {
        self.limits.iter().min_by_key(|limit| limit.room_bytes)
    }

    fn second(&mut self, root: &Path, mounts: &[Mount], path: &str) {
        let Some(mount) = mounts.iter().rfind(|mount| mount.file_system == "cgroup2") else { return };
        let levels = levels(root, mount, path);
        for folder in &levels {
            // The kernel throttles processes that use more than `memory.high`, so this counts as a limit too.
            let limit = [number(folder, "memory.max"), number(folder, "memory.high")].into_iter().flatten().min();
            let used = number(folder, "memory.current").unwrap_or(0);
            self.add(root, folder, limit, used, page_cache(folder, ""));
        }
        let pressure = |file: &str| {
            let text = levels.first().and_then(|folder| std::fs::read_to_string(folder.join(file)).ok())?;
            PressureStall::parse(&text)
        };
        self.memory_pressure = pressure("memory.pressure");
        self.io_pressure = pressure("io.pressure");
    }

    fn first(&mut self, root: &Path, mounts: &[Mount], path: &str) {
        let holds =
            |mount: &&Mount| mount.file_system == "cgroup" && mount.options.split(',').any(|option| option == "memory");
        let Some(mount) = mounts.iter().rfind(holds) else { return };
        for folder in levels(root, mount, path) {
            // A container may not see the parent groups; `hierarchical_memory_limit` is the lowest limit of the group
            // and its parents.
            let own = number(&folder, "memory.limit_in_bytes");
            let limit = [own, stat(&folder, "hierarchical_memory_limit")].into_iter().flatten().min();
            let used = number(&folder, "memory.usage_in_bytes").unwrap_or(0);
            self.add(root, &folder, limit, used, page_cache(&folder, "total_"));
        }
    }

    fn add(&mut self, root: &Path, folder: &Path, limit: Option<u64>, used: u64, files: Option<u64>) {
        let Some(limit_bytes) = limit.filter(|&limit| limit < NO_LIMIT) else { return };
        let used_bytes = used.saturating_sub(files.unwrap_or(0));
        let group = Path::new("/").join(folder.strip_prefix(root).unwrap_or(folder)).display().to_string();
        let room_bytes = limit_bytes.saturating_sub(used_bytes);
        self.limits.push(GroupLimit { group, limit_bytes, used_bytes, room_bytes });
    }
}

/// The folders of a control group and of its parents, up to the mount point.
fn levels(root: &Path, mount: &Mount, path: &str) -> Vec<PathBuf> {
    let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
    // If the group's path is not below the mount's root, or contains `..`, only the folder at the mount point can be
    // read.
    let inside = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let plain = inside.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let own = if plain { top.join(inside) } else { top.clone() };
    own.ancestors().take_while(|folder| folder.starts_with(&top)).map(Path::to_owned).collect()
}

/// Reads a file that holds one number; `None` if it holds `max`, which means unlimited, or cannot be read.
fn number(folder: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// Bytes of page cache that the kernel reclaims when the group needs memory.
fn page_cache(folder: &Path, prefix: &str) -> Option<u64> {
    let of = |name: &str| stat(folder, &format!("{prefix}{name}_file"));
    Some(of("inactive")? + of("active").unwrap_or(0) / 2)
}

/// Reads the counter of this name from the group's `memory.stat`.
fn stat(folder: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("memory.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
