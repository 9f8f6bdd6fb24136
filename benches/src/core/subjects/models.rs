//! Models of PyTorch, RMM and BFC: their policies on simulated devices.
//!
//! Promises upward: what a policy costs in this repository's restatement; the original's speed may differ either
//! way (each model's page says where).
//! Asks from below: [`terrace_models`].

use super::{Subject, capacity};
use terrace_core::{Allocator, Block, NoFence, Owner, Request};
use terrace_models::{Bfc, BfcOptions, PyTorch, Rmm, RmmOptions, Segments};

/// Anything that shows the face of terrace.
pub struct Faced<A>(pub A);

impl<A: Allocator> Subject for Faced<A> {
    type Handle = Block;

    #[inline]
    fn allocate(&mut self, bytes: u32) -> Option<Block> {
        self.0.allocate(Request::new(u64::from(bytes))).ok()
    }

    #[inline]
    fn free(&mut self, handle: Block) -> bool {
        self.0.free(handle, Owner(0)).is_ok()
    }

    fn start(&self, handle: &Block) -> u64 {
        handle.address
    }
}

/// PyTorch's defaults.
pub fn pytorch() -> Faced<PyTorch<Segments>> {
    Faced(PyTorch::new(Segments::new(0)))
}

/// A pool that takes everything with its first allocation.
pub fn rmm(live: u32) -> Faced<Rmm<Segments>> {
    let initial = capacity(live);
    Faced(Rmm::with(Segments::new(0), NoFence, RmmOptions { initial, maximum: initial }))
}

/// One region of the capacity: what the original does unless it is told to grow.
pub fn bfc(live: u32) -> Faced<Bfc<Segments>> {
    let limit = capacity(live);
    Faced(Bfc::with(Segments::new(limit), NoFence, BfcOptions { limit, allow_growth: false, ..BfcOptions::default() }))
}
