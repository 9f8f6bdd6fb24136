//! The bins: free chunks by power-of-two class, in each by (size, address).
//!
//! Promises upward: the smallest chunk that fits and may be used, the lowest among equals, in O(log n) a bin. The
//! original walks its bins from the smallest chunk on; the choice is the same, the time is not.
//! Asks from below: whoever changes a chunk's bytes or address takes it out first.

use std::collections::BTreeSet;

use super::options::{BINS, bin_of};
use crate::chain::Chain;

/// Key of a free chunk: (bytes, address, slot).
type Key = (u64, u64, u32);
/// Bytes of one entry.
pub(super) const ENTRY_BYTES: usize = size_of::<Key>();

/// All bins.
#[derive(Debug)]
pub(super) struct Bins {
    /// Exactly the chunks whose state is `Free` or `Held`, each in the bin of its size.
    bins: [BTreeSet<Key>; BINS],
}

impl Bins {
    pub(super) fn new() -> Self {
        Self { bins: std::array::from_fn(|_| BTreeSet::new()) }
    }

    pub(super) fn insert(&mut self, chain: &Chain, slot: u32) {
        let chunk = &chain.chunks[slot];
        self.bins[bin_of(chunk.bytes)].insert((chunk.bytes, chunk.address, slot));
    }

    pub(super) fn remove(&mut self, chain: &Chain, slot: u32) {
        let chunk = &chain.chunks[slot];
        self.bins[bin_of(chunk.bytes)].remove(&(chunk.bytes, chunk.address, slot));
    }

    pub(super) fn contains(&self, chain: &Chain, slot: u32) -> bool {
        let chunk = &chain.chunks[slot];
        self.bins[bin_of(chunk.bytes)].contains(&(chunk.bytes, chunk.address, slot))
    }

    /// The first chunk of at least `bytes`, from the bin of that size upward, that `usable` lets pass.
    pub(super) fn find(&self, bytes: u64, mut usable: impl FnMut(u32) -> bool) -> Option<u32> {
        let from = bin_of(bytes);
        let fits = self.bins[from..].iter().flat_map(|bin| bin.range((bytes, 0, 0)..));
        fits.map(|&(_, _, slot)| slot).find(|&slot| usable(slot))
    }

    /// Chunks in all bins.
    pub(super) fn len(&self) -> usize {
        self.bins.iter().map(BTreeSet::len).sum()
    }

    /// Bytes of the largest chunk.
    pub(super) fn largest(&self) -> u64 {
        self.bins.iter().rev().find_map(BTreeSet::last).map_or(0, |key| key.0)
    }
}
