//! A file as memory that is only read: model weights, tables, anything large that is there already.
//!
//! Promises upward: what is opened is a plain file, whole; nothing is copied, and nothing is read before it is used or asked for;
//! its pages are the page cache's, which the system takes back without writing anything; a stream keeps few of them.
//! Asks from below: `mmap` (by memmap2), `madvise`, `fadvise`.
//!
//! A mapping shows what others do to its file, and a reader cannot keep them away: locks bind only those who ask for them. So
//! [`MappedFile::open`] takes files that the kernel itself keeps as they are, and [`MappedFile::open_unchecked`], for all others, is
//! unsafe and says what must be true. Where that cannot be known, read the file instead.

use crate::fault::{FileFault, FileFaultReason};
use memmap2::{Advice, MapIfSafeError, Mmap, MmapOptions, UncheckedAdvice};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

/// How bytes will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// As the system guesses: some pages around each that is used.
    Normal,
    /// From the first to the last: much is read ahead.
    Sequential,
    /// Here and there: nothing is read ahead.
    Random,
    /// Soon: reading begins now, and is not waited for.
    WillNeed,
}

/// The bytes of a file, read-only, from a page's first address on. Dropped, they are unmapped.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    file: File,
    name: String,
}

impl MappedFile {
    /// Maps a whole file that nobody can change: one with fs-verity, or a memfd sealed against writes and shrinking. One system
    /// call or two, and no I/O, whatever its size; a file without bytes is an empty slice.
    ///
    /// # Errors
    /// [`FileFaultReason::Denied`] for a file that may change; [`FileFaultReason::Unsupported`] for what is no plain file (a directory, a pipe, a
    /// device), and where the file system cannot map; [`FileFaultReason::Full`] for more bytes than there are addresses; the system's.
    pub fn open(path: &Path) -> Result<Self, FileFault> {
        Self::with(path, |options, file| {
            let refused = |error: MapIfSafeError| match error.not_safe() {
                true => rustix::io::Errno::PERM.into(),
                false => error.into(),
            };
            options.map_if_safe(file).map_err(refused)
        })
    }

    /// Maps a whole file, as [`open`](Self::open), that may be any.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As long as the mapping lives, nobody writes to the file or makes it shorter, in this process or another: a slice would
    /// change under its reader. (Pages that are gone, or that cannot be read from the disk or the network, end the process with
    /// `SIGBUS`.) To put another file in its place, or to remove it, is no change.
    ///
    /// # Example
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("weights");
    /// std::fs::write(&path, [7; 10_000])?;
    /// // SAFETY: nobody else knows the file.
    /// let weights = unsafe { terrace_file::MappedFile::open_unchecked(&path) }?;
    /// assert_eq!(weights[9_999], 7);
    /// let sum: u64 = weights.stream(4096).flatten().map(|&byte| u64::from(byte)).sum();
    /// assert_eq!(sum, 70_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn open_unchecked(path: &Path) -> Result<Self, FileFault> {
        // Private: some network file systems map in no other way.
        // SAFETY: the caller promises that nobody changes the file.
        Self::with(path, |options, file| unsafe { options.map_copy_read_only(file) })
    }

    fn with(path: &Path, map: impl Fn(&MmapOptions, &File) -> std::io::Result<Mmap>) -> Result<Self, FileFault> {
        let name = path.display().to_string();
        let refused = |call, error: std::io::Error| FileFault::new(call, &name, 0, error.raw_os_error().unwrap_or(0));
        // A pipe that nobody writes to would be waited for otherwise.
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

    /// Tells the system how a range of bytes will be used. What it makes of that is its affair; no byte changes.
    ///
    /// # Errors
    /// [`FileFaultReason::UnexpectedEnd`] for a range that is not inside; the system's.
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

    /// All bytes in order, so many at a time (0 counts as 1, the last may be fewer): the next ones are read ahead, and those
    /// behind are given back, from this process and from the page cache, so that a file of any size takes the memory of three
    /// steps. Slices of what was given back are read again when they are used.
    pub fn stream(&self, step: usize) -> MappedStream<'_> {
        MappedStream { mapped: self, step: step.max(1), at: 0 }
    }

    /// As errors name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has no more memory for a range until it is used again.
    fn release(&self, range: Range<usize>) {
        let Ok(bytes) = u64::try_from(range.len()) else { return };
        // SAFETY: nothing was ever written to the mapping: its pages come back from the file as they were.
        let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        // Refused, they stay until the system needs the room.
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

/// The bytes of a mapped file in order: see [`MappedFile::stream`].
#[derive(Debug)]
pub struct MappedStream<'a> {
    mapped: &'a MappedFile,
    step: usize,
    /// Where the next ones begin.
    at: usize,
}

impl<'a> Iterator for MappedStream<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let all: &'a [u8] = self.mapped;
        let end = |from: usize| from.saturating_add(self.step).min(all.len());
        let (from, to) = (self.at, end(self.at));
        // Refused, it is only slower.
        let _ = self.mapped.advise(to..end(to), AccessPattern::WillNeed);
        self.mapped.release(from.saturating_sub(self.step)..from);
        self.at = to;
        (from < to).then(|| &all[from..to])
    }
}
