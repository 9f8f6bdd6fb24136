//! Frees, and batches: many requests, or many frees, under one lock.
//!
//! ```text
//!   serve_batch   |lock: all that the arena has, largest first; plans of growth|  map, without the lock  |lock: finish|
//!                 what found no memory ─► one by one, as requests alone ─► an error: all of the batch goes back
//! ```
//!
//! Promises upward: a batch takes the lock once, and once more if pages were mapped; one that fails leaves nothing.
//! Asks from below: the arena, whose growths may be under way at the same time.

use super::{DevicePool, FREES_A_POLL, PendingBlock, PoolState};
use crate::backend::Backend;
use crate::error::DeviceError;
use crate::stream::{BlockExtra, BlockOrigin, FreedBlock, HostMemory, NO_ROUTE, StreamCore};
use std::cmp::Reverse;
use std::sync::Arc;
use terrace_core::{Block, Request};

/// What is to be done once blocks were freed, under the same lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AfterFrees {
    /// Query the fences, so that the host gets its memory back soon.
    poll: bool,
    /// Look for graphs' pools that can be released.
    graphs: bool,
}

impl AfterFrees {
    fn and(self, other: Self) -> Self {
        Self { poll: self.poll | other.poll, graphs: self.graphs | other.graphs }
    }
}

/// The blocks of a batch that is not complete.
struct UnfinishedBatch<'a, B: Backend> {
    pool: &'a DevicePool<B>,
    home: &'a Arc<StreamCore>,
    blocks: Vec<Option<(Block, BlockOrigin)>>,
}

impl<B: Backend> Drop for UnfinishedBatch<'_, B> {
    fn drop(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        let mut inner = self.pool.inner();
        let blocks = std::mem::take(&mut self.blocks).into_iter().flatten();
        blocks.for_each(|(block, place)| inner.free(block, place, self.home.owner));
        self.pool.unlock(inner);
    }
}

impl<B: Backend> DevicePool<B> {
    /// Allocates a block for each request, in the order of the requests, or none.
    pub(super) fn serve_batch(
        &self,
        home: &Arc<StreamCore>,
        requests: &[Request],
    ) -> Result<Vec<(Block, BlockOrigin)>, DeviceError> {
        self.usable()?;
        requests.iter().try_for_each(|request| self.judge(*request))?;
        // As `Allocator::allocate_batch`: blocks of one size are adjacent where possible, and best fit packs the largest first.
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&at| Reverse(requests[at].bytes));
        // Frees what it has when it is dropped, by an error or a panic of the user's hook.
        let mut batch = UnfinishedBatch { pool: self, home, blocks: vec![None; requests.len()] };
        self.serve_together(home, requests, &order, &mut batch.blocks);
        for at in order {
            if batch.blocks[at].is_none() {
                batch.blocks[at] = Some(self.serve(home, requests[at], true)?);
            }
        }
        Ok(std::mem::take(&mut batch.blocks).into_iter().flatten().collect())
    }

    /// Allocates for requests in an order, up to the first that finds no memory. Waits for no stream.
    fn serve_together(
        &self,
        home: &StreamCore,
        requests: &[Request],
        order: &[usize],
        blocks: &mut [Option<(Block, BlockOrigin)>],
    ) {
        let mut inner = self.inner();
        self.keep_in_shape(&mut inner, 0);
        inner.take_recent();
        inner.sweep();
        let route = home.route();
        let place = if route == NO_ROUTE { BlockOrigin::Pool } else { BlockOrigin::Graph(route) };
        let (mut growing, mut growths) = (Vec::new(), Vec::new());
        for &at in order {
            let request = requests[at].owner(home.owner);
            let served = if place == BlockOrigin::Pool && inner.sharing == 0 {
                inner.arena.allocate_later(request)
            } else {
                inner.from(place, request).map(Ok)
            };
            match served {
                Ok(Ok(block)) => {
                    inner.note_allocated(&block, place);
                    blocks[at] = Some((block, place));
                }
                // The next requests may have room in it.
                Ok(Err(growth)) if growth.segment().is_some() => {
                    let grown;
                    (inner, grown) = self.end_growths(inner, vec![growth]);
                    let Some(block) = grown.into_iter().flatten().next() else { break };
                    inner.note_allocated(&block, place);
                    blocks[at] = Some((block, place));
                }
                Ok(Err(growth)) => {
                    growing.push(at);
                    growths.push(growth);
                }
                Err(_) => break,
            }
        }
        if !growths.is_empty() {
            let grown;
            (inner, grown) = self.end_growths(inner, growths);
            for (at, block) in growing.into_iter().zip(grown) {
                block.iter().for_each(|block| inner.note_allocated(block, place));
                blocks[at] = block.map(|block| (block, place));
            }
        }
        self.unlock(inner);
    }

    /// Frees many blocks under one lock.
    pub(super) fn give_back_all(&self, freed: Vec<FreedBlock>) {
        let mut inner = self.inner();
        let mut due = AfterFrees::default();
        self.keep_in_shape(&mut inner, freed.iter().map(|freed| self.refused_by_cache(&freed.block)).sum());
        for FreedBlock { home, block, extra } in freed {
            due = due.and(inner.take_back(&home, block, extra));
            inner.parting.push(home);
        }
        inner.after_frees(due);
        self.unlock(inner);
    }
}

impl<B: Backend> PoolState<B> {
    /// Notes a block that was just allocated, for the streams' caches.
    fn note_allocated(&mut self, block: &Block, place: BlockOrigin) {
        if place == BlockOrigin::Pool {
            self.given.allocated(block);
        }
    }

    /// Frees a dropped block, or holds it until the streams that use it are done. Caller must call [`Self::after_frees`].
    pub(super) fn take_back(&mut self, home: &Arc<StreamCore>, block: Block, extra: Option<BlockExtra>) -> AfterFrees {
        let (place, uses, release) = extra.map_or((BlockOrigin::Pool, Vec::new(), None), |extra| {
            (extra.place, extra.uses.into_inner(), extra.release)
        });
        // Wrapped and pinned memory waits for its home stream as well: the host may access the memory next.
        let own = matches!(place, BlockOrigin::Foreign | BlockOrigin::Host(HostMemory::Pinned)).then_some(home);
        let others = uses.iter().chain(own).map(|stream| (stream.owner, self.fences.ticket(stream.owner)));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            self.free(block, place, home.owner);
        } else {
            self.held.push(PendingBlock { block, place, owner: home.owner, others, release });
            self.frees += 1;
        }
        let due = AfterFrees { poll: own.is_some(), graphs: matches!(place, BlockOrigin::Graph(_)) };
        // Dropped after unlocking: dropping the last reference to a stream may drop the pool too.
        self.parting.extend(uses);
        due
    }

    /// Does what is due after frees.
    pub(super) fn after_frees(&mut self, due: AfterFrees) {
        if due.poll || self.frees >= FREES_A_POLL {
            self.poll();
        }
        if due.graphs {
            self.reap_graphs(false);
        }
    }
}
