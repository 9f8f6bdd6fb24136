//! A read-only file mapped into memory: model weights, tables, any large file that exists already.
//!
//! Promises upward: a mapping covers a whole regular file; opening copies and reads nothing; its pages are the page cache's,
//! which the system drops without writing; a stream keeps few of them.
//! Asks from below: `mmap` (by memmap2), `madvise`, `fadvise`.
//!
//! A mapping shows changes to its file, and the reader cannot prevent them: file locks are advisory. So [`MappedFile::open`]
//! takes only files that the kernel keeps from changing, and [`MappedFile::open_unchecked`], for all others, is unsafe and states
//! what its caller must ensure. A caller that cannot ensure that must read the file instead.

use crate::fault::{FileFault, FileFaultReason};
use memmap2::{Advice, MapIfSafeError, Mmap, MmapOptions, UncheckedAdvice};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

/// How the caller will access a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// The system's default: it reads some pages around each page that is accessed.
    Normal,
    /// From first to last: the system reads far ahead.
    Sequential,
    /// In random order: the system reads nothing ahead.
    Random,
    /// Soon: the system starts to read the range now; the call does not wait for it.
    WillNeed,
}

/// A file mapped into memory, read-only and page-aligned; unmapped on drop.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    file: File,
    name: String,
}

impl MappedFile {
    /// Maps a whole immutable file: one with fs-verity, or a memfd sealed against writes and shrinking.
    ///
    /// Takes a few system calls and no I/O, whatever the file's size; an empty file is an empty slice.
    ///
    /// # Errors
    /// [`FileFaultReason::Denied`] for a file that may change; [`FileFaultReason::Unsupported`] for one that is not
    /// regular (a directory, a pipe, a device) or whose file system cannot map; [`FileFaultReason::Full`] for more
    /// bytes than there are addresses; otherwise the error of the failed system call.
    pub fn open(path: &Path) -> Result<Self, FileFault> {
        Self::with(path, |options, file| {
            let refused = |error: MapIfSafeError| match error.not_safe() {
                true => rustix::io::Errno::PERM.into(),
                false => error.into(),
            };
            options.map_if_safe(file).map_err(refused)
        })
    }

    /// Maps any whole regular file.
    ///
    /// # Errors
    /// As [`open`](Self::open), without the demand that the file be immutable.
    ///
    /// # Safety
    /// While the mapping lives, no process may write to the file or shorten it: a slice would change under its reader. (Access to
    /// pages that are cut off, or that cannot be read from the disk or the network, ends the process with `SIGBUS`.) Renaming
    /// another file over it, or removing it, changes nothing.
    ///
    /// # Example
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("weights");
    /// std::fs::write(&path, [7; 10_000])?;
    /// // SAFETY: no other process knows the file.
    /// let weights = unsafe { terrace_file::MappedFile::open_unchecked(&path) }?;
    /// assert_eq!(weights[9_999], 7);
    /// let sum: u64 = weights.stream(4096).flatten().map(|&byte| u64::from(byte)).sum();
    /// assert_eq!(sum, 70_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn open_unchecked(path: &Path) -> Result<Self, FileFault> {
        // Map privately, because some network file systems support no shared mapping.
        // SAFETY: the caller ensures that the file does not change.
        Self::with(path, |options, file| unsafe { options.map_copy_read_only(file) })
    }

    fn with(path: &Path, map: impl Fn(&MmapOptions, &File) -> std::io::Result<Mmap>) -> Result<Self, FileFault> {
        let name = path.display().to_string();
        let refused = |call, error: std::io::Error| FileFault::new(call, &name, 0, error.raw_os_error().unwrap_or(0));
        // Without `NONBLOCK`, opening a pipe would block until a writer opens it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| refused("open", error.into()))?;
        let stat = rustix::fs::fstat(&file).map_err(|error| refused("fstat", error.into()))?;
        let fault = |reason| FileFault { call: "mmap", file: name.clone(), offset: 0, code: 0, reason };
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(fault(FileFaultReason::Unsupported));
        }
        let bytes = isize::try_from(stat.st_size).map_err(|_| fault(FileFaultReason::Full))? as usize;
        let file = File::from(file);
        match map(MmapOptions::new().len(bytes), &file) {
            Ok(map) => Ok(Self { map, file, name }),
            Err(error) => Err(refused("mmap", error)),
        }
    }

    /// Advises the system how a range will be accessed: a hint that changes no byte.
    ///
    /// # Errors
    /// [`FileFaultReason::UnexpectedEnd`] for a range beyond the end of the file; the error of `madvise`.
    pub fn advise(&self, range: Range<usize>, usage: AccessPattern) -> Result<(), FileFault> {
        if self.map.get(range.clone()).is_none() {
            let (file, offset) = (self.name.clone(), range.start as u64);
            return Err(FileFault { call: "madvise", file, offset, code: 0, reason: FileFaultReason::UnexpectedEnd });
        }
        let advice = match usage {
            AccessPattern::Normal => Advice::Normal,
            AccessPattern::Sequential => Advice::Sequential,
            AccessPattern::Random => Advice::Random,
            AccessPattern::WillNeed => Advice::WillNeed,
        };
        let advised = self.map.advise_range(advice, range.start, range.len());
        let code = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
        advised.map_err(|error| FileFault::new("madvise", &self.name, range.start as u64, code(error)))
    }

    /// Iterates over all bytes in order, in slices of `step` bytes.
    ///
    /// A `step` of 0 counts as 1; the last slice may be shorter.
    ///
    /// Each step has the system read the next slice ahead, and drops the pages behind the current slice from this
    /// process and from the page cache, so that a file of any size takes the memory of three slices. Access to a slice
    /// whose pages were dropped reads the file again.
    pub fn stream(&self, step: usize) -> MappedStream<'_> {
        MappedStream { mapped: self, step: step.max(1), at: 0 }
    }

    /// The file's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Drops the pages of a range from this process and from the page cache; the next access reads the file again.
    fn release(&self, range: Range<usize>) {
        let Ok(bytes) = u64::try_from(range.len()) else { return };
        // SAFETY: the mapping was never written: its dropped pages are read from the file again.
        let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        // On failure the pages stay until the system needs their memory.
        let bytes = std::num::NonZeroU64::new(bytes);
        let _ = rustix::fs::fadvise(&self.file, range.start as u64, bytes, rustix::fs::Advice::DontNeed);
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

/// The slices of a mapped file in order: see [`MappedFile::stream`].
#[derive(Debug)]
pub struct MappedStream<'a> {
    mapped: &'a MappedFile,
    step: usize,
    /// Offset in bytes at which the next slice begins.
    at: usize,
}

impl<'a> Iterator for MappedStream<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let all: &'a [u8] = self.mapped;
        let end = |from: usize| from.saturating_add(self.step).min(all.len());
        let (from, to) = (self.at, end(self.at));
        // If this advice fails, the stream is only slower.
        let _ = self.mapped.advise(to..end(to), AccessPattern::WillNeed);
        self.mapped.release(from.saturating_sub(self.step)..from);
        self.at = to;
        (from < to).then(|| &all[from..to])
    }
}
