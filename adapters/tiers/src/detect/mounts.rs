//! Parses `/proc/self/mountinfo`: which file system is mounted where.
//!
//! Promises upward: paths keep their bytes, whatever these are; malformed lines are skipped.
//! Asks from below: the text.
//!
//! `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: ids, device number, root of the
//! mount in its file system, mount point, mount options; any number of optional fields; after the dash the type of the
//! file system, its source, its options.

use super::classify::BackingStore;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number (major, minor); the major number is 0 for a file system without a block device.
    pub device: (u32, u32),
    /// The folder within the file system that is mounted: `/` except for bind mounts and subvolumes.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Type of the file system.
    pub file_system: String,
    /// The source it was mounted from.
    pub source: String,
    /// Options of the file system as one text, not split at commas: an option may hold an escaped comma.
    pub options: String,
}

/// Parses the mounts in the text of mountinfo; returns them in the order in which they were made.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (device, root, point) = (fields.nth(2)?, fields.next()?, fields.next()?);
    let how = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let (file_system, source) = (fields.next()?, fields.next()?);
    let options = fields.next().unwrap_or_default();
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let path = |field: &[u8]| as_path(unescape(field));
    let is_read_only = |options: &[u8]| options.split(|&byte| byte == b',').any(|option| option == b"ro");
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: path(root),
        point: path(point),
        read_only: is_read_only(how) || is_read_only(options),
        file_system: text(file_system),
        source: text(source),
        options: text(options),
    })
}

#[cfg(unix)]
fn as_path(bytes: Vec<u8>) -> PathBuf {
    let text: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
    text.into()
}

/// Replaces bytes that are not UTF-8: paths hold arbitrary bytes on Unix only.
#[cfg(not(unix))]
fn as_path(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// Decodes octal escapes, which are a backslash and three digits: `\040` is a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|c| (b'0'..=b'7').contains(c)));
        let value = octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

/// Finds the mount that a path lies in: the one with the deepest mount point.
///
/// The path must have no symbolic links and no `..`. If several mounts have the same mount point, returns the last one,
/// which hides the others.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

/// Types of file systems whose bytes lie on other machines; `fuse.` before one of these names counts too.
const NETWORK: [&str; 20] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ncpfs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "orangefs",
    "davfs",
    "sshfs",
    "s3fs",
    "rclone",
    "gcsfuse",
    "juicefs",
    "moosefs",
];

/// Types of file systems that store bytes on disks although the major part of their device number is 0.
const POOLED: [&str; 5] = ["zfs", "btrfs", "bcachefs", "virtiofs", "9p"];

/// Types of file systems that hold read-only images.
const IMAGES: [&str; 5] = ["squashfs", "iso9660", "erofs", "cramfs", "romfs"];

impl Mount {
    /// What the file system stores its bytes on, judged by its type and device number alone.
    pub fn backing(&self) -> BackingStore {
        let name = self.file_system.strip_prefix("fuse.").unwrap_or(&self.file_system);
        if NETWORK.contains(&name) {
            BackingStore::Network
        } else if self.is_windows_drive() {
            BackingStore::WindowsDrive
        } else if ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"].contains(&name) {
            BackingStore::Memory
        } else if self.device.0 != 0 {
            BackingStore::Disks
        } else {
            BackingStore::Unknown
        }
    }

    /// Whether WSL mounted a drive of Windows here, such as `/mnt/c`.
    ///
    /// Over 9p the drive is named by an option, `aname=drvfs;path=C:\`. Over virtiofs the source is a tag that WSL makes: a
    /// GUID, or `drvfs` and more in older versions; other hypervisors give tags that their users choose.
    fn is_windows_drive(&self) -> bool {
        let source = self.source.as_bytes();
        let is_guid = source.len() == 36
            && source.iter().enumerate().all(|(at, c)| match at {
                8 | 13 | 18 | 23 => *c == b'-',
                _ => c.is_ascii_hexdigit(),
            });
        match self.file_system.as_str() {
            "drvfs" => true,
            "9p" => self.options.split([',', ';']).any(|option| option == "aname=drvfs"),
            "virtiofs" => is_guid || self.source.starts_with("drvfs"),
            _ => false,
        }
    }

    /// Whether a mount is listed by default.
    ///
    /// Pseudo file systems, read-only images, file systems in memory, and overlays other than the root are not listed.
    pub fn is_listed(&self) -> bool {
        let name = self.file_system.as_str();
        match self.backing() {
            BackingStore::Network | BackingStore::WindowsDrive => true,
            BackingStore::Memory => false,
            BackingStore::Disks => !IMAGES.contains(&name),
            BackingStore::Unknown => POOLED.contains(&name) || (name == "overlay" && self.point == Path::new("/")),
        }
    }

    /// The upper folder, which holds what is written to an overlay; `None` for other file systems.
    pub fn upper_dir(&self) -> Option<PathBuf> {
        let upper = self.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        upper.filter(|_| self.file_system == "overlay").map(PathBuf::from)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    const TEXT: &[u8] = b"22 27 0:21 / /proc rw - proc proc rw\n\
        27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n\
        30 27 8:1 /sub /mnt/a\\040b\\134c\\011\\012 rw - xfs /dev/disk\\0401 ro,attr2\n\
        31 27 8:2 / /mnt/\xff\\9 rw - vfat /dev/sda2 rw\n\
        not a mount\n32 27 8:x / /bad rw - ext4 a rw\n33 27 8:1 / /short rw - ext4\n34 27 0:4 / /x rw - ramfs a\n";

    #[test]
    fn escapes_bytes_and_optional_fields_are_read_and_bad_lines_passed_over() {
        let mounts = parse(TEXT);
        let points: Vec<&OsStr> = mounts.iter().map(|mount| mount.point.as_os_str()).collect();
        let expected: [&[u8]; 5] = [b"/proc", b"/", b"/mnt/a b\\c\t\n", b"/mnt/\xff\\9", b"/x"];
        assert_eq!(points, expected.map(OsStr::from_bytes));
        let second = &mounts[2];
        assert_eq!((second.device, second.root.as_path()), ((8, 1), Path::new("/sub")));
        assert_eq!(
            (second.source.as_str(), second.read_only),
            ("/dev/disk 1", true),
            "the file system may be read-only"
        );
        assert!(!mounts[1].read_only && mounts[4].options.is_empty());
    }

    #[test]
    fn the_deepest_mount_holds_a_path_and_the_last_hides_others() {
        let mounts = parse(b"1 1 8:1 / / rw - ext4 a rw\n2 1 8:2 / /a rw - ext4 b rw\n3 1 8:3 / /a rw - ext4 c rw\n");
        let of = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.device.1);
        assert_eq!([of("/"), of("/ab"), of("/a"), of("/a/b"), of("b")], [Some(1), Some(1), Some(3), Some(3), None]);
    }
}
