//! One file of a fixed size: bytes on a disk, reached past the page cache where the file system allows it.
//!
//! Promises upward: all of its space is taken when it is made, so that no later write finds the disk full; what is moved is
//! aligned as the device wants it.
//! Asks from below: `fallocate`, `statx`, `O_DIRECT`.

use crate::fault::FileFault;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, StatxFlags};
use std::path::Path;

/// A file of a fixed size.
#[derive(Debug)]
pub struct Slab {
    descriptor: OwnedFd,
    name: String,
    bytes: u64,
    align: u32,
    direct: bool,
}

/// Alignment that is assumed where the system does not tell.
const USUAL: u32 = 4096;

impl Slab {
    /// Makes a file that is not there yet, with all its space.
    ///
    /// # Errors
    /// The system's; nothing is left behind then, if it can be helped.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, FileFault> {
        Self::create_in((CWD, path), path, bytes)
    }

    /// The same: `name` in an open directory, and the whole path for errors.
    pub(crate) fn create_in(place: (BorrowedFd<'_>, &Path), path: &Path, bytes: u64) -> Result<Self, FileFault> {
        let slab = Self::with(place, path, bytes, OFlags::CREATE | OFlags::EXCL)?;
        let allocated = rustix::fs::fallocate(&slab.descriptor, FallocateFlags::empty(), 0, bytes);
        if let Err(error) = allocated {
            let _ = rustix::fs::unlinkat(place.0, place.1, AtFlags::empty());
            return Err(slab.fault("fallocate", 0, error.raw_os_error()));
        }
        Ok(slab)
    }

    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> Result<Self, FileFault> {
        Self::open_in((CWD, path), path)
    }

    /// The same, as [`create_in`](Self::create_in).
    pub(crate) fn open_in(place: (BorrowedFd<'_>, &Path), path: &Path) -> Result<Self, FileFault> {
        let mut slab = Self::with(place, path, 0, OFlags::empty())?;
        let stat = rustix::fs::fstat(&slab.descriptor).map_err(|error| slab.fault("fstat", 0, error.raw_os_error()))?;
        slab.bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(slab)
    }

    fn with((at, short): (BorrowedFd<'_>, &Path), path: &Path, bytes: u64, how: OFlags) -> Result<Self, FileFault> {
        let name = path.display().to_string();
        let fault = |call, error: rustix::io::Errno| FileFault::new(call, &name, 0, error.raw_os_error());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | how;
        // Some file systems take the flag and refuse the I/O, others refuse the flag: statx knows both where it is told.
        let opened = rustix::fs::openat(at, short, flags | OFlags::DIRECT, Mode::RUSR | Mode::WUSR);
        let (descriptor, mut direct) = match opened {
            Ok(descriptor) => (descriptor, true),
            Err(rustix::io::Errno::INVAL) => {
                let plain = rustix::fs::openat(at, short, flags - OFlags::EXCL, Mode::RUSR | Mode::WUSR);
                (plain.map_err(|error| fault("open", error))?, false)
            }
            Err(error) => return Err(fault("open", error)),
        };
        let told = rustix::fs::statx(&descriptor, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let told = told.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
        let align = told.map_or(USUAL, |told| told.stx_dio_offset_align.max(told.stx_dio_mem_align));
        if align == 0 {
            // It is told that there is no direct I/O here.
            direct = false;
            let plain = rustix::fs::openat(at, short, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
            let descriptor = plain.map_err(|error| fault("open", error))?;
            return Ok(Self { descriptor, name, bytes, align: 1, direct });
        }
        let align = if direct { align } else { 1 };
        Ok(Self { descriptor, name, bytes, align, direct })
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

    /// Refuses a file that was removed while it was open: nobody would find there what is made durable.
    pub(crate) fn has_name(&self) -> Result<(), FileFault> {
        let told = rustix::fs::fstat(&self.descriptor).map(|stat| stat.st_nlink);
        match told {
            Ok(0) => Err(self.fault("sync", 0, rustix::io::Errno::NOENT.raw_os_error())),
            Ok(_) => Ok(()),
            Err(error) => Err(self.fault("fstat", 0, error.raw_os_error())),
        }
    }

    /// A refusal of the system's.
    pub(crate) fn fault(&self, call: &'static str, offset: u64, code: i32) -> FileFault {
        FileFault::new(call, &self.name, offset, code)
    }
}

impl AsFd for Slab {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
