//! A page of counters in a memfd.
//!
//! Promises upward: the memory never shrinks while it is mapped, so that reading it cannot end the process; a descriptor for readers
//! cannot be written or mapped to write.
//! Asks from below: memfd, seals (Linux 3.17; against writes of others 5.1), `/proc/self/fd`.

use crate::error::LiveError;
use crate::layout::{BYTES, CounterPage, WORDS};
use core::sync::atomic::AtomicU64;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::FdFlags;
use std::format;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A page of counters, mapped, and its descriptor.
#[derive(Debug)]
pub struct SharedCounters {
    file: OwnedFd,
    /// [`BYTES`] bytes of `file`, whose seals keep it from shrinking.
    map: MmapRaw,
}

impl SharedCounters {
    /// Makes an empty page that this process writes.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn create() -> Result<Self, LiveError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("terrace-live", flags).map_err(LiveError::system("making memory"))?;
        rustix::fs::ftruncate(&file, BYTES as u64).map_err(LiveError::system("sizing memory"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(LiveError::system("sealing memory"))?;
        let map = MmapOptions::new().len(BYTES).map_raw(file.as_raw_fd());
        let map = map.map_err(|error| LiveError::System { what: "mapping memory", error })?;
        let made = Self { file, map };
        CounterPage::format(made.words(), std::process::id())?;
        Ok(made)
    }

    /// Maps a page that another process made, to read it.
    ///
    /// # Errors
    /// The descriptor is no page, or its memory may shrink.
    pub fn open(file: OwnedFd) -> Result<Self, LiveError> {
        // What is no memfd has no seals.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| LiveError::Unsealed)?;
        let size = rustix::fs::fstat(&file).map_err(LiveError::system("sizing memory"))?.st_size;
        if !seals.contains(SealFlags::SHRINK) || size < BYTES as i64 {
            return Err(LiveError::Unsealed);
        }
        let map = MmapOptions::new().len(BYTES).map_raw_read_only(file.as_raw_fd());
        let map = map.map_err(|error| LiveError::System { what: "mapping memory", error })?;
        let opened = Self { file, map };
        CounterPage::open(opened.words())?;
        Ok(opened)
    }

    /// The page.
    ///
    /// # Errors
    /// Its maker destroyed the header.
    pub fn page(&self) -> Result<CounterPage<'_>, LiveError> {
        Ok(CounterPage::open(self.words())?)
    }

    /// A descriptor by which the memory can only be read.
    ///
    /// # Errors
    /// `/proc` is not mounted, or no descriptor is left.
    pub fn read_only(&self) -> Result<OwnedFd, LiveError> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(LiveError::system("opening /proc/self/fd"))
    }

    /// Keeps every other process from writing the memory, also by descriptors that it has.
    ///
    /// Kernels before 5.1 cannot; there only the descriptor that a reader gets is read-only.
    pub fn keep_others_from_writing(&self) {
        // What is refused is a second hindrance: descriptors for readers are read-only.
        _ = rustix::fs::fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE | SealFlags::SEAL);
    }

    /// Sets whether programs that this process starts inherit the descriptor, under the same number.
    ///
    /// # Errors
    /// The system refuses.
    pub fn inherit(&self, inherited: bool) -> Result<(), LiveError> {
        let flags = if inherited { FdFlags::empty() } else { FdFlags::CLOEXEC };
        rustix::io::fcntl_setfd(&self.file, flags).map_err(LiveError::system("marking a descriptor"))
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has WORDS words, aligned to pages, for as long as `self`; the memory cannot shrink. Other processes
        // write it at any time, by atomic words only or against the rules of this format: atomic loads of 8 bytes give some value
        // either way. Where the mapping is read-only, this crate makes relaxed loads only, which are defined there.
        unsafe { core::slice::from_raw_parts(self.map.as_ptr().cast(), WORDS) }
    }
}

impl AsFd for SharedCounters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Milliseconds of the system's monotonic clock, as rows count them.
pub fn milliseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}
