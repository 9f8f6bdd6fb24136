//! The pages of one mapping, as a source for the arena: addresses are reserved once, memory is added and removed under them.
//!
//! Promises upward: mapped pages never exceed the capacity; memory of an unmapped page is the system's.
//! Asks from below: `mmap` and `madvise`.

#[cfg(not(miri))]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// Bytes of a huge page.
pub(super) const HUGE_PAGE: u64 = 2 << 20;

pub(super) struct PageSource {
    /// Page size of this source in bytes.
    page: u64,
    mapping: Option<Mapping>,
    usage: SourceUsage,
}

/// The reserved address space; the source's region begins at `base`.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The first address in the mapping that is a multiple of a huge page: the start of the region.
    base: NonNull<u8>,
}

// SAFETY: the source alone owns the mapping; the pointers serve for advice only.
unsafe impl Send for PageSource {}

impl PageSource {
    /// Creates a source of at most `capacity` bytes of memory, in pages of `page` bytes.
    pub(super) fn new(capacity: u64, page: u64) -> Self {
        Self { page, mapping: None, usage: SourceUsage { capacity, ..SourceUsage::default() } }
    }

    /// The first byte of the region; `None` until addresses are reserved.
    pub(super) fn start(&self) -> Option<NonNull<u8>> {
        self.mapping.as_ref().map(|mapping| mapping.base)
    }

    /// Calls `madvise` for the `bytes` bytes of the region at `offset`.
    #[cfg(not(miri))]
    fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<(), SourceError> {
        let mapping = self.mapping.as_ref().ok_or(SourceError::Unsupported)?;
        // SAFETY: the part lies in the region, and the region in the mapping.
        let start = unsafe { mapping.base.add(offset as usize) };
        // SAFETY: as above; the arena advises only on pages without a frame.
        let advised = unsafe { madvise(start.as_ptr().cast(), bytes as usize, advice) };
        advised.map_err(|error| SourceError::Failed { code: error.raw_os_error() })
    }

    /// Lets the kernel use huge pages where a range covers whole ones: I/O then has few segments. All of their memory is
    /// counted, as the range is mapped. On failure the kernel keeps its default.
    fn permit_huge_pages(&self, offset: u64, bytes: u64) {
        let (first, end) = (offset.next_multiple_of(HUGE_PAGE), (offset + bytes) / HUGE_PAGE * HUGE_PAGE);
        #[cfg(not(miri))]
        if self.page < HUGE_PAGE && first < end {
            let _ = self.advise(first, end - first, Advice::LinuxHugepage);
        }
        let _ = (first, end);
    }

    /// Refuses huge pages where a range touches one: what is mapped of it later may be less than the whole.
    fn refuse_huge_pages(&self, offset: u64, bytes: u64) {
        let (first, end) = (offset / HUGE_PAGE * HUGE_PAGE, (offset + bytes).next_multiple_of(HUGE_PAGE));
        #[cfg(not(miri))]
        if self.page < HUGE_PAGE && bytes > 0 {
            let _ = self.advise(first, end - first, Advice::LinuxNoHugepage);
        }
        let _ = (first, end);
    }

    /// Returns the memory of a range to the system. Miri has no `madvise`: under it the memory stays.
    fn give_back(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        #[cfg(not(miri))]
        {
            if self.page < HUGE_PAGE && !(offset | bytes).is_multiple_of(HUGE_PAGE) {
                // Where the range is a part of a huge page, `MADV_DONTNEED` would leave its memory charged to this process
                // until the kernel is short of memory; `MADV_FREE` splits the page first.
                let _ = self.advise(offset, bytes, Advice::LinuxFree);
            }
            self.advise(offset, bytes, Advice::LinuxDontNeed)?;
        }
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
        // Miri supports plain mappings only.
        let kind = if cfg!(miri) { MapFlags::PRIVATE } else { MapFlags::PRIVATE | MapFlags::NORESERVE };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { mmap_anonymous(null_mut(), whole, access, kind) }.map_err(failed)?;
        meet_under_sanitizer();
        let start = NonNull::new(start.cast::<u8>()).ok_or(SourceError::OutOfMemory { available: 0 })?;
        let skip = start.as_ptr().align_offset(HUGE_PAGE as usize);
        // SAFETY: the mapping is a huge page longer than the region.
        let base = unsafe { start.add(skip) };
        self.mapping = Some(Mapping { start, bytes: whole, base });
        // Where this source's pages are small, refuse huge pages of the kernel: they would take memory that is not
        // counted. On failure the kernel keeps its default.
        #[cfg(not(miri))]
        let _ =
            self.advise(0, bytes, if self.page == HUGE_PAGE { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage });
        Ok(Region { id: 0, base: base.addr().get() as u64, bytes })
    }

    fn map(&mut self, _region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let available = self.usage.capacity - self.usage.reserved;
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        self.usage.calls += 1;
        self.permit_huge_pages(offset, bytes);
        Ok(())
    }

    fn unmap(&mut self, _region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        Self::give_back(self, offset, bytes)?;
        self.refuse_huge_pages(offset, bytes);
        self.usage.reserved -= bytes;
        self.usage.calls += 1;
        Ok(())
    }

    /// Moves free pages from offset `from` to `to`: returns the memory at `from` to the system; the kernel supplies
    /// fresh memory at `to` on first touch.
    fn shift(&mut self, _region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        Self::give_back(self, from, bytes)?;
        self.refuse_huge_pages(from, bytes);
        self.permit_huge_pages(to, bytes);
        self.usage.calls += 1;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}

/// For ThreadSanitizer: orders the unmapping of a range before the next mapping at the same address. The kernel does
/// so, but the sanitizer does not see it.
fn meet_under_sanitizer() {
    static MET: AtomicUsize = AtomicUsize::new(0);
    if cfg!(terrace_sanitizer) {
        MET.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        meet_under_sanitizer();
        // SAFETY: `reserve` mapped it; the arena is gone, and with it every frame in the mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
