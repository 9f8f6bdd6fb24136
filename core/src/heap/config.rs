//! The compile-time configuration of a heap.

use core::marker::PhantomData;

#[cfg(not(target_pointer_width = "64"))]
use super::records::Narrow;
#[cfg(target_pointer_width = "64")]
use super::records::Packed;
use super::records::Records;

/// A configuration of a [`RegionHeap`](super::RegionHeap).
pub trait HeapConfig {
    /// The format of the records of free blocks: determines the granule and the largest region.
    type Records: Records;
    /// Whether small requests are cut from the front of one free block, the victim, that is in no list. Faster; more code.
    const VICTIM: bool;
    /// Whether the block freed last stays out of the lists, so that it merges with its neighbours and serves requests
    /// without a search. Faster; more code.
    const LAST: bool;
    /// Number of blocks in a request's own bin that are tried before the next bin. More of them fill memory further, and
    /// cost time in the worst case.
    const PROBES: u32;
    /// Whether a second bit for each granule marks the starts of live blocks: double frees, foreign addresses and wrong
    /// sizes are then refused, as long as the memory is not allocated again.
    const CHECKED: bool;
}

/// The records that suit the target's word.
///
/// [`Packed`](super::Packed) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(target_pointer_width = "64")]
pub type Native = Packed;
/// The records that suit the target's word.
///
/// [`Packed`](super::Packed) on 64 bits, [`Narrow`](super::Narrow) on fewer.
#[cfg(not(target_pointer_width = "64"))]
pub type Native = Narrow;

/// The configuration with the fewest instructions.
#[derive(Clone, Copy, Debug)]
pub struct Fast<R = Native>(PhantomData<R>);

impl<R: Records> HeapConfig for Fast<R> {
    type Records = R;
    const VICTIM: bool = true;
    const LAST: bool = true;
    const PROBES: u32 = 2;
    const CHECKED: bool = false;
}

/// The configuration with the least code: one path, through the lists, for all requests.
///
/// A request of more than 63 granules searches only lists whose blocks are all large enough, so a request just below the
/// largest free block may fail.
#[derive(Clone, Copy, Debug)]
pub struct Small<R = Native>(PhantomData<R>);

impl<R: Records> HeapConfig for Small<R> {
    type Records = R;
    const VICTIM: bool = false;
    const LAST: bool = false;
    const PROBES: u32 = 0;
    const CHECKED: bool = false;
}

/// Another configuration, plus a check of every free.
#[derive(Clone, Copy, Debug)]
pub struct Checked<C = Fast>(PhantomData<C>);

impl<C: HeapConfig> HeapConfig for Checked<C> {
    type Records = C::Records;
    const VICTIM: bool = C::VICTIM;
    const LAST: bool = C::LAST;
    const PROBES: u32 = C::PROBES;
    const CHECKED: bool = true;
}
