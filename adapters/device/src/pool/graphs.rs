//! Private pools: memory that a captured graph uses at each launch.
//!
//! Promises upward: memory allocated while a graph is captured comes from the graph's pool and is freed into it; no
//! other request gets that memory while the pool lives; no event is recorded on a captured stream or queried.
//! Asks from below: that the user ends the capture before dropping the pool, and keeps the pool as long as the graph.

use super::{DeviceArena, DevicePool};
use crate::backend::{Backend, MemoryKind};
use crate::error::DeviceError;
use crate::source::{DeviceSource, Regions};
use crate::store::ArenaCapacity;
use crate::stream::{NO_ROUTE, StreamCore};
use terrace_core::{Allocator, Arena, FenceState, Owner};

/// The pool of one or more graphs.
pub(super) struct Graph<B: Backend> {
    pub(super) arena: DeviceArena<B>,
    /// Set once the user's last handle is dropped: tickets that the streams must reach before the memory is released.
    /// They also cover launches of the graph, which no free's ticket covers.
    pub(super) closing: Option<Vec<(Owner, u64)>>,
}

impl<B: Backend> DevicePool<B> {
    pub(super) fn open_graph(&self) -> Result<u32, DeviceError> {
        self.usable()?;
        let source = DeviceSource::Regions(Regions::new(self.context.clone(), MemoryKind::Device, 0).kept());
        let slots = self.options.blocks.min(1 << 16);
        let room = ArenaCapacity { slots, bins: 4, entries: 0, segments: slots.min(1 << 14) };
        let parts = self.options.parts(room);
        let settings = self.options.arena(false);
        let mut inner = self.inner();
        let arena = Arena::new(source, inner.fences.clone(), parts, settings);
        let arena =
            arena.map_err(|_| DeviceError::BadOption("a graph's pool needs a granule of at most 2 MiB".into()))?;
        let id = inner.next_graph;
        inner.next_graph += 1;
        inner.graphs.insert(id, Graph { arena, closing: None });
        Ok(id)
    }

    pub(super) fn close_graph(&self, id: u32) {
        let mut inner = self.inner();
        let everything = inner.fences.everything();
        if let Some(graph) = inner.graphs.get_mut(&id) {
            graph.closing = Some(everything);
        }
        inner.reap_graphs(false);
        self.unlock(inner);
    }

    pub(super) fn begin_capture(&self, stream: &StreamCore, graph: u32) -> Result<(), DeviceError> {
        self.usable()?;
        let inner = self.inner();
        if !stream.set_route(NO_ROUTE, graph) {
            return Err(DeviceError::Capture("the stream is captured already"));
        }
        inner.fences.capture(stream.owner, true);
        Ok(())
    }

    pub(super) fn end_capture(&self, stream: &StreamCore, graph: u32) {
        let inner = self.inner();
        if stream.set_route(graph, NO_ROUTE) {
            inner.fences.capture(stream.owner, false);
        }
    }
}

impl<B: Backend> super::PoolState<B> {
    /// Releases the memory of closed pools once the streams have done all work put on them before the close; with
    /// `wait`, waits for them. Returns the bytes released.
    pub(super) fn reap_graphs(&mut self, wait: bool) -> u64 {
        let Self { graphs, fences, .. } = self;
        let mut given = 0;
        graphs.retain(|_, graph| {
            let Some(closing) = &mut graph.closing else { return true };
            closing.retain(|&(owner, ticket)| fences.reached(owner, ticket, wait) != FenceState::Ready);
            // Without `wait`, a pool is kept until the fences of its freed blocks are ready too.
            graph.arena.poll_fences();
            if !closing.is_empty() || (!wait && graph.arena.stats().pooled > 0) {
                return true;
            }
            graph.arena.source_mut().let_go();
            given += graph.arena.trim();
            // Memory under live blocks is still reserved: the pool is kept until they are freed.
            graph.arena.stats().reserved > 0
        });
        given
    }
}
