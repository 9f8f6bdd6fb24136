//! Regions with capabilities: a heap for each, from which a request takes the first that suits it.
//!
//! Promises upward: a request is served by the first region that has what it needs and room; a block's region is found by
//! its address. O(regions), for each entry of the request.
//! Asks from below: a heap over one region, [`MemoryCaps`].
//!
//! ```text
//! request   [ DMA | INTERNAL,  EXTERNAL ]              the wish, then its fallbacks
//!                |                |
//!                v                v
//! regions   | INTERNAL | DMA, INTERNAL | EXTERNAL |    each a heap of its own, in the order they were added
//! ```
//!
//! Invariants: the first `used` entries have memory, the others have none; no two overlap.

use core::ptr::NonNull;

use terrace_core::heap::{HeaderHeap, HeapConfig, HeapUsage, RegionError, RegionHeap};
use terrace_core::{FreeError, Violation};

use crate::capabilities::MemoryCaps;

/// A heap over one region.
#[doc(hidden)]
pub trait RegionOf {
    /// A heap without memory.
    const EMPTY: Self;

    /// Adds the region.
    ///
    /// # Errors
    /// As [`RegionHeap::add_region`].
    ///
    /// # Safety
    /// As [`RegionHeap::add_region`].
    unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError>;

    /// Whether the region contains an address.
    fn contains(&self, address: NonNull<u8>) -> bool;

    /// Merges what waits.
    fn merge(&mut self);

    /// The region's bytes by use. O(free blocks).
    fn usage(&self) -> HeapUsage;

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    fn check(&self) -> Result<(), Violation>;
}

macro_rules! region_of {
    ($($heap:ident),*) => {$(
        impl<C: HeapConfig> RegionOf for $heap<C, 1> {
            const EMPTY: Self = Self::empty();

            unsafe fn add_region(&mut self, start: NonNull<u8>, bytes: usize) -> Result<(), RegionError> {
                // SAFETY: the caller promises what `add_region` of the heap asks for.
                unsafe { $heap::add_region(self, start, bytes) }
            }

            #[inline(always)]
            fn contains(&self, address: NonNull<u8>) -> bool {
                $heap::contains(self, address)
            }

            fn merge(&mut self) {
                $heap::merge(self);
            }

            fn usage(&self) -> HeapUsage {
                $heap::usage(self)
            }

            fn check(&self) -> Result<(), Violation> {
                $heap::check(self)
            }
        }
    )*};
}
region_of!(RegionHeap, HeaderHeap);

/// Up to `N` regions.
#[doc(hidden)]
#[derive(Debug)]
pub struct RegionSet<H, const N: usize> {
    entries: [Entry<H>; N],
    used: usize,
}

#[derive(Debug)]
struct Entry<H> {
    heap: H,
    /// The first address of the memory as it was given, tables and cut-off ends included.
    first: usize,
    /// The last address of it.
    last: usize,
    capabilities: MemoryCaps,
}

impl<H: RegionOf, const N: usize> RegionSet<H, N> {
    /// No region. All zeros, so that a static takes no space in an image.
    pub const EMPTY: Self = Self {
        entries: [const { Entry { heap: H::EMPTY, first: 0, last: 0, capabilities: MemoryCaps::ANY } }; N],
        used: 0,
    };

    /// Number of regions added so far. A failed request is worth another attempt once it has grown.
    pub fn count(&self) -> usize {
        self.used
    }

    /// Adds a region.
    ///
    /// # Errors
    /// [`RegionError`]: why the memory cannot be a region. Nothing was changed, not even its bytes.
    ///
    /// # Safety
    /// As [`RegionHeap::add_region`]; if it is refused, the bytes are the caller's again.
    pub unsafe fn add(&mut self, start: NonNull<u8>, bytes: usize, has: MemoryCaps) -> Result<(), RegionError> {
        let first = start.addr().get();
        let last = bytes.checked_sub(1).and_then(|more| first.checked_add(more)).ok_or(RegionError::TooSmall)?;
        if self.entries.iter().take(self.used).any(|entry| first <= entry.last && entry.first <= last) {
            return Err(RegionError::Overlaps);
        }
        let entry = self.entries.get_mut(self.used).ok_or(RegionError::TooMany)?;
        // SAFETY: the caller promises that the bytes are this heap's from now on.
        unsafe { entry.heap.add_region(start, bytes) }?;
        (entry.first, entry.last, entry.capabilities) = (first, last, has);
        self.used += 1;
        Ok(())
    }

    /// The result of the first attempt that succeeds, on the regions that `want` leads to.
    ///
    /// For each entry of `want` in turn, on each region that has it.
    ///
    ///
    /// Without `want`: on each region, in the order they were added.
    #[inline(always)]
    pub fn first_of<R>(
        &mut self,
        want: Option<&[MemoryCaps]>,
        mut attempt: impl FnMut(&mut H) -> Option<R>,
    ) -> Option<R> {
        let Some(want) = want else {
            return self.entries.iter_mut().find_map(|entry| attempt(&mut entry.heap));
        };
        want.iter().find_map(|&needs| {
            let mut suit = self.entries.iter_mut().filter(|entry| entry.capabilities.contains(needs));
            suit.find_map(|entry| attempt(&mut entry.heap))
        })
    }

    /// The heap of the first region.
    #[inline(always)]
    pub fn first(&mut self) -> Option<&mut H> {
        self.entries.first_mut().map(|entry| &mut entry.heap)
    }

    /// The heap of the region that contains an address.
    ///
    /// A single region is taken to contain it, unless its heap is checked and looks for itself.
    ///
    /// # Errors
    /// [`FreeError::Foreign`]: no region contains it.
    #[inline(always)]
    pub fn of(&mut self, address: NonNull<u8>) -> Result<&mut H, FreeError> {
        let found = if N == 1 {
            self.entries.first_mut()
        } else {
            self.entries.iter_mut().find(|entry| entry.heap.contains(address))
        };
        found.map(|entry| &mut entry.heap).ok_or(FreeError::Foreign { address: address.addr().get() as u64 })
    }

    /// Whether a region contains an address, outside its tables.
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.entries.iter().any(|entry| entry.heap.contains(address))
    }

    /// Merges what waits in one of the regions.
    pub fn merge(&mut self, region: usize) {
        if let Some(entry) = self.entries.get_mut(region) {
            entry.heap.merge();
        }
    }

    /// The bytes by use of all regions with these capabilities; of `largest_free` the largest.
    pub fn usage(&self, has: MemoryCaps) -> HeapUsage {
        let regions = self.entries.iter().take(self.used).filter(|entry| entry.capabilities.contains(has));
        regions.fold(HeapUsage::default(), |sum, entry| {
            let one = entry.heap.usage();
            HeapUsage {
                total: sum.total + one.total,
                live: sum.live + one.live,
                free: sum.free + one.free,
                largest_free: sum.largest_free.max(one.largest_free),
                free_blocks: sum.free_blocks + one.free_blocks,
                tables: sum.tables + one.tables,
            }
        })
    }

    /// Checks every region.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.entries.iter().try_for_each(|entry| entry.heap.check())
    }
}
