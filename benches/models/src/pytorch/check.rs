//! Every invariant of the model, walked.
//!
//! Promises upward: the first clause that does not hold, and where.
//! Asks from below: nothing.

use terrace_core::{Source, Violation};

use super::PyTorch;
use super::expand::page_of;
use crate::chunks::State;
use terrace_core::error::ensure;

impl<S: Source, F> PyTorch<S, F> {
    /// The clauses beside the fields of [`PyTorch`], its pools and its records.
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        self.chain.check()?;
        self.chain.chunks.check(&self.counters)?;
        self.check_lists()?;
        self.check_waiting()?;
        self.check_grid()
    }

    /// Free and unmapped chunks are in their sets, alone, and merged.
    fn check_lists(&self) -> Result<(), Violation> {
        let (mut listed, mut mapped) = (0, 0);
        for (slot, chunk) in self.chain.chunks.iter() {
            mapped += if chunk.state == State::Unmapped { 0 } else { chunk.bytes };
            if !matches!(chunk.state, State::Free | State::Unmapped) {
                continue;
            }
            listed += 1;
            let pool = &self.pools[self.chain.segment(slot).map_or(0, |segment| segment.pool)];
            ensure(pool.contains(&self.chain, slot), "a free or unmapped chunk is in its set", slot)?;
            let merged = self.chain.neighbours(slot, chunk.state) == [None, None];
            ensure(merged, "no two neighbours in the same free state stay apart", slot)?;
        }
        let entries: usize = self.pools.iter().map(|pool| pool.sizes().0 + pool.sizes().1).sum();
        ensure(entries == listed, "the sets hold nothing but free and unmapped chunks", entries as u64)?;
        let reserved = self.source.usage().reserved;
        ensure(mapped == reserved, "mapped chunks add up to what the source gave", mapped)
    }

    /// The queues name exactly the held chunks.
    fn check_waiting(&self) -> Result<(), Violation> {
        let mut queued = 0;
        for queue in self.waiting.values() {
            ensure(!queue.is_empty(), "an owner without held chunks has no queue", 0u64)?;
            for &(_, slot) in queue {
                queued += 1;
                ensure(self.chain.chunks[slot].state == State::Held, "queues name held chunks", slot)?;
            }
        }
        let held = self.chain.chunks.iter().filter(|(_, chunk)| chunk.state == State::Held).count();
        ensure(held == queued, "every held chunk is in one queue", held as u64)
    }

    /// Unmapped chunks lie on the page grid, and only expandable pools have any.
    fn check_grid(&self) -> Result<(), Violation> {
        for (slot, chunk) in self.chain.chunks.iter().filter(|(_, chunk)| chunk.state == State::Unmapped) {
            ensure(self.options.expandable, "only expandable segments have unmapped chunks", slot)?;
            let Some(segment) = self.chain.segment(slot) else { continue };
            let page = page_of(segment.pool);
            let begin = chunk.address - segment.region.base;
            let aligned = begin.is_multiple_of(page) && chunk.bytes.is_multiple_of(page);
            ensure(aligned, "unmapped chunks begin and end on the page grid", slot)?;
        }
        Ok(())
    }
}
