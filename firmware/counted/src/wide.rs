//! The heaps with records for any region, where `measure` has those that the target proposes, of 512 KiB at most.

use measure::calls::{Bare, Calls, Place};
use terrace_core::heap::{Fast, Small, Wide};

struct FastPlace;

impl Place for FastPlace {
    type Config = Fast<Wide>;

    fn heap() -> &'static Bare<Fast<Wide>> {
        static HEAP: Bare<Fast<Wide>> = Bare::empty();
        &HEAP
    }
}

struct SmallPlace;

impl Place for SmallPlace {
    type Config = Small<Wide>;

    fn heap() -> &'static Bare<Small<Wide>> {
        static HEAP: Bare<Small<Wide>> = Bare::empty();
        &HEAP
    }
}

/// The heap for speed.
pub const FAST: Calls = Calls::of::<FastPlace>();

/// The heap for size.
pub const SMALL: Calls = Calls::of::<SmallPlace>();
