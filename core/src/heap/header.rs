//! Blocks with a header, for callers that free without a size: C's `malloc` and `free`.
//!
//! Promises upward: `free` needs the address alone; every block is aligned for any C type.
//! Asks from below: a [`RegionHeap`]. Its blocks and these never mix: the types are different.
//!
//! ```text
//! | pad up to the alignment | bytes, lead | what the caller gets ...... |
//! ^ block of the heap       ^ header                                    ^
//! ```

use core::alloc::Layout;
use core::ptr::NonNull;

use super::config::{Fast, HeapConfig};
use super::{HeapUsage, RegionError, RegionHeap};
use crate::error::{FreeError, Violation};

/// A heap whose blocks remember their size: two words in front of each.
///
/// # Example
/// ```
/// use core::ptr::NonNull;
/// use terrace_core::heap::HeaderHeap;
///
/// let mut memory = [0u64; 1024];
/// let mut heap: HeaderHeap = HeaderHeap::empty();
/// // SAFETY: the array outlives the heap, and nothing else uses it.
/// unsafe { heap.add_region(NonNull::from(&mut memory).cast(), size_of_val(&memory))? };
/// let block = heap.allocate(100, 1).expect("8 KiB are enough");
/// // SAFETY: it was given by this heap, and is not used any more.
/// unsafe { heap.free(block)? };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HeaderHeap<C = Fast, const REGIONS: usize = 1> {
    heap: RegionHeap<C, REGIONS>,
}

/// What stands in front of a block.
#[derive(Clone, Copy)]
#[repr(C)]
struct HeapHeader {
    /// Bytes that the caller asked for.
    bytes: usize,
    /// Bytes from the start of the heap's block to the caller's: a power of two.
    lead: usize,
}

/// Bytes of a header, and the alignment that every block has: 8 on 32 bits, 16 on 64, as C's `max_align_t`.
const HEADER: usize = size_of::<HeapHeader>();

impl<C: HeapConfig, const REGIONS: usize> HeaderHeap<C, REGIONS> {
    /// A heap without memory: every request fails.
    pub const fn empty() -> Self {
        Self { heap: RegionHeap::empty() }
    }

    /// Adds a region.
    ///
    /// # Errors
    /// As [`RegionHeap::add_region`].
    ///
    /// # Safety
    /// As [`RegionHeap::add_region`].
    pub unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
        // SAFETY: the caller's promise.
        unsafe { self.heap.add_region(start, bytes) }
    }

    /// Hands out `bytes` bytes, which may be 0, at `align`, a power of two.
    ///
    /// `None`: nothing free is large enough, or the alignment is no power of two.
    #[inline]
    pub fn allocate(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if !align.is_power_of_two() {
            return None;
        }
        let lead = align.max(HEADER);
        let layout = layout(HeapHeader { bytes, lead })?;
        let start = self.heap.allocate(layout)?;
        // SAFETY: `lead` is less than the block's size, or its end.
        let block = unsafe { start.add(lead) };
        // SAFETY: at least a header's bytes lie between the block's start and this, aligned as a header is.
        unsafe { header_of(block).write(HeapHeader { bytes, lead }) };
        #[cfg(terrace_seeded_bug = "heap_block_from_its_header")]
        // SAFETY: it is not: what comes of a reference to the header may reach the header only.
        let header = NonNull::from(unsafe { &mut *header_of(block) });
        #[cfg(terrace_seeded_bug = "heap_block_from_its_header")]
        // SAFETY: the header is at least one long, and the block lies behind it.
        let block = unsafe { header.add(1) }.cast();
        Some(block)
    }

    /// Takes a block back.
    ///
    /// # Errors
    /// As [`RegionHeap::free`].
    ///
    /// # Safety
    /// The block was given by this heap, is live, and is not used any more.
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller's promise: a header stands in front.
        let header = unsafe { header_of(block).read() };
        let (start, layout) = whole(block, header)?;
        // SAFETY: the block starts so far in front, and this layout was asked for.
        unsafe { self.heap.free(start, layout) }.map_err(|error| at(error, block))
    }

    /// Bytes that were asked for.
    ///
    /// # Safety
    /// The block was given by this heap and is live.
    #[inline]
    pub unsafe fn size_of(&self, block: NonNull<u8>) -> usize {
        // SAFETY: the caller's promise: a header stands in front.
        unsafe { header_of(block).read() }.bytes
    }

    /// Makes a block larger or smaller, where it is or elsewhere.
    ///
    /// `None`: nothing free is large enough, and the block is as it was. Its alignment stays.
    ///
    /// # Errors
    /// As [`RegionHeap::free`].
    ///
    /// # Safety
    /// The block was given by this heap and is live. Only the pointer returned may be used afterwards.
    pub unsafe fn reallocate(&mut self, block: NonNull<u8>, bytes: usize) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller's promise: a header stands in front.
        let header = unsafe { header_of(block).read() };
        let Some(total) = header.lead.checked_add(bytes).filter(|&total| total <= isize::MAX as usize) else {
            return Ok(None);
        };
        let (start, layout) = whole(block, header)?;
        // SAFETY: the block starts so far in front, and this layout was asked for; the new size is one too, as was
        // looked at.
        let new = unsafe { self.heap.reallocate(start, layout, total) }.map_err(|error| at(error, block))?;
        let Some(new) = new else { return Ok(None) };
        // SAFETY: the header went along, and what it stands in front of.
        let new = unsafe { new.add(header.lead) };
        // SAFETY: as when it was written first.
        unsafe { header_of(new).write(HeapHeader { bytes, ..header }) };
        Ok(Some(new))
    }

    /// See [`RegionHeap::usage`].
    pub fn usage(&self) -> HeapUsage {
        self.heap.usage()
    }

    /// See [`RegionHeap::check`].
    ///
    /// # Errors
    /// The first clause that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.heap.check()
    }

    /// See [`RegionHeap::contains`].
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.heap.contains(address)
    }
}

impl<C: HeapConfig, const REGIONS: usize> Default for HeaderHeap<C, REGIONS> {
    fn default() -> Self {
        Self::empty()
    }
}

/// The heap's block, which starts in front of the header; an error when the header cannot be one.
#[inline(always)]
fn whole(block: NonNull<u8>, header: HeapHeader) -> Result<(NonNull<u8>, Layout), FreeError> {
    let start = NonNull::new(block.as_ptr().wrapping_sub(header.lead));
    start.zip(layout(header)).ok_or(FreeError::Foreign { address: block.addr().get() as u64 })
}

/// What the heap said of its block, about the caller's.
#[cold]
fn at(error: FreeError, block: NonNull<u8>) -> FreeError {
    let address = block.addr().get() as u64;
    match error {
        FreeError::Stale { .. } => FreeError::Stale { address },
        _ => FreeError::Foreign { address },
    }
}

/// The layout of the heap's block.
#[inline(always)]
fn layout(header: HeapHeader) -> Option<Layout> {
    Layout::from_size_align(header.lead.checked_add(header.bytes)?, header.lead).ok()
}

/// Where a block's header is.
#[inline(always)]
fn header_of(block: NonNull<u8>) -> *mut HeapHeader {
    block.as_ptr().wrapping_sub(HEADER).cast()
}
