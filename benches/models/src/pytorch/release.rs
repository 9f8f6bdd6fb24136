//! Giving memory back: the last resort, oversize blocks, ageing blocks.
//!
//! Promises upward: only chunks that fill a segment alone go back (or whole pages, when expandable); when the source
//! refuses, the chunk stays where it was.
//! Asks from below: the pools.

use terrace_core::{Fence, Source};

use super::options::LARGE_POOL;
use super::{PyTorch, Want};
use crate::chunks::State;

impl<S: Source, F: Fence> PyTorch<S, F> {
    /// `emptyCache`, and the last resort: waits for events, then releases every cached segment and every free page.
    pub(super) fn release_cached(&mut self) {
        self.process_events(true);
        for pool in 0..self.pools.len() {
            // Releasing one chunk never changes another free one, so the list stays valid.
            let slots: Vec<u32> = self.pools[pool].iter().map(|(_, slot)| slot).collect();
            for slot in slots {
                if self.options.expandable {
                    self.unmap_pages(slot);
                } else {
                    self.release_segment(slot);
                }
            }
        }
    }

    /// Gives the segment of a free chunk back when it fills it alone; returns the bytes given back.
    fn release_segment(&mut self, slot: u32) -> u64 {
        let Some(segment) = self.chain.segment(slot) else { return 0 };
        if !self.chain.is_whole(slot) || self.source.give_back(segment.region).is_err() {
            return 0;
        }
        self.counters.returns += 1;
        self.pools[segment.pool].remove(&self.chain, slot);
        self.chain.remove_segment(slot);
        segment.region.bytes
    }

    /// With a finite `max_split_size`: releases oversize blocks of the owner, enough for the request when possible.
    /// Whether the source is worth asking again.
    pub(super) fn release_available(&mut self, want: &Want) -> bool {
        let key = want.bytes.max(self.options.max_split_size);
        let pool = &self.pools[want.pool];
        let one = (!self.options.expandable).then(|| pool.fits(want.owner, key).next()).flatten();
        if let Some((_, slot)) = one {
            return self.release_segment(slot) > 0;
        }
        // No single block is large enough: the largest ones, until together they are.
        let oversize = pool.below(want.owner, key).take_while(|&(bytes, _)| self.oversize(bytes));
        let slots: Vec<u32> = oversize.map(|(_, slot)| slot).collect();
        let mut released = 0;
        for slot in slots {
            if released >= key {
                break;
            }
            if !self.options.expandable {
                released += self.release_segment(slot);
            }
        }
        released >= key
    }

    /// Above the threshold, releases whole large segments that no search has used for longer than the average.
    pub(super) fn collect_garbage(&mut self) {
        let Some(allowed) = self.allowed().filter(|_| self.options.gc_threshold > 0.0) else { return };
        let threshold = (allowed as f64 * self.options.gc_threshold) as u64;
        let target = self.source.usage().reserved.saturating_sub(threshold);
        if self.options.expandable {
            return;
        }
        let mut reclaimed = 0;
        while reclaimed < target {
            let round = self.release_old();
            if round == 0 {
                break;
            }
            reclaimed += round;
        }
    }

    /// Releases the cached large segments of at least average age; returns the bytes given back.
    fn release_old(&mut self) -> u64 {
        let pool = &self.pools[LARGE_POOL];
        let whole = pool.iter().filter(|&(_, slot)| self.chain.is_whole(slot));
        let aged: Vec<(u64, u32)> = whole.map(|(_, slot)| (pool.age(&self.chain, slot), slot)).collect();
        let total: u64 = aged.iter().map(|&(age, _)| age).sum();
        let count = aged.len() as u64;
        let mut released = 0;
        for (age, slot) in aged {
            // age >= total / count, without rounding.
            if age * count >= total {
                released += self.release_segment(slot);
            }
        }
        released
    }

    /// Unmaps the whole pages inside a free chunk; what is left of it at either end stays free.
    pub(super) fn unmap_pages(&mut self, slot: u32) {
        let Some(segment) = self.chain.segment(slot) else { return };
        let page = super::expand::page_of(segment.pool);
        let chunk = self.chain.chunks[slot];
        let offset = chunk.address - segment.region.base;
        let begin = offset.next_multiple_of(page);
        let end = (offset + chunk.bytes) / page * page;
        if begin >= end || self.source.unmap(segment.region, begin, end - begin).is_err() {
            return;
        }
        self.counters.returns += 1;
        self.driver_calls += 2 * ((end - begin) / page);
        self.pools[segment.pool].remove(&self.chain, slot);
        let mut middle = slot;
        if begin > offset {
            middle = self.chain.split(slot, begin - offset);
            self.pools[segment.pool].insert(&mut self.chain, slot);
        }
        if end - begin < self.chain.chunks[middle].bytes {
            let after = self.chain.split(middle, end - begin);
            self.pools[segment.pool].insert(&mut self.chain, after);
        }
        self.chain.chunks[middle].state = State::Unmapped;
        let unmapped = self.merge_and_insert(middle);
        self.drop_reservation(unmapped);
    }

    /// Gives a reservation back when nothing is mapped in it any more. Costs no call.
    fn drop_reservation(&mut self, slot: u32) {
        let Some(segment) = self.chain.segment(slot).filter(|_| self.chain.is_whole(slot)) else { return };
        if self.source.give_back(segment.region).is_ok() {
            self.pools[segment.pool].remove(&self.chain, slot);
            self.chain.remove_segment(slot);
        }
    }
}
