//! Checks the invariants of a pool: arenas, fences, the streams' caches, and held blocks. O(n log n); for tests.

use super::{DevicePool, HOST, PoolState};
use crate::backend::Backend;
use crate::stream::{BlockOrigin, StreamCore};
use crate::stream_cache::check_apart;
use std::sync::Arc;
use terrace_core::error::ensure;
use terrace_core::{Allocator, Block, Owner, Violation};

impl<B: Backend> DevicePool<B> {
    /// Checks every invariant.
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        // Declared before the lock, so dropped after it: dropping the last reference to a stream takes the lock.
        let streams: Vec<Arc<StreamCore>>;
        let inner = self.inner();
        streams = inner.streams.iter().filter_map(|(stream, _)| stream.upgrade()).collect();
        inner.arena.check()?;
        inner.sides.iter().flatten().try_for_each(Allocator::check)?;
        inner.graphs.values().try_for_each(|graph| graph.arena.check())?;
        inner.fences.check()?;
        inner.check_waiting()?;
        let mut cached = Vec::new();
        streams.iter().try_for_each(|stream| stream.check(&mut cached))?;
        inner.check_unused(cached)
    }
}

impl<B: Backend> PoolState<B> {
    /// Checks that held blocks and closed graphs wait only for tickets that will be reached.
    fn check_waiting(&self) -> Result<(), Violation> {
        for held in &self.held {
            let at = held.block.address;
            ensure(!held.others.is_empty(), "a held block waits for a stream", at)?;
            let home = held.owner == HOST || held.owner.0 < self.next_owner;
            ensure(home, "a held block belongs to a stream that was opened", at)?;
            self.check_tickets(&held.others)?;
        }
        self.graphs
            .values()
            .filter_map(|graph| graph.closing.as_ref())
            .try_for_each(|closing| self.check_tickets(closing))
    }

    fn check_tickets(&self, tickets: &[(Owner, u64)]) -> Result<(), Violation> {
        for &(owner, ticket) in tickets {
            let at = u64::from(owner.0);
            ensure(owner.0 < self.next_owner, "nothing waits for a stream that was never opened", at)?;
            ensure(self.fences.is_issued(owner, ticket), "nothing waits for a ticket that was never issued", at)?;
        }
        Ok(())
    }

    /// Checks that cached and held blocks are live in the arena, and that no block is cached or held twice.
    fn check_unused(&self, cached: Vec<Block>) -> Result<(), Violation> {
        let mut blocks = cached;
        let held = self.held.iter().filter(|held| held.place == BlockOrigin::Pool);
        blocks.extend(held.map(|held| held.block));
        check_apart(&mut blocks)?;
        let (stats, count) = (self.arena.stats(), blocks.len() as u64);
        let bytes = blocks.iter().map(|block| block.bytes).sum::<u64>();
        let covered = count <= stats.live_blocks && bytes <= stats.in_use;
        ensure(covered, "cached and held blocks are live in the arena", count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PendingBlock;
    use super::{BlockOrigin, DevicePool, HOST, Owner};
    use crate::host::HostBackend;
    use crate::options::DeviceOptions;
    use crate::stream::{Service, StreamCore, StreamHandle};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use terrace_core::{Block, Request};

    const KIB: u64 = 1 << 10;

    /// A pool over the host's memory, and two streams.
    struct World {
        streams: [Arc<StreamHandle>; 2],
        pool: Arc<DevicePool<HostBackend>>,
    }

    impl World {
        fn new() -> Self {
            let options = DeviceOptions { segment: 64 * KIB, blocks: 64, ..DeviceOptions::default() };
            let pool = DevicePool::open(HostBackend::with_total(1 << 30), options).expect("a pool");
            let streams = [(); 2].map(|()| pool.open_stream().expect("a stream"));
            let world = Self { streams, pool };
            assert_eq!(world.said(), "nothing");
            world
        }

        fn core(&self, stream: usize) -> &Arc<StreamCore> {
            &self.streams[stream].core
        }

        /// Allocates a block for the first stream.
        fn block(&self, bytes: u64) -> Block {
            self.pool.serve(self.core(0), Request::new(bytes), false).expect("memory").0
        }

        fn cache(&self, stream: usize, block: Block) {
            assert!(Arc::clone(self.core(stream)).keep(block).is_ok(), "the cache has room");
        }

        fn hold(&self, owner: Owner, others: Vec<(Owner, u64)>) {
            let (block, place) = (self.block(KIB), BlockOrigin::Pool);
            self.pool.inner().held.push(PendingBlock { block, place, owner, others, release: None });
        }

        fn said(&self) -> &'static str {
            self.pool.check_all().map_or_else(|violation| violation.clause, |()| "nothing")
        }
    }

    #[test]
    fn cached_and_held_blocks_that_are_live_once_are_sound() {
        let world = World::new();
        let [small, large] = [KIB, 1 << 20].map(|bytes| world.block(bytes));
        world.cache(0, small);
        world.cache(0, large);
        let ticket = world.pool.inner().fences.ticket(world.core(1).owner);
        world.hold(world.core(0).owner, vec![(world.core(1).owner, ticket)]);
        world.hold(HOST, vec![(world.core(1).owner, ticket)]);
        assert_eq!(world.said(), "nothing");
    }

    #[test]
    fn a_block_that_waits_for_nothing_that_comes_is_reported() {
        let world = World::new();
        let [one, other] = [0, 1].map(|stream| world.core(stream).owner);
        let ticket = world.pool.inner().fences.ticket(other);
        let cases = [
            (one, vec![], "a held block waits for a stream"),
            (Owner(9), vec![(other, ticket)], "a held block belongs to a stream that was opened"),
            (one, vec![(Owner(9), 1)], "nothing waits for a stream that was never opened"),
            (one, vec![(other, ticket), (other, ticket + 1)], "nothing waits for a ticket that was never issued"),
        ];
        for (owner, others, clause) in cases {
            world.hold(owner, others);
            assert_eq!(world.said(), clause);
            world.pool.inner().held.clear();
        }
        let graph = world.pool.open_graph().expect("a graph's pool");
        world.pool.inner().graphs.get_mut(&graph).expect("open").closing = Some(vec![(other, ticket + 1)]);
        assert_eq!(world.said(), "nothing waits for a ticket that was never issued");
    }

    #[test]
    fn a_block_in_two_places_is_reported() {
        let world = World::new();
        let block = world.block(KIB);
        world.cache(0, block);
        world.cache(1, block);
        assert_eq!(world.said(), "cached and held blocks do not overlap");
    }

    #[test]
    fn a_cached_block_that_is_not_live_is_reported() {
        let world = World::new();
        let block = world.block(KIB);
        world.pool.inner().free(block, BlockOrigin::Pool, world.core(0).owner);
        world.cache(0, block);
        assert_eq!(world.said(), "cached and held blocks are live in the arena");
    }

    #[test]
    fn a_larger_block_that_the_pool_is_not_told_of_is_reported() {
        let world = World::new();
        world.cache(0, world.block(1 << 20));
        world.core(0).has_recent().store(false, Ordering::Relaxed);
        assert_eq!(world.said(), "the pool is told of a stream's larger blocks");
    }
}
