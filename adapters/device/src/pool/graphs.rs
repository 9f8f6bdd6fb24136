//! Private pools: memory that a captured graph uses again whenever it is launched.
//!
//! Promises upward: what is allocated while a graph is captured comes from its pool and goes back there; nothing of it is
//! given out elsewhere while the pool lives; no event is asked of a stream that is captured.
//! Asks from below: the user ends the capture before the pool, and keeps the pool as long as the graph.

use super::{DeviceArena, Pool};
use crate::backend::{Backend, Kind};
use crate::error::DeviceError;
use crate::source::{DeviceSource, Regions};
use crate::store::{Room, heap_parts};
use crate::stream::{NO_ROUTE, StreamCore};
use terrace_core::arena::Settings;
use terrace_core::{Allocator, Arena, BestFit};

/// The pool of one or more graphs.
pub(super) struct Graph<B: Backend> {
    pub(super) arena: DeviceArena<B>,
    /// The user's handle is gone: what is free goes back to the driver, and when nothing is live the pool goes.
    pub(super) closed: bool,
}

impl<B: Backend> Pool<B> {
    pub(super) fn open_graph(&self) -> Result<u32, DeviceError> {
        self.usable()?;
        let source = DeviceSource::Regions(Regions::new(self.ground.clone(), Kind::Device, 0));
        let parts = heap_parts(
            Room { slots: self.options.blocks.min(1 << 16), bins: 4, entries: 0, segments: 1 << 12 },
            BestFit::new,
        );
        // Small segments: a graph's memory is not shared with anybody.
        let settings = Settings { segment_bytes: 2 << 20, ..self.options.arena(false) };
        let mut inner = self.inner();
        let arena = Arena::new(source, inner.fences.clone(), parts, settings);
        let arena = arena.map_err(|_| DeviceError::BadOption("a graph's pool needs a granule of at most 2 MiB"))?;
        let id = inner.next_graph;
        inner.next_graph += 1;
        inner.graphs.insert(id, Graph { arena, closed: false });
        Ok(id)
    }

    pub(super) fn close_graph(&self, id: u32) {
        let mut inner = self.inner();
        if let Some(graph) = inner.graphs.get_mut(&id) {
            graph.closed = true;
        }
        inner.reap_graphs();
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

impl<B: Backend> super::Inner<B> {
    /// Gives the memory of pools back that nobody uses any more.
    pub(super) fn reap_graphs(&mut self) {
        self.graphs.retain(|_, graph| {
            if graph.closed {
                graph.arena.trim();
            }
            !(graph.closed && graph.arena.stats().live_blocks == 0 && graph.arena.stats().reserved == 0)
        });
    }
}
