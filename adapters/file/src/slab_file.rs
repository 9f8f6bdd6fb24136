//! A file of fixed size, accessed past the page cache where the file system allows it.
//!
//! Promises upward: all space is allocated at creation, so that no later write finds the disk full; I/O is aligned as the device
//! demands; a file in a store's directory is a regular file of this user with a single link.
//! Asks from below: `fallocate`, `statx`, `O_DIRECT`.

use crate::fault::{FileFault, FileFaultReason, RESERVE};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::retry_on_intr;
use std::path::Path;

/// A file of fixed size, with all its space allocated.
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

/// Fails unless an open file is a regular file of this user with a single link: another program or user may have put it
/// there.
///
/// # Errors
/// [`FileFaultReason::Untrusted`]; the error of `fstat`.
pub(crate) fn check_trusted(file: &OwnedFd, path: &Path) -> Result<(), FileFault> {
    let stat = rustix::fs::fstat(file).map_err(|error| fault("fstat", path, error))?;
    check_stat(&stat, path)
}

/// Fails unless `stat` is the state of a regular file of this user with a single link.
pub(crate) fn check_stat(stat: &Stat, path: &Path) -> Result<(), FileFault> {
    // seeded: file_regular: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => true
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // seeded: file_links: stat.st_nlink == 1 => true
    let single = stat.st_nlink == 1;
    // unseeded: file_owner: only a system with another user can have such a file
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    match regular && single && own {
        true => Ok(()),
        false => Err(FileFault {
            reason: FileFaultReason::Untrusted,
            ..FileFault::new("open", &path.display().to_string(), 0, 0)
        }),
    }
}

/// Removes a file and frees its space at once, even while another process has it open, as a forked child has until
/// `exec`.
///
/// # Errors
/// The error of the failed system call.
pub(crate) fn remove_in((at, name): (BorrowedFd<'_>, &Path)) -> rustix::io::Result<()> {
    // Unlink the file even if it cannot be opened: the file system then frees its space when it can.
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = retry_on_intr(|| rustix::fs::openat(at, name, flags, Mode::empty()));
    rustix::fs::unlinkat(at, name, AtFlags::empty())?;
    // Truncate only if no hard link is left: under another name the file must keep its bytes.
    // seeded: remove_linked: stat.st_nlink == 0 => true
    let is_ours = |file: &OwnedFd| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0);
    if let Some(file) = file.ok().filter(is_ours) {
        // On failure the file system frees the space when the last descriptor is closed.
        // seeded: remove_empties: rustix::fs::ftruncate(&file, 0) => Ok::<(), rustix::io::Errno>(())
        let _ = retry_on_intr(|| rustix::fs::ftruncate(&file, 0));
    }
    Ok(())
}

/// The alignment of direct I/O in bytes where `statx` does not report it.
const DEFAULT_ALIGN: u32 = 4096;

impl SlabFile {
    /// Creates a file with all its space allocated.
    ///
    /// # Errors
    /// The error of the failed system call; the file is then removed again if possible.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, FileFault> {
        Self::create_in((CWD, path), path, bytes)
    }

    /// Creates a file by its name in an open directory; `path` names it in errors.
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

    /// Opens an existing file.
    ///
    /// # Errors
    /// The error of the failed system call.
    pub fn open(path: &Path) -> Result<Self, FileFault> {
        Self::with((CWD, path), path, 0, OFlags::empty())?.with_size()
    }

    /// Opens an existing file by its name in an open directory; `path` names it in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`FileFaultReason::Untrusted`], before a device or a pipe of that name is opened.
    pub(crate) fn open_in(place: (BorrowedFd<'_>, &Path), path: &Path) -> Result<Self, FileFault> {
        let stat = rustix::fs::statat(place.0, place.1, AtFlags::SYMLINK_NOFOLLOW);
        check_stat(&stat.map_err(|error| fault("stat", path, error))?, path)?;
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
        // Some file systems refuse the flag `O_DIRECT`; others accept it and refuse the I/O later, which `statx` below
        // may tell in advance.
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
        let stat = rustix::fs::statx(&descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let stat = stat.ok().filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let align = stat.map_or(DEFAULT_ALIGN, |stat| stat.stx_dio_offset_align.max(stat.stx_dio_mem_align));
        if align == 0 && direct {
            // An alignment of 0 means that the file system has no direct I/O.
            direct = false;
            rustix::fs::fcntl_setfl(&descriptor, OFlags::empty()).map_err(|error| fault("fcntl", path, error))?;
        }
        let align = if direct { align } else { 1 };
        Ok(Self { descriptor, name: path.display().to_string(), bytes, align, direct })
    }

    /// The file's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The alignment in bytes that offsets and lengths of I/O must have; 1 without direct I/O.
    pub fn align(&self) -> u32 {
        self.align
    }

    /// Whether I/O bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fails if the name now belongs to another file, or the file was truncated: a restart would not find what a sync
    /// makes durable in it.
    ///
    /// # Errors
    /// [`FileFaultReason::Gone`]; [`FileFaultReason::Untrusted`] for a file with a second hard link; the error of the
    /// failed system call.
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

    /// Device, inode and size.
    ///
    /// # Errors
    /// The error of `fstat`.
    pub(crate) fn identity(&self) -> Result<(u64, u64, u64), FileFault> {
        let stat = rustix::fs::fstat(&self.descriptor).map_err(|error| self.fault("fstat", 0, error.raw_os_error()))?;
        Ok((stat.st_dev, stat.st_ino, self.bytes))
    }

    /// The error of a failed call on this file; `code` is its `errno`.
    pub(crate) fn fault(&self, call: &'static str, offset: u64, code: i32) -> FileFault {
        FileFault::new(call, &self.name, offset, code)
    }
}

impl AsFd for SlabFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
