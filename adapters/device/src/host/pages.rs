//! Regions of host memory: zeroed, untouched, aligned to the largest power of two not above their size, but at least to
//! a page and at most to a large page (2 MiB).
//!
//! Asks from below: `mmap`; the global allocator on other systems, and under Miri, which cannot unmap parts of a
//! mapping.

/// Alignment of a region of so many bytes.
fn align(bytes: usize) -> usize {
    (1usize << bytes.max(1).ilog2()).clamp(4096, 2 << 20)
}

/// Allocates a region of whole pages.
#[cfg(all(unix, not(miri)))]
pub(super) fn take(bytes: usize) -> Result<*mut u8, ()> {
    let (size, align) = (bytes.checked_next_multiple_of(4096).ok_or(())?, align(bytes));
    let room = size.checked_add(align).ok_or(())?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: maps fresh pages at an address that the system chooses, where nothing else is mapped.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(());
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(align);
    let region = start.wrapping_add(before);
    for (edge, bytes) in [(start, before), (region.wrapping_add(size), align - before)] {
        if bytes > 0 {
            // SAFETY: whole pages of the mapping just made, outside the region. If `munmap` fails, they stay mapped,
            // untouched.
            unsafe { libc::munmap(edge.cast(), bytes) };
        }
    }
    Ok(region)
}

/// Frees a region.
///
/// # Safety
/// [`take`] returned the region for this many bytes, and nothing uses it any more.
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn give_back(region: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise. If `munmap` fails (too many mappings), unused pages stay mapped.
    unsafe { libc::munmap(region.cast(), bytes.next_multiple_of(4096)) };
}

#[cfg(any(not(unix), miri))]
fn layout(bytes: usize) -> Result<std::alloc::Layout, ()> {
    std::alloc::Layout::from_size_align(bytes, align(bytes)).map_err(|_| ())
}

/// Allocates a region.
#[cfg(any(not(unix), miri))]
pub(super) fn take(bytes: usize) -> Result<*mut u8, ()> {
    // SAFETY: a region has at least one byte.
    let region = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    if region.is_null() { Err(()) } else { Ok(region) }
}

/// Frees a region.
///
/// # Safety
/// [`take`] returned the region for this many bytes, and nothing uses it any more.
#[cfg(any(not(unix), miri))]
pub(super) unsafe fn give_back(region: *mut u8, bytes: usize) {
    if let Ok(layout) = layout(bytes) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(region, layout) };
    }
}
