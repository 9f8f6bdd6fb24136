//! The heap beside a shadow that knows every block. Used by the tests beside this folder and by the fuzz target `heap`.
//!
//! Promises upward: every configuration as a [`Kind`], and a [`Shadow`](shadow::Shadow) that panics when the heap does
//! anything that the shadow's own map does not say.
//! Asks from below: the heap's public face only.
//!
//! Words: a *granule* is the unit of sizes; a *gap* is a largest stretch of free granules; a *ground* is memory that a
//! region is made of, with bytes in front and behind that nobody may touch.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod act;
pub mod ground;
pub mod shadow;
pub mod target;

use target::Target;
use terrace_core::heap::{
    Bounded, Checked, Fast, HeaderHeap, HeapConfig, Narrow, Packed, Records, RegionHeap, Small, Wide,
};

/// A configuration of the heap: what the shadow must know of it, and how one is made.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The configuration's type.
    pub name: &'static str,
    /// Bytes of a granule.
    pub granule: usize,
    /// Most granules of a region.
    pub most: usize,
    /// Bytes of the head of a list.
    pub head: usize,
    /// Sizes in granules below this have a list of their own.
    pub exact: usize,
    /// Whether freed blocks are merged later.
    pub defers: bool,
    /// Whether wrong frees are refused.
    pub checked: bool,
    /// Whether blocks have headers.
    pub header: bool,
    /// Regions that it has room for.
    pub regions: usize,
    /// Makes an empty one.
    pub make: fn() -> Box<dyn Target>,
}

impl Kind {
    fn new<C: HeapConfig, const REGIONS: usize>(header: bool, make: fn() -> Box<dyn Target>) -> Self {
        Self {
            name: std::any::type_name::<C>(),
            granule: 1 << C::Records::GRANULE,
            most: C::Records::MAX_GRANULES,
            head: C::Records::HEAD_BYTES,
            exact: C::EXACT,
            defers: C::DEFERS,
            checked: C::CHECKED,
            header,
            regions: REGIONS,
            make,
        }
    }

    /// A heap without headers.
    pub fn plain<C: HeapConfig + 'static, const REGIONS: usize>() -> Self {
        Self::new::<C, REGIONS>(false, || Box::new(RegionHeap::<C, REGIONS>::empty()))
    }

    /// A heap with headers.
    pub fn header<C: HeapConfig + 'static, const REGIONS: usize>() -> Self {
        Self::new::<C, REGIONS>(true, || Box::new(HeaderHeap::<C, REGIONS>::empty()))
    }

    /// Bytes from the start of the heap's block to what the caller gets: room for a header, or nothing.
    pub fn lead(&self, align: usize) -> usize {
        if self.header { align.max(2 * size_of::<usize>()) } else { 0 }
    }
}

fn with_records<R: Records + 'static>() -> [Kind; 15] {
    [
        Kind::plain::<Fast<R>, 1>(),
        Kind::plain::<Fast<R>, 3>(),
        Kind::plain::<Bounded<R>, 1>(),
        Kind::plain::<Bounded<R>, 3>(),
        Kind::plain::<Small<R>, 1>(),
        Kind::plain::<Small<R>, 3>(),
        Kind::plain::<Checked<Fast<R>>, 1>(),
        Kind::plain::<Checked<Bounded<R>>, 3>(),
        Kind::plain::<Checked<Small<R>>, 1>(),
        Kind::plain::<Checked<Small<R>>, 3>(),
        Kind::header::<Fast<R>, 1>(),
        Kind::header::<Fast<R>, 3>(),
        Kind::header::<Bounded<R>, 1>(),
        Kind::header::<Small<R>, 1>(),
        Kind::header::<Checked<Small<R>>, 3>(),
    ]
}

/// Every configuration: three records, three profiles, checked or not, one or three regions, headers or none.
pub fn kinds() -> Vec<Kind> {
    [with_records::<Packed>(), with_records::<Wide>(), with_records::<Narrow>()].concat()
}

/// Those without headers.
pub fn plain_kinds() -> Vec<Kind> {
    kinds().into_iter().filter(|kind| !kind.header).collect()
}

/// Those with headers.
pub fn header_kinds() -> Vec<Kind> {
    kinds().into_iter().filter(|kind| kind.header).collect()
}

/// Those that refuse wrong frees.
pub fn checked_kinds() -> Vec<Kind> {
    plain_kinds().into_iter().filter(|kind| kind.checked).collect()
}

/// A number as it is or, under Miri, which is some hundred times slower, a smaller one.
pub const fn cut<T: Copy>(full: T, miri: T) -> T {
    if cfg!(miri) { miri } else { full }
}

/// The kinds that a story is told of: all; under Miri four of them, which have all three records. Programs meet every
/// kind there too.
pub fn told(kinds: Vec<Kind>) -> Vec<Kind> {
    let step = cut(1, kinds.len().div_ceil(4));
    kinds.into_iter().step_by(step).collect()
}
