//! The policy of RAPIDS RMM's pool (`pool_memory_resource`, 2020 to 2026).
//!
//! One free list an owner (stream). An allocation takes the best fit of its own list; else the best fit of the first other list that
//! has one, and everything else of that list with it; else it merges the other lists into its own, one by one, until
//! something fits; else the pool grows: by its own size (doubling), or by half of what a maximum leaves, halved until
//! the source agrees. Blocks are multiples of 256 bytes and always split exactly.
//!
//! Taking from another owner makes the taker's stream wait on the device for the other's last free; the host never
//! waits. So a pending fence stops nothing here: the model counts such [waits](Rmm::waits) and goes on. A list whose
//! fence failed is left alone.
//!
//! Promises upward: [`Allocator`]. `pooled` is all that is on free lists. RMM gives nothing back before its end; `trim`
//! gives back the regions that are wholly free, as a pool that is destroyed would.
//! Asks from below: a source whose regions are aligned to 256. O(free pieces) an operation, as in RMM.

mod list;
mod options;

pub use options::{ALIGNMENT, RmmOptions};

use list::{FreeList, Piece, check_tiling};
use std::collections::BTreeMap;
use terrace_core::error::ensure;
use terrace_core::{
    AllocError, Allocator, Block, Cause, Fence, FenceState, FreeError, NoFence, Owner, Region, Request,
};
use terrace_core::{Source, SourceError, Stats, Violation};

use crate::chunks::{Chunk, Chunks};
use crate::counters::Counters;
use crate::request::{padded, refusal};

/// RMM's pool over a source and a fence. See the [module](self).
#[derive(Debug)]
pub struct Rmm<S, F = NoFence> {
    source: S,
    fence: F,
    options: RmmOptions,
    /// Free pieces of each owner that ever came by. With the live blocks they tile `regions`.
    lists: BTreeMap<Owner, FreeList>,
    /// Live blocks only.
    live: Chunks,
    /// Regions of the source, by the index that pieces and blocks carry.
    regions: Vec<Option<Region>>,
    counters: Counters,
    waits: u64,
}

impl<S: Source> Rmm<S> {
    /// A pool that starts empty and has no maximum.
    pub fn new(source: S) -> Self {
        Self::with(source, NoFence, RmmOptions::default())
    }
}

impl<S: Source, F: Fence> Rmm<S, F> {
    /// With options and a fence.
    pub fn with(source: S, fence: F, options: RmmOptions) -> Self {
        Self {
            source,
            fence,
            options,
            lists: BTreeMap::new(),
            live: Chunks::new(),
            regions: Vec::new(),
            counters: Counters::default(),
            waits: 0,
        }
    }

    /// The source, to look at.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to inject failures.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Waits that one stream was made to do for another (`cudaStreamWaitEvent`).
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Steals: without `merge_first` from the first list that has a fit, with it from all lists joined so far.
    fn take_from_others(&mut self, owner: Owner, bytes: u64, merge_first: bool) -> Option<Piece> {
        let others: Vec<Owner> = self.lists.keys().copied().filter(|&other| other != owner).collect();
        for other in others {
            let Some(list) = self.lists.get_mut(&other) else { continue };
            let lost = list.recorded && self.fence.poll(other, list.ticket) == FenceState::Failed;
            if lost || list.pieces().is_empty() {
                continue;
            }
            let found = if merge_first { None } else { list.take(bytes) };
            if !merge_first && found.is_none() {
                continue;
            }
            // The taker waits for the other's last free; from then on all of that list is the taker's.
            self.waits += 1;
            let rest = std::mem::take(list);
            self.lists.remove(&other);
            let own = self.lists.entry(owner).or_default();
            own.absorb(rest);
            own.ticket = self.fence.record(owner);
            own.recorded = true;
            if let Some(piece) = found.or_else(|| own.take(bytes)) {
                return Some(piece);
            }
        }
        None
    }

    /// Takes a region for at least `bytes`: as much as the policy wants, half of it after each refusal.
    fn expand(&mut self, bytes: u64) -> Result<Piece, SourceError> {
        let pool = self.source.usage().reserved;
        let mut size = self.options.growth(bytes, pool)?;
        let region = loop {
            match self.source.take(size) {
                Ok(region) => break region,
                Err(error) if size == bytes => return Err(error),
                Err(_) => size = (size / 2).max(bytes),
            }
        };
        let index = self.regions.iter().position(Option::is_none).unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() - 1
        });
        self.regions[index] = Some(region);
        Ok(Piece { address: region.base, bytes: region.bytes, region: index as u32 })
    }

    /// Finds a piece in RMM's order of attempts, and whether the source was not asked.
    fn obtain(&mut self, owner: Owner, bytes: u64) -> Result<(Piece, bool), SourceError> {
        let own = self.lists.entry(owner).or_default().take(bytes);
        let piece = own
            .or_else(|| self.take_from_others(owner, bytes, false))
            .or_else(|| self.take_from_others(owner, bytes, true));
        match piece {
            Some(piece) => Ok((piece, true)),
            None => Ok((self.expand(bytes)?, false)),
        }
    }

    fn allocate_padded(&mut self, request: Request, bytes: u64) -> Result<Block, AllocError> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let (piece, hit) = match self.obtain(request.owner, bytes) {
            Ok(found) => found,
            Err(error) => {
                return Err(refusal(error, request, bytes, self.source.usage(), self.largest_free()));
            }
        };
        if piece.bytes > bytes {
            let rest = Piece { address: piece.address + bytes, bytes: piece.bytes - bytes, ..piece };
            self.lists.entry(request.owner).or_default().insert(rest);
        }
        let slot = self.live.add(Chunk::new(piece.address, bytes, request.owner, piece.region));
        self.counters.handed_out(bytes, request.bytes, hit);
        Ok(self.live.hand_out(slot, request))
    }

    fn largest_free(&self) -> u64 {
        self.lists.values().flat_map(FreeList::pieces).map(|piece| piece.bytes).max().unwrap_or(0)
    }

    /// Joins every list whose fence is open into the first of them; returns whose that is.
    fn join_ready(&mut self) -> Option<Owner> {
        let owners: Vec<Owner> = self.lists.keys().copied().collect();
        let mut home = None;
        for owner in owners {
            let Some(list) = self.lists.get(&owner) else { continue };
            if list.recorded && self.fence.wait(owner, list.ticket) != FenceState::Ready {
                continue;
            }
            match home {
                None => home = Some(owner),
                Some(home) => {
                    let list = self.lists.remove(&owner).unwrap_or_default();
                    self.lists.entry(home).or_default().absorb(list);
                }
            }
        }
        home
    }
}

impl<S: Source, F: Fence> Allocator for Rmm<S, F> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let result = match padded(request, ALIGNMENT) {
            Ok(_) if self.live.full() => Err(AllocError::new(Cause::OutOfSlots, request.bytes)),
            Ok(bytes) => self.allocate_padded(request, bytes),
            Err(error) => Err(error),
        };
        self.counters.failed += u64::from(result.is_err());
        result
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let slot = self.live.live(block)?;
        let Chunk { address, bytes, requested, segment, .. } = self.live[slot];
        self.live.remove(slot);
        self.counters.taken_back(bytes, requested);
        let list = self.lists.entry(owner).or_default();
        list.ticket = self.fence.record(owner);
        list.recorded = true;
        list.insert(Piece { address, bytes, region: segment });
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        let before = self.source.usage().reserved;
        let Some(list) = self.join_ready().and_then(|home| self.lists.get_mut(&home)) else { return 0 };
        let regions = &self.regions;
        let whole = |piece: &Piece| regions[piece.region as usize].is_some_and(|region| region.bytes == piece.bytes);
        for piece in list.extract(whole) {
            let index = piece.region as usize;
            match self.regions[index] {
                Some(region) if self.source.give_back(region).is_ok() => {
                    self.counters.returns += 1;
                    self.regions[index] = None;
                }
                _ => list.insert(piece),
            }
        }
        before - self.source.usage().reserved
    }

    fn stats(&self) -> Stats {
        let usage = self.source.usage();
        let lists: u64 = self.lists.values().map(FreeList::metadata).sum();
        let regions = self.regions.len() * size_of::<Option<Region>>();
        Stats {
            pooled: usage.reserved - self.counters.in_use,
            largest_free: self.largest_free(),
            metadata: self.live.metadata() + lists + regions as u64,
            ..self.counters.stats(usage)
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.live.check(&self.counters)?;
        self.lists.values().try_for_each(FreeList::check)?;
        let free =
            self.lists.values().flat_map(FreeList::pieces).map(|piece| (piece.address, piece.bytes, piece.region));
        let live = self.live.iter().map(|(_, chunk)| (chunk.address, chunk.bytes, chunk.segment));
        check_tiling(free.chain(live).collect(), &self.regions)?;
        let held: u64 = self.regions.iter().flatten().map(|region| region.bytes).sum();
        ensure(held == self.source.usage().reserved, "regions add up to what the source gave", held)
    }
}
