//! The ordered sets of one pool.
//!
//! Promises upward: best fit by (owner, size, address) and lowest-address search of unmapped space in O(log n).
//! Asks from below: whoever changes a chunk's bytes, owner or address takes it out first.

use std::collections::BTreeSet;
use terrace_core::Owner;

use super::options::PyTorchOptions;
use super::{PyTorch, Want};
use crate::chain::Chain;
use crate::chunks::State;

/// Key of a free chunk: (owner, bytes, address, slot).
pub(super) type FreeKey = (Owner, u64, u64, u32);
/// Bytes of one entry.
pub(super) const ENTRY_BYTES: usize = size_of::<FreeKey>();

/// Free and unmapped chunks of one pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Exactly the chunks of this pool whose state is `Free`.
    free: BTreeSet<FreeKey>,
    /// Exactly the chunks of this pool whose state is `Unmapped`: (owner, address, slot).
    unmapped: BTreeSet<(Owner, u64, u32)>,
    /// Searches made while garbage collection is on: the clock by which blocks age.
    clock: u64,
}

impl Pool {
    /// Chunks in both sets.
    pub(super) fn len(&self) -> usize {
        self.free.len() + self.unmapped.len()
    }

    /// Number of free chunks and of unmapped ones.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.free.len(), self.unmapped.len())
    }

    /// Puts a chunk into the set of its state.
    pub(super) fn insert(&mut self, chain: &mut Chain, slot: u32) {
        let chunk = &mut chain.chunks[slot];
        if chunk.state == State::Unmapped {
            self.unmapped.insert((chunk.owner, chunk.address, slot));
        } else {
            chunk.stamp = self.clock;
            self.free.insert((chunk.owner, chunk.bytes, chunk.address, slot));
        }
    }

    /// Takes a chunk out of the set of its state; whether it was there.
    pub(super) fn remove(&mut self, chain: &Chain, slot: u32) -> bool {
        let chunk = &chain.chunks[slot];
        if chunk.state == State::Unmapped {
            self.unmapped.remove(&(chunk.owner, chunk.address, slot))
        } else {
            self.free.remove(&(chunk.owner, chunk.bytes, chunk.address, slot))
        }
    }

    /// Whether a chunk is in the set of its state.
    pub(super) fn contains(&self, chain: &Chain, slot: u32) -> bool {
        let chunk = &chain.chunks[slot];
        match chunk.state {
            State::Unmapped => self.unmapped.contains(&(chunk.owner, chunk.address, slot)),
            _ => self.free.contains(&(chunk.owner, chunk.bytes, chunk.address, slot)),
        }
    }

    /// Free chunks in order of (owner, bytes, address), with bytes and slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.free.iter().map(|&(_, bytes, _, slot)| (bytes, slot))
    }

    /// Free chunks of `owner` with at least `bytes`, smallest first.
    pub(super) fn fits(&self, owner: Owner, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
        let keys = self.free.range((owner, bytes, 0, 0)..);
        keys.take_while(move |key| key.0 == owner).map(|&(_, bytes, _, slot)| (bytes, slot))
    }

    /// Free chunks of `owner` with less than `bytes`, largest first.
    pub(super) fn below(&self, owner: Owner, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
        let keys = self.free.range((owner, 0, 0, 0)..(owner, bytes, 0, 0));
        keys.rev().map(|&(_, bytes, _, slot)| (bytes, slot))
    }

    /// Unmapped chunks of `owner` by address.
    pub(super) fn unmapped(&self, owner: Owner) -> impl Iterator<Item = u32> {
        let keys = self.unmapped.range((owner, 0, 0)..);
        keys.take_while(move |key| key.0 == owner).map(|&(_, _, slot)| slot)
    }

    /// Bytes of the largest free chunk of any owner: one look an owner.
    pub(super) fn largest(&self) -> u64 {
        let mut largest = 0;
        let mut last = self.free.last();
        while let Some(&(owner, bytes, _, _)) = last {
            largest = largest.max(bytes);
            last = self.free.range(..(owner, 0, 0, 0)).next_back();
        }
        largest
    }

    /// Age of a free chunk in searches.
    pub(super) fn age(&self, chain: &Chain, slot: u32) -> u64 {
        self.clock - chain.chunks[slot].stamp
    }
}

impl<S, F> PyTorch<S, F> {
    /// Takes the best fit out of its pool: the smallest free chunk of the owner that may serve the request.
    pub(super) fn find(&mut self, want: &Want) -> Option<u32> {
        let PyTorchOptions { max_split_size, max_non_split_rounding, .. } = self.options;
        let pool = &mut self.pools[want.pool];
        pool.clock += u64::from(self.options.gc_threshold > 0.0);
        let (bytes, slot) = if self.options.expandable {
            away_from_the_tail(pool, &self.chain, want)?
        } else {
            pool.fits(want.owner, want.bytes).next()?
        };
        let oversize = want.bytes >= max_split_size;
        // A request that may be split never takes a block that may not; an oversize one wastes a bounded amount.
        if !oversize && bytes >= max_split_size {
            return None;
        }
        if oversize && bytes - want.bytes >= max_non_split_rounding {
            return None;
        }
        pool.remove(&self.chain, slot);
        Some(slot)
    }

    /// Bytes of the largest free block in either pool.
    pub(super) fn largest_free(&self) -> u64 {
        self.pools.iter().map(Pool::largest).max().unwrap_or(0)
    }
}

/// The first fit, or a larger one as long as each could grow to less than the one before: a block at the growing end
/// counts with the space behind it, so that it is kept for what needs it.
fn away_from_the_tail(pool: &Pool, chain: &Chain, want: &Want) -> Option<(u64, u32)> {
    let room = |slot: u32| {
        let chunk = &chain.chunks[slot];
        let [_, unmapped] = chain.neighbours(slot, State::Unmapped);
        chunk.bytes + unmapped.map_or(0, |next| chain.chunks[next].bytes)
    };
    let mut fits = pool.fits(want.owner, want.bytes);
    let mut best = fits.next()?;
    for next in fits {
        if room(next.1) >= room(best.1) {
            break;
        }
        best = next;
    }
    Some(best)
}
