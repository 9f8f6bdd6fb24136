//! The heaps with records for any region, where `measure` has those that the target proposes, of 512 KiB at most.

use measure::calls::{Bare, Calls, Place};
use terrace_core::heap::{Bounded, Fast, Packed, Wide};

struct FastPlace;

impl Place for FastPlace {
    type Config = Fast<Wide>;

    fn heap() -> &'static Bare<Fast<Wide>> {
        static HEAP: Bare<Fast<Wide>> = Bare::empty();
        &HEAP
    }
}

struct BoundedPlace;

impl Place for BoundedPlace {
    type Config = Bounded<Packed>;

    fn heap() -> &'static Bare<Bounded<Packed>> {
        static HEAP: Bare<Bounded<Packed>> = Bare::empty();
        &HEAP
    }
}

/// The heap for throughput, in granules of 16 bytes.
pub const FAST: Calls = Calls::of::<FastPlace>();

/// The heap for the worst case, in granules of 8 bytes.
pub const BOUNDED: Calls = Calls::of::<BoundedPlace>();
