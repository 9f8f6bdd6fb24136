//! The heap for firmware: blocks without headers, and records of free blocks inside the free memory.
//!
//! Promises upward: every call takes a bounded number of instructions (see `docs/benchmarks.md`); the overhead of a
//! block is its rounding to granules (of 8 or 16 bytes) and one bit a granule; adjacent free blocks merge at once, or, in
//! [`Fast`], later; a request is served if a free block is larger by an eighth, and at an alignment by that too.
//! Asks from below: memory that no other code accesses; each free must be of a live block, with its layout.
//!
//! ```text
//! Rust passes the layout when it frees, so a block needs no header:
//!
//!   | tables        | live   | free   | live | live   | free       | live | victim .........................|
//!   | bits  heads   |        | size                   | size
//!   |         |     |        | next, prev             | next, prev            `Fast` cuts small requests from
//!   |         |     |        |    size|               |        size|          its front: no list, no search
//!             +--------------^------------------------^
//!   one bit for each granule is set where a free block starts or ends: allocating and freeing flip two bits
//! ```
//!
//! The lists by size are those of Lea's malloc and of TLSF (Masmano et al. 2004): one for each small size, eight for each
//! power of two above. The *designated victim* is Lea's.

mod allocate;
mod bins;
mod check;
mod config;
mod deferred;
mod free;
mod header;
mod lists;
mod memory;
mod records;
mod region;
mod resize;
mod small;

pub use config::{Bounded, Checked, Fast, Fastest, HeapConfig, Native, Small};
pub use deferred::MOST_MERGED;
pub use header::HeaderHeap;
pub use records::{FourFields, Narrow, Packed, Records, Wide};

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use crate::error::FreeError;
use memory::HeapMemory;
use region::HeapRegion;

/// A heap over at most `REGIONS` regions of memory.
///
/// # Example
/// ```
/// use core::alloc::Layout;
/// use core::ptr::NonNull;
/// use terrace_core::heap::{Bounded, RegionHeap};
///
/// let mut memory = [0u64; 1024];
/// let mut heap: RegionHeap<Bounded> = RegionHeap::empty();
/// // SAFETY: the array outlives the heap, and nothing else uses it.
/// unsafe { heap.add_region(NonNull::from(&mut memory).cast(), size_of_val(&memory))? };
///
/// let layout = Layout::new::<[u32; 25]>();
/// let block = heap.allocate(layout).expect("8 KiB are enough");
/// assert_eq!(heap.usage().live, 104, "100 bytes, in granules of 8");
/// // SAFETY: it was given by this heap for this layout, and is not used any more.
/// unsafe { heap.free(block, layout)? };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RegionHeap<C = Fast, const REGIONS: usize = 1> {
    /// The regions in use come first and do not overlap; the others are [`HeapRegion::NONE`].
    regions: [HeapRegion<C>; REGIONS],
}

// SAFETY: the heap alone accesses its memory, as callers of `add_region` promised, so any thread may own the heap.
unsafe impl<C: HeapConfig, const REGIONS: usize> Send for RegionHeap<C, REGIONS> {}

/// Why memory cannot become a region. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The tables of the region would leave no granule for blocks.
    TooSmall,
    /// The region has more granules than the records can address.
    TooLarge {
        /// Maximum bytes of a region of this heap.
        max: usize,
    },
    /// The region overlaps one that was added before.
    Overlaps,
    /// The heap already has `REGIONS` regions.
    TooMany,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall => write!(f, "too small: nothing would be left beside the region's tables"),
            Self::TooLarge { max } => {
                write!(
                    f,
                    "too large: a region of this heap has at most {max} bytes; add it in parts, or use wider records"
                )
            }
            Self::Overlaps => write!(f, "overlaps a region that this heap has already"),
            Self::TooMany => write!(f, "no room for another region; give the heap a larger REGIONS"),
        }
    }
}

impl core::error::Error for RegionError {}

/// The memory of a heap by use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUsage {
    /// Bytes of all regions, without those that alignment cut off at their ends.
    pub total: usize,
    /// Bytes of live blocks, in whole granules.
    pub live: usize,
    /// Bytes of free blocks.
    pub free: usize,
    /// Bytes of the largest free block; not every request just below it is served.
    ///
    /// See [`RegionHeap::allocate`].
    pub largest_free: usize,
    /// Number of free blocks.
    pub free_blocks: usize,
    /// Bytes of the regions' tables.
    pub tables: usize,
}

impl<C: HeapConfig, const REGIONS: usize> RegionHeap<C, REGIONS> {
    /// A heap without memory: every request fails.
    pub const fn empty() -> Self {
        Self { regions: [const { HeapRegion::NONE }; REGIONS] }
    }

    /// Adds a region, at any alignment: all of it but its tables becomes free.
    ///
    /// # Errors
    /// [`RegionError`]: why the memory cannot be a region.
    ///
    /// # Safety
    /// Until the last use of the heap, the bytes must be readable and writable, and only the heap and the users of its
    /// blocks may access them.
    pub unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
        let from = start.addr().get();
        // No memory reaches past the last address.
        let end = from.checked_add(bytes).ok_or(RegionError::TooSmall)?;
        let skip = from.wrapping_neg() % HeapRegion::<C>::GRANULE.max(size_of::<u64>());
        if bytes <= skip {
            return Err(RegionError::TooSmall);
        }
        let granules = (bytes - skip) / HeapRegion::<C>::GRANULE;
        if granules > C::Records::MAX_GRANULES {
            return Err(RegionError::TooLarge {
                max: C::Records::MAX_GRANULES.saturating_mul(HeapRegion::<C>::GRANULE),
            });
        }
        let mut used = 0;
        while let Some(region) = self.regions.get(used)
            && region.granules > 0
        {
            if REGIONS > 1 && from <= region.last_address() && region.start_address() < end {
                return Err(RegionError::Overlaps);
            }
            used += 1;
        }
        let region = self.regions.get_mut(used).ok_or(RegionError::TooMany)?;
        // SAFETY: the caller promised exclusive access; the region accesses no granule from `granules` on.
        let memory = unsafe { HeapMemory::new(start) }.moved(skip);
        if region.initialize(memory, granules) { Ok(()) } else { Err(RegionError::TooSmall) }
    }

    /// Allocates a block; `None` if no free block is large enough, or the layout has size 0.
    ///
    /// A list holds blocks that differ by up to an eighth, of which only the first is looked at. A request that is up to
    /// an eighth smaller than a free block may therefore be refused, if no larger one is free; and one at an alignment
    /// above the granule although it fits into a free block.
    #[inline]
    pub fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.allocate_unmerged(layout);
        if C::DEFERS && block.is_none() { self.allocate_merged(layout) } else { block }
    }

    /// Allocates a block, but does not merge what waits; see [`RegionHeap::merge`].
    ///
    /// For a program that would rather ask another heap before it spends the time.
    #[inline(always)]
    pub fn allocate_unmerged(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let size = HeapRegion::<C>::granules(layout.size());
        if REGIONS == 1 {
            self.regions.first_mut()?.allocate_block(size, layout.align())
        } else {
            self.regions.iter_mut().find_map(|region| region.allocate_block(size, layout.align()))
        }
    }

    /// Allocates after all that waits was merged.
    #[cold]
    #[inline(never)]
    fn allocate_merged(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.merge();
        self.allocate_unmerged(layout)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`FreeError::Foreign`] when no region contains the block (found with several regions, or by a [`Checked`] heap).
    /// Found by a [`Checked`] heap alone: [`FreeError::Stale`] when no live block starts there,
    /// [`FreeError::WrongLayout`] when one does, of another size.
    ///
    /// # Safety
    /// This heap must have allocated the block for this layout (or that of the last resize); the block must be live,
    /// and must not be used afterwards. A [`Checked`] heap refuses a block that is not live, until its memory is
    /// allocated again.
    #[inline]
    pub unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        let size = HeapRegion::<C>::granules(layout.size());
        let (region, at) = self.find(block, size)?;
        region.unmark(at);
        region.free(at, size, layout.align());
        Ok(())
    }

    /// Resizes a block in place, at its alignment.
    ///
    /// Returns false, without effect, if there is no room.
    ///
    /// # Errors
    /// As for [`RegionHeap::free`].
    ///
    /// # Safety
    /// This heap must have allocated the block for this layout, and the block must be live. `bytes`, rounded up to the
    /// layout's alignment, must be at most `isize::MAX` and not 0.
    #[inline]
    pub unsafe fn resize(&mut self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Result<bool, FreeError> {
        let size = HeapRegion::<C>::granules(layout.size());
        let (region, at) = self.find(block, size)?;
        Ok(region.resize(at, size, HeapRegion::<C>::granules(bytes)))
    }

    /// Resizes a block in place, or moves it with its contents.
    ///
    /// `None`, without effect, if no free block is large enough.
    ///
    /// # Errors
    /// As for [`RegionHeap::free`].
    ///
    /// # Safety
    /// As for [`RegionHeap::resize`]. Only the pointer returned may be used afterwards, with the layout's alignment.
    #[inline]
    pub unsafe fn reallocate(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller's promise.
        if unsafe { self.resize(block, layout, bytes)? } {
            return Ok(Some(block));
        }
        let Ok(larger) = Layout::from_size_align(bytes, layout.align()) else { return Ok(None) };
        let Some(new) = self.allocate_to_move(larger) else {
            // The request merged what waited: the block may have room now.
            // SAFETY: the caller's promise.
            return Ok(unsafe { self.resize(block, layout, bytes)? }.then_some(block));
        };
        // SAFETY: two live blocks do not overlap, and the new one is larger: `resize` shrinks in place.
        unsafe { new.copy_from_nonoverlapping(block, layout.size()) };
        // SAFETY: the caller's promise; the block was live when `resize` checked it, and its bytes are used no more.
        unsafe { self.free(block, layout)? };
        Ok(Some(new))
    }

    /// Allocates a block to replace one that had no room to grow.
    ///
    /// From a list if possible: a block that grew lives longer, as a rule, than those between which the victim would place it.
    pub fn allocate_to_move(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        if C::DEFERS && layout.align() <= HeapRegion::<C>::GRANULE {
            let size = HeapRegion::<C>::granules(layout.size());
            for region in &mut self.regions {
                if let Some(block) = region.allocate_listed(size) {
                    return Some(region.mark(block));
                }
            }
        }
        self.allocate(layout)
    }

    /// Merges all blocks that wait to be merged, in a heap that defers; O(such blocks).
    ///
    /// A request that would otherwise be refused does it. A program may do it when it has time, or before it looks at
    /// the number of free blocks in [`RegionHeap::usage`].
    pub fn merge(&mut self) {
        if C::DEFERS {
            self.regions.iter_mut().for_each(HeapRegion::merge_all);
        }
    }

    /// The region of a block, and the block's place there; refuses a block that is not live, if the heap is checked.
    #[inline(always)]
    fn find(&mut self, block: NonNull<u8>, size: usize) -> Result<(&mut HeapRegion<C>, usize), FreeError> {
        let address = block.addr().get() as u64;
        let region = if REGIONS == 1 && !C::CHECKED {
            self.regions.first_mut()
        } else {
            self.regions.iter_mut().find(|region| region.contains(block))
        };
        let region = region.ok_or(FreeError::Foreign { address })?;
        let at = region.place(block);
        if C::CHECKED {
            let ends = at.checked_add(size).is_some_and(|end| end <= region.end());
            let aligned = region.lists.memory.offset_of(block) % HeapRegion::<C>::GRANULE == 0;
            if !aligned {
                return Err(FreeError::Foreign { address });
            }
            if !region.is_start(at) {
                return Err(FreeError::Stale { address });
            }
            if size == 0 || !ends || !region.has_size(at, size) {
                return Err(FreeError::WrongLayout { address });
            }
        }
        Ok((region, at))
    }

    /// Whether a region contains an address, outside its tables.
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.regions.iter().any(|region| region.contains(address))
    }
}

impl<C: HeapConfig, const REGIONS: usize> Default for RegionHeap<C, REGIONS> {
    fn default() -> Self {
        Self::empty()
    }
}
