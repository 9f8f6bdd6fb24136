//! Pages of one mapping of the system's, as a source for the arena: addresses are had once, memory comes and goes under them.
//!
//! Promises upward: no more pages are out than the pool was given; one that is taken away is the system's again.
//! Asks from below: `mmap` and `madvise`.

#[cfg(not(miri))]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_core::{Region, Source, SourceError, Usage};

/// Bytes of a huge page.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

pub(super) struct PageSource {
    /// Bytes of a page.
    page: u64,
    mapping: Option<Mapping>,
    usage: Usage,
}

/// Addresses, whole.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The first multiple of a huge page in it.
    base: NonNull<u8>,
}

// SAFETY: the pointers name a mapping that belongs to the source alone; it is used for advice only.
unsafe impl Send for PageSource {}

impl PageSource {
    /// So many bytes of memory at most, in pages of so many.
    pub(super) fn new(capacity: u64, page: u64) -> Self {
        Self { page, mapping: None, usage: Usage { capacity, ..Usage::default() } }
    }

    /// The first byte, once addresses were had.
    pub(super) fn start(&self) -> Option<NonNull<u8>> {
        self.mapping.as_ref().map(|mapping| mapping.base)
    }

    /// What the system says to a stretch of a region.
    #[cfg(not(miri))]
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<(), SourceError> {
        let mapping = self.mapping.as_ref().ok_or(SourceError::Unsupported)?;
        // SAFETY: the arena names stretches of the region that it was lent, which lies in the mapping.
        let start = unsafe { mapping.base.add(offset as usize) };
        // SAFETY: as above; no frame has a part of it.
        let advised = unsafe { madvise(start.as_ptr().cast(), bytes as usize, advice) };
        advised.map_err(|error| SourceError::Failed { code: error.raw_os_error() })
    }

    /// Gives the memory of a stretch back. Miri knows no advice: there it stays.
    fn give_back(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        #[cfg(not(miri))]
        self.advise(offset, bytes, Advice::LinuxDontNeed)?;
        let _ = (offset, bytes);
        Ok(())
    }
}

impl Source for PageSource {
    fn take(&mut self, _bytes: u64) -> Result<Region, SourceError> {
        Err(SourceError::Unsupported)
    }

    fn give_back(&mut self, _region: Region) -> Result<(), SourceError> {
        Err(SourceError::Unsupported)
    }

    fn page_bytes(&self) -> u64 {
        self.page
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let failed = |error: rustix::io::Errno| SourceError::Failed { code: error.raw_os_error() };
        let whole = usize::try_from(bytes + HUGE_PAGE).map_err(|_| SourceError::OutOfMemory { available: 0 })?;
        // Miri knows plain mappings only.
        let kind = if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the system's choice.
        let start = unsafe { mmap_anonymous(null_mut(), whole, access, kind) }.map_err(failed)?;
        meet_under_sanitizer();
        let start = NonNull::new(start.cast::<u8>()).ok_or(SourceError::OutOfMemory { available: 0 })?;
        let skip = start.as_ptr().align_offset(HUGE_PAGE as usize);
        // SAFETY: the mapping has a huge page more than is lent.
        let base = unsafe { start.add(skip) };
        self.mapping = Some(Mapping { start, bytes: whole, base });
        // A huge page under a small one would be more than was counted. Refused: the system does as it always does.
        #[cfg(not(miri))]
        let _ =
            self.advise(0, bytes, if self.page == HUGE_PAGE { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage });
        Ok(Region { id: 0, base: base.addr().get() as u64, bytes })
    }

    fn map(&mut self, _region: Region, _offset: u64, bytes: u64) -> Result<(), SourceError> {
        let available = self.usage.capacity - self.usage.reserved;
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        self.usage.calls += 1;
        Ok(())
    }

    fn unmap(&mut self, _region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        Self::give_back(self, offset, bytes)?;
        self.usage.reserved -= bytes;
        self.usage.calls += 1;
        Ok(())
    }

    /// The memory goes back; there is fresh memory at the other place when it is touched.
    fn shift(&mut self, _region: Region, from: u64, _to: u64, bytes: u64) -> Result<(), SourceError> {
        Self::give_back(self, from, bytes)?;
        self.usage.calls += 1;
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

/// The kernel ends one mapping before it gives its address to the next. ThreadSanitizer does not see these system calls, so under
/// it the threads meet here too.
fn meet_under_sanitizer() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    if cfg!(terrace_sanitizer) {
        MET.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        meet_under_sanitizer();
        // SAFETY: mapped by `reserve`; the arena is gone, and with it all who had a part of it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
