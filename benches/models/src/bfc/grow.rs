//! Growing, giving back, and the order of attempts when no bin has a fit.
//!
//! Promises upward: a chunk found is out of its bin; when all fails nothing but cached regions has changed.
//! Asks from below: the bins and the chain.

use terrace_core::{Fence, Owner, Source, SourceError};

use super::Bfc;
use super::options::MIN_CHUNK;
use crate::chunks::{NONE, State};

impl<S: Source, F: Fence> Bfc<S, F> {
    /// Most bytes to take from the source.
    pub(super) fn limit(&self) -> u64 {
        let capacity = self.source.usage().capacity;
        // Without any limit: 2^62, the largest request.
        [self.options.limit, capacity].into_iter().filter(|&limit| limit != 0).min().unwrap_or(1 << 62)
    }

    /// Every way to a chunk but the bins, and whether it did without the source.
    pub(super) fn obtain(&mut self, bytes: u64, owner: Owner) -> Result<(u32, bool), SourceError> {
        let error = match self.extend(bytes) {
            Ok(slot) => return Ok((slot, false)),
            Err(error) => error,
        };
        if self.merge_own(owner, bytes)
            && let Some(slot) = self.find(bytes, owner)
        {
            return Ok((slot, false));
        }
        let free = self.free_region_bytes();
        let available = self.limit().saturating_sub(self.source.usage().reserved).saturating_add(free);
        if !self.options.garbage_collection || free == 0 || bytes > available {
            return Err(error);
        }
        self.release_free_regions();
        Ok((self.extend(bytes)?, false))
    }

    /// Takes a region of the planned size, or the largest of nine tenths, again and again, that the source gives. The
    /// chunk returned is in no bin.
    fn extend(&mut self, bytes: u64) -> Result<u32, SourceError> {
        let available = self.limit().saturating_sub(self.source.usage().reserved) / MIN_CHUNK * MIN_CHUNK;
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        let increased = bytes > self.next_region;
        while bytes > self.next_region {
            self.next_region = self.next_region.saturating_mul(2);
        }
        let mut size = self.next_region.min(available);
        let region = loop {
            match self.source.take(size) {
                Ok(region) => break region,
                Err(error) => {
                    // Rounding up keeps sizes below 2560 bytes from shrinking: then there is nothing left to try.
                    let less = (size / 10 * 9 + size % 10 * 9 / 10).next_multiple_of(MIN_CHUNK);
                    if less < bytes || less >= size {
                        return Err(error);
                    }
                    size = less;
                }
            }
        };
        if !increased {
            self.next_region = self.next_region.saturating_mul(2);
        }
        Ok(self.chain.add_segment(region, Owner(0), 0))
    }

    /// First chunks of the regions in which every chunk is free for all.
    fn free_regions(&self) -> Vec<u32> {
        // Free neighbours are always merged, so a wholly free region is one chunk.
        let whole = |slot: &u32| self.chain.chunks[*slot].next == NONE && self.chain.chunks[*slot].state == State::Free;
        self.chain.segments().map(|segment| segment.first).filter(whole).collect()
    }

    fn free_region_bytes(&self) -> u64 {
        self.free_regions().into_iter().map(|slot| self.chain.chunks[slot].bytes).sum()
    }

    /// Gives wholly free regions back; returns their bytes.
    pub(super) fn release_free_regions(&mut self) -> u64 {
        let mut released = 0;
        for slot in self.free_regions() {
            let Some(segment) = self.chain.segment(slot) else { continue };
            if self.source.give_back(segment.region).is_ok() {
                self.counters.returns += 1;
                released += segment.region.bytes;
                self.bins.remove(&self.chain, slot);
                self.chain.remove_segment(slot);
            }
        }
        released
    }
}
