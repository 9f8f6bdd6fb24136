//! What a heap can be told at compile time.

use core::marker::PhantomData;

#[cfg(not(target_pointer_width = "64"))]
use super::records::Narrow;
#[cfg(target_pointer_width = "64")]
use super::records::Packed;
use super::records::Records;

/// A configuration of a [`RegionHeap`](super::RegionHeap).
pub trait HeapConfig {
    /// How free blocks are recorded: the granule, and the largest region.
    type Records: Records;
    /// Whether small requests are cut from the front of one free block, the victim, that is in no list. Speed for size
    /// of code.
    const VICTIM: bool;
    /// Whether the block freed last stays out of the lists, so that its neighbours join it and a request that it fits
    /// takes it without a search. Speed for size of code.
    const LAST: bool;
    /// Blocks of a request's own bin that are looked at before the next bin is taken: each costs time in the worst
    /// case, and lets memory be filled further.
    const PROBES: u32;
    /// Whether a second bit for each granule marks where live blocks start: double frees, foreign addresses and wrong
    /// sizes are then refused, until the memory is handed out again.
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

/// Fewest instructions.
#[derive(Clone, Copy, Debug)]
pub struct Fast<R = Native>(PhantomData<R>);

impl<R: Records> HeapConfig for Fast<R> {
    type Records = R;
    const VICTIM: bool = true;
    const LAST: bool = true;
    const PROBES: u32 = 2;
    const CHECKED: bool = false;
}

/// Least code: every request is served from the lists, in one way whatever its alignment.
///
/// One of more than 63 granules looks only at lists whose blocks are all large enough, so that one just below the
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

/// Another configuration, with every free checked.
#[derive(Clone, Copy, Debug)]
pub struct Checked<C = Fast>(PhantomData<C>);

impl<C: HeapConfig> HeapConfig for Checked<C> {
    type Records = C::Records;
    const VICTIM: bool = C::VICTIM;
    const LAST: bool = C::LAST;
    const PROBES: u32 = C::PROBES;
    const CHECKED: bool = true;
}
