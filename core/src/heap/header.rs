//! A heap whose blocks have headers, for callers that free without a size: C's `malloc` and `free`.
//!
//! Promises upward: `free` needs only the address; every block is aligned for any C type.
//! Asks from below: a [`RegionHeap`] of its own.
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

/// A heap whose blocks have a header of two words: bytes requested, offset in the heap's block.
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

/// The header in front of a caller's block.
#[derive(Clone, Copy)]
#[repr(C)]
struct HeapHeader {
    /// Bytes that the caller requested.
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
        // SAFETY: the caller promises what `RegionHeap::add_region` asks for.
        unsafe { self.heap.add_region(start, bytes) }
    }

    /// Allocates `bytes` bytes, which may be 0, at an alignment of `align` bytes.
    ///
    /// `None` if no free block is large enough, or the alignment is not a power of two.
    #[inline]
    pub fn allocate(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if !align.is_power_of_two() {
            return None;
        }
        let lead = align.max(HEADER);
        let layout = layout(HeapHeader { bytes, lead })?;
        let start = self.heap.allocate(layout)?;
        // SAFETY: the heap's block has `lead + bytes` bytes, so `lead` is in it or at its end.
        let block = unsafe { start.add(lead) };
        // SAFETY: `lead` is at least the size of a header, and a multiple of its alignment.
        unsafe { header_of(block).write(HeapHeader { bytes, lead }) };
        #[cfg(terrace_seeded_bug = "heap_block_from_its_header")]
        // SAFETY: this is the bug: a pointer from a reference to the header may access only the header.
        let header = NonNull::from(unsafe { &mut *header_of(block) });
        #[cfg(terrace_seeded_bug = "heap_block_from_its_header")]
        // SAFETY: the block follows the header, in the same allocation.
        let block = unsafe { header.add(1) }.cast();
        Some(block)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// As [`RegionHeap::free`].
    ///
    /// # Safety
    /// This heap must have allocated the block; it must be live, and not be used any more.
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller promises a live block of this heap, which has a header in front.
        let header = unsafe { header_of(block).read() };
        let (start, layout) = whole(block, header)?;
        // SAFETY: the header has the offset and the layout with which the heap allocated its block.
        unsafe { self.heap.free(start, layout) }.map_err(|error| at(error, block))
    }

    /// The bytes requested for a block.
    ///
    /// # Safety
    /// This heap must have allocated the block, which must be live.
    #[inline]
    pub unsafe fn size_of(&self, block: NonNull<u8>) -> usize {
        // SAFETY: the caller promises a live block of this heap, which has a header in front.
        unsafe { header_of(block).read() }.bytes
    }

    /// Resizes a block in place, or moves it with its contents, at its alignment.
    ///
    /// `None`, without effect, if no free block is large enough.
    ///
    /// # Errors
    /// As [`RegionHeap::free`].
    ///
    /// # Safety
    /// This heap must have allocated the block, which must be live. Afterwards only the pointer returned may be used.
    pub unsafe fn reallocate(&mut self, block: NonNull<u8>, bytes: usize) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller promises a live block of this heap, which has a header in front.
        let header = unsafe { header_of(block).read() };
        let Some(total) = header.lead.checked_add(bytes).filter(|&total| total <= isize::MAX as usize) else {
            return Ok(None);
        };
        let (start, layout) = whole(block, header)?;
        // SAFETY: the header has the offset and the layout with which the heap allocated its block; `total` is at most
        // `isize::MAX` and not 0.
        let new = unsafe { self.heap.reallocate(start, layout, total) }.map_err(|error| at(error, block))?;
        let Some(new) = new else { return Ok(None) };
        // SAFETY: the new block has `total` bytes, of which `lead` are in front of the caller's.
        let new = unsafe { new.add(header.lead) };
        // SAFETY: `lead` is at least the size of a header, and a multiple of its alignment.
        unsafe { header_of(new).write(HeapHeader { bytes, ..header }) };
        Ok(Some(new))
    }

    /// The alignment of a block in bytes: at least that requested.
    ///
    /// # Safety
    /// This heap must have allocated the block, which must be live.
    #[inline(always)]
    pub unsafe fn align_of(&self, block: NonNull<u8>) -> usize {
        // SAFETY: the caller promises a live block of this heap, which has a header in front.
        unsafe { header_of(block).read() }.lead
    }

    /// See [`RegionHeap::merge`].
    pub fn merge(&mut self) {
        self.heap.merge();
    }

    /// See [`RegionHeap::usage`].
    pub fn usage(&self) -> HeapUsage {
        self.heap.usage()
    }

    /// See [`RegionHeap::check`].
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.heap.check()
    }

    /// See [`RegionHeap::contains`].
    ///
    /// A block of no bytes may begin where its region ends, and is then not contained.
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.heap.contains(address)
    }
}

impl<C: HeapConfig, const REGIONS: usize> Default for HeaderHeap<C, REGIONS> {
    fn default() -> Self {
        Self::empty()
    }
}

/// Start and layout of the heap's block around the caller's; an error if the header is corrupt.
#[inline(always)]
fn whole(block: NonNull<u8>, header: HeapHeader) -> Result<(NonNull<u8>, Layout), FreeError> {
    let start = NonNull::new(block.as_ptr().wrapping_sub(header.lead));
    start.zip(layout(header)).ok_or(FreeError::Foreign { address: block.addr().get() as u64 })
}

/// Converts an error about the heap's block to one about the caller's block.
#[cold]
fn at(error: FreeError, block: NonNull<u8>) -> FreeError {
    let address = block.addr().get() as u64;
    match error {
        FreeError::Stale { .. } => FreeError::Stale { address },
        FreeError::WrongLayout { .. } => FreeError::WrongLayout { address },
        _ => FreeError::Foreign { address },
    }
}

/// The layout of the heap's block: padding, header and the caller's bytes.
#[inline(always)]
fn layout(header: HeapHeader) -> Option<Layout> {
    Layout::from_size_align(header.lead.checked_add(header.bytes)?, header.lead).ok()
}

/// Pointer to the header of a block.
#[inline(always)]
fn header_of(block: NonNull<u8>) -> *mut HeapHeader {
    block.as_ptr().wrapping_sub(HEADER).cast()
}
