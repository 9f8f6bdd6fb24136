//! The compile-time configuration of a heap.

use core::marker::PhantomData;

#[cfg(not(target_pointer_width = "64"))]
use super::records::Narrow;
#[cfg(target_pointer_width = "64")]
use super::records::Packed;
use super::records::Records;
#[cfg(target_pointer_width = "64")]
use super::records::Wide;

/// A configuration of a [`RegionHeap`](super::RegionHeap).
pub trait HeapConfig {
    /// The format of the records of free blocks: determines the granule and the largest region.
    type Records: Records;
    /// Number of sizes, in granules, that have a list to themselves: 32, 64 or 128. More of them fill memory further, and
    /// take more tables. A heap that defers has 64 or more, as it has quick lists for 63 sizes.
    const EXACT: usize;
    /// Whether freed blocks are merged later, a few in each call, and small requests are cut from one free block that is
    /// in no list. Faster; more code, and calls of very different length. A checked heap does not.
    const DEFERS: bool;
    /// Whether one path serves all requests, aligned or not. Slower; less code. A heap that defers has several.
    const ONE_PATH: bool;
    /// Whether a second bit for each granule marks the starts of live blocks: double frees, foreign addresses and wrong
    /// sizes are then refused, as long as the memory is not allocated again.
    const CHECKED: bool;
}

/// The records with the smallest granule that suit the target's word.
///
/// [`Packed`](super::Packed) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(target_pointer_width = "64")]
pub type Native = Packed;
/// The records with the smallest granule that suit the target's word.
///
/// [`Packed`](super::Packed) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(not(target_pointer_width = "64"))]
pub type Native = Narrow;

/// The records that are fastest on the target.
///
/// [`Wide`](super::Wide) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(target_pointer_width = "64")]
pub type Fastest = Wide;
/// The records that are fastest on the target.
///
/// [`Wide`](super::Wide) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(not(target_pointer_width = "64"))]
pub type Fastest = Narrow;

/// The profile for throughput: most calls neither merge nor search.
///
/// A freed block waits, unmerged, for the next request of its size. A call merges at most
/// [`MOST_MERGED`](super::MOST_MERGED) of the blocks that wait; only one that would otherwise be refused merges them all.
#[derive(Clone, Copy, Debug)]
pub struct Fast<R = Fastest>(PhantomData<R>);

impl<R: Records> HeapConfig for Fast<R> {
    type Records = R;
    const EXACT: usize = 64;
    const DEFERS: bool = true;
    const ONE_PATH: bool = false;
    const CHECKED: bool = false;
}

/// The profile for the worst case, and for the most use of the memory: a freed block is merged at once.
///
/// Sizes below 128 granules are found exactly; see [`RegionHeap::allocate`](super::RegionHeap::allocate) for larger ones.
#[derive(Clone, Copy, Debug)]
pub struct Bounded<R = Native>(PhantomData<R>);

impl<R: Records> HeapConfig for Bounded<R> {
    type Records = R;
    const EXACT: usize = 128;
    const DEFERS: bool = false;
    const ONE_PATH: bool = false;
    const CHECKED: bool = false;
}

/// The profile with the least code and tables: [`Bounded`] with fewer lists.
#[derive(Clone, Copy, Debug)]
pub struct Small<R = Native>(PhantomData<R>);

impl<R: Records> HeapConfig for Small<R> {
    type Records = R;
    const EXACT: usize = 32;
    const DEFERS: bool = false;
    const ONE_PATH: bool = true;
    const CHECKED: bool = false;
}

/// Another configuration, plus a check of every free; what is freed is merged at once.
#[derive(Clone, Copy, Debug)]
pub struct Checked<C = Bounded>(PhantomData<C>);

impl<C: HeapConfig> HeapConfig for Checked<C> {
    type Records = C::Records;
    const EXACT: usize = C::EXACT;
    const DEFERS: bool = false;
    const ONE_PATH: bool = C::ONE_PATH;
    const CHECKED: bool = true;
}
