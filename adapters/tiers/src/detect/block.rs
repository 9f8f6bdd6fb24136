//! Block devices, as sysfs describes them.
//!
//! Promises upward: finds the whole disks below a device number or a name, through partitions, RAID and logical
//! volumes; what sysfs does not report is `None`; a search through circular links ends.
//! Asks from below: `/sys/dev/block`, `/sys/class/block`, under a root that tests choose.

use super::transport::{Drive, Transport};
use std::path::{Path, PathBuf};

/// Number of levels of stacked block devices that a search follows: twice the five levels of partition, encryption,
/// volume, RAID and cache.
const DEPTH: u32 = 10;

/// The block device below a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Name in `/dev` of the whole disk, or of the uppermost device of a stack such as RAID.
    pub name: String,
    /// The physical disks at the bottom of the stack, each once.
    pub drives: Vec<Drive>,
}

/// Finds the block device that has the device number (major, minor) of a mount.
pub fn by_number(root: &Path, (major, minor): (u32, u32)) -> Option<BlockDevice> {
    open(root, &root.join(format!("sys/dev/block/{major}:{minor}")))
}

/// Finds the block device of a file system by the path it was mounted from.
///
/// File systems over several disks need this: their device number names no block device.
pub fn by_mount_source(root: &Path, source: &str) -> Option<BlockDevice> {
    let path = source.strip_prefix("/dev/")?;
    let class = root.join("sys/class/block");
    // The `dm/name` file of a device holds its name under /dev/mapper. Links such as /dev/disk/by-uuid are not found:
    // only udev knows them.
    match path.strip_prefix("mapper/") {
        Some(mapped) => std::fs::read_dir(&class)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .find(|folder| text(folder, "dm/name").as_deref() == Some(mapped))
            .and_then(|folder| open(root, &folder)),
        None => open(root, &class.join(path)),
    }
}

fn open(root: &Path, link: &Path) -> Option<BlockDevice> {
    let folder = whole(std::fs::canonicalize(link).ok()?);
    let mut drives = Vec::new();
    collect(root, &folder, DEPTH, &mut drives);
    Some(BlockDevice { name: name(&folder), drives })
}

/// The sysfs folder of the whole disk, if the folder is a partition's; otherwise the folder itself.
fn whole(folder: PathBuf) -> PathBuf {
    match folder.parent() {
        Some(disk) if folder.join("partition").exists() => disk.to_owned(),
        _ => folder,
    }
}

fn name(folder: &Path) -> String {
    // sysfs writes a slash in a device name as an exclamation mark.
    folder.file_name().unwrap_or_default().to_string_lossy().replace('!', "/")
}

/// Collects the disks at the bottom of a stack of devices, each once; descends at most `depth` levels.
fn collect(root: &Path, folder: &Path, depth: u32, drives: &mut Vec<Drive>) {
    let slaves = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = slaves.filter_map(|entry| std::fs::canonicalize(entry.path()).ok()).collect();
    below.sort();
    if below.is_empty() || depth == 0 {
        let drive = drive(root, folder);
        if !drives.contains(&drive) {
            drives.push(drive);
        }
        return;
    }
    below.into_iter().for_each(|slave| collect(root, &whole(slave), depth - 1, drives));
}

fn drive(root: &Path, folder: &Path) -> Drive {
    let name = name(folder);
    let inside = folder.strip_prefix(root).unwrap_or(folder);
    let folders: Vec<&str> = inside.components().filter_map(|part| part.as_os_str().to_str()).collect();
    let card = text(folder, "device/type").as_deref() == Some("SD");
    Drive {
        transport: Transport::new(&name, &folders, card),
        model: text(folder, "device/model").or_else(|| text(folder, "device/name")).filter(|model| !model.is_empty()),
        rotational: text(folder, "queue/rotational").and_then(|says| match says.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }),
        sector_bytes: text(folder, "queue/hw_sector_size").and_then(|says| says.parse().ok()),
        name,
    }
}

fn text(folder: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned())
}
