//! One file of a fixed size: bytes on a disk, reached past the page cache where the file system allows it.
//!
//! Promises upward: all of its space is taken when it is made, so that no later write finds the disk full; what is moved is
//! aligned as the device wants it; a file of a store's directory is a regular file of this user's, and has no other name.
//! Asks from below: `fallocate`, `statx`, `O_DIRECT`.

use crate::fault::{FileFault, FileFaultReason, RESERVE};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::retry_on_intr;
use std::path::Path;

/// A file of a fixed size.
#[derive(Debug)]
pub struct SlabFile {
    descriptor: OwnedFd,
    name: String,
    bytes: u64,
    align: u32,
    direct: bool,
}

fn fault(call: &'static str, path: &Path, error: rustix::io::Errno) -> FileFault {
    FileFault::new(call, &path.display().to_string(), 0, error.raw_os_error())
}

/// Refuses an open file that another program or user may have put there.
///
/// # Errors
/// [`FileFaultReason::Untrusted`](crate::FileFaultReason::Untrusted); the system's.
pub(crate) fn check_trusted(file: &OwnedFd, path: &Path) -> Result<(), FileFault> {
    let told = rustix::fs::fstat(file).map_err(|error| fault("fstat", path, error))?;
    check_stat(&told, path)
}

/// The same of what the system says of a file: it is a regular file, of this user's, and has one name.
pub(crate) fn check_stat(told: &Stat, path: &Path) -> Result<(), FileFault> {
    // seeded: file_regular: FileType::from_raw_mode(told.st_mode) == FileType::RegularFile => true
    let regular = FileType::from_raw_mode(told.st_mode) == FileType::RegularFile;
    // seeded: file_links: told.st_nlink == 1 => true
    let single = told.st_nlink == 1;
    // unseeded: file_owner: only a system with another user can have such a file
    let own = told.st_uid == rustix::process::geteuid().as_raw();
    match regular && single && own {
        true => Ok(()),
        false => Err(FileFault {
            reason: FileFaultReason::Untrusted,
            ..FileFault::new("open", &path.display().to_string(), 0, 0)
        }),
    }
}

/// Removes a file and frees its space at once, also while another process has it open: a forked child keeps its parent's
/// descriptors until it executes another program.
///
/// # Errors
/// The system's.
pub(crate) fn remove_in((at, name): (BorrowedFd<'_>, &Path)) -> rustix::io::Result<()> {
    // A file that cannot be opened is removed all the same; the file system frees its space then.
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = retry_on_intr(|| rustix::fs::openat(at, name, flags, Mode::empty()));
    rustix::fs::unlinkat(at, name, AtFlags::empty())?;
    // A file with another hard link keeps its bytes.
    // seeded: remove_linked: told.st_nlink == 0 => true
    let is_ours = |file: &OwnedFd| rustix::fs::fstat(file).is_ok_and(|told| told.st_nlink == 0);
    if let Some(file) = file.ok().filter(is_ours) {
        // Otherwise the file system frees the space when the last descriptor is closed.
        // seeded: remove_empties: rustix::fs::ftruncate(&file, 0) => Ok::<(), rustix::io::Errno>(())
        let _ = retry_on_intr(|| rustix::fs::ftruncate(&file, 0));
    }
    Ok(())
}

/// Alignment that is assumed where the system does not tell.
const DEFAULT_ALIGN: u32 = 4096;

impl SlabFile {
    /// Makes a file that is not there yet, with all its space.
    ///
    /// # Errors
    /// The system's; nothing is left behind then, if it can be helped.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, FileFault> {
        Self::create_in((CWD, path), path, bytes)
    }

    /// The same: `name` in an open directory, and the whole path for errors.
    pub(crate) fn create_in(place: (BorrowedFd<'_>, &Path), path: &Path, bytes: u64) -> Result<Self, FileFault> {
        let slab = Self::with(place, path, bytes, OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW)?;
        check_trusted(&slab.descriptor, path)?;
        let reserve = || rustix::fs::fallocate(&slab.descriptor, FallocateFlags::empty(), 0, bytes);
        let allocated = retry_on_intr(reserve);
        if let Err(error) = allocated {
            let _ = remove_in(place);
            return Err(slab.fault(RESERVE, 0, error.raw_os_error()));
        }
        Ok(slab)
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> Result<Self, FileFault> {
        Self::with((CWD, path), path, 0, OFlags::empty())?.with_size()
    }

    /// The same, as [`create_in`](Self::create_in).
    ///
    /// # Errors
    /// Also [`FileFaultReason::Untrusted`](crate::FileFaultReason::Untrusted), before a device or a pipe of that name is opened.
    pub(crate) fn open_in(place: (BorrowedFd<'_>, &Path), path: &Path) -> Result<Self, FileFault> {
        let told = rustix::fs::statat(place.0, place.1, AtFlags::SYMLINK_NOFOLLOW);
        check_stat(&told.map_err(|error| fault("stat", path, error))?, path)?;
        // unseeded: slab_follows: only what changes the name between the two calls makes a link that is seen here
        let slab = Self::with(place, path, 0, OFlags::NOFOLLOW)?;
        check_trusted(&slab.descriptor, path)?;
        slab.with_size()
    }

    fn with_size(self) -> Result<Self, FileFault> {
        let mut slab = self;
        let stat = rustix::fs::fstat(&slab.descriptor).map_err(|error| slab.fault("fstat", 0, error.raw_os_error()))?;
        slab.bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(slab)
    }

    fn with((at, short): (BorrowedFd<'_>, &Path), path: &Path, bytes: u64, how: OFlags) -> Result<Self, FileFault> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | how;
        // Some file systems take the flag and refuse the I/O, others refuse the flag: statx knows both where it is told.
        let open = |flags| retry_on_intr(|| rustix::fs::openat(at, short, flags, Mode::RUSR | Mode::WUSR));
        let opened = open(flags | OFlags::DIRECT);
        let (descriptor, mut direct) = match opened {
            Ok(descriptor) => (descriptor, true),
            Err(rustix::io::Errno::INVAL) => {
                let plain = open(flags - OFlags::EXCL);
                (plain.map_err(|error| fault("open", path, error))?, false)
            }
            Err(error) => return Err(fault("open", path, error)),
        };
        let told = rustix::fs::statx(&descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let told = told.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let align = told.map_or(DEFAULT_ALIGN, |told| told.stx_dio_offset_align.max(told.stx_dio_mem_align));
        if align == 0 && direct {
            // It is told that there is no direct I/O here.
            direct = false;
            rustix::fs::fcntl_setfl(&descriptor, OFlags::empty()).map_err(|error| fault("fcntl", path, error))?;
        }
        let align = if direct { align } else { 1 };
        Ok(Self { descriptor, name: path.display().to_string(), bytes, align, direct })
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What offsets and lengths are multiples of.
    pub fn align(&self) -> u32 {
        self.align
    }

    /// Whether it is read and written past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// As errors name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Refuses a file that is not the one of that name any more, or that was cut: what is made durable would not be found.
    ///
    /// # Errors
    /// [`FileFaultReason::Gone`](crate::FileFaultReason::Gone); [`FileFaultReason::Untrusted`](crate::FileFaultReason::Untrusted) for one that has got another link;
    /// the system's.
    pub(crate) fn check_linked(&self, (at, short): (BorrowedFd<'_>, &Path)) -> Result<(), FileFault> {
        let refused = |error: rustix::io::Errno| self.fault("sync", 0, error.raw_os_error());
        let open = rustix::fs::fstat(&self.descriptor).map_err(refused)?;
        let named = rustix::fs::statat(at, short, AtFlags::SYMLINK_NOFOLLOW).map_err(refused)?;
        let same = (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino);
        // seeded: file_cut: u64::try_from(open.st_size).is_ok_and(|bytes| bytes >= self.bytes) => true
        let whole = u64::try_from(open.st_size).is_ok_and(|bytes| bytes >= self.bytes);
        match same && whole {
            // seeded: file_linked: check_stat(&open, Path::new(&self.name)) => Ok(())
            true => check_stat(&open, Path::new(&self.name)),
            false => Err(refused(rustix::io::Errno::NOENT)),
        }
    }

    /// A refusal of the system's.
    pub(crate) fn fault(&self, call: &'static str, offset: u64, code: i32) -> FileFault {
        FileFault::new(call, &self.name, offset, code)
    }
}

impl AsFd for SlabFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
