//! How a request is served, and what is tried before it fails.
//!
//! ```text
//!   arena: a gap; what the stream itself freed; what fences have opened; a page or a segment more; all fences waited for
//!     none ─► streams' caches emptied, arena again
//!     none ─► blocks held for other streams waited for, arena again
//!     none ─► the user's hook, without the lock: true: from the start
//!     none ─► pinned host memory, where the fallback is on
//!     none ─► an error that says what was asked and what there was
//! ```

use super::{Inner, Place, Pool};
use crate::backend::{Backend, Kind};
use crate::error::{DeviceError, OutOfMemory};
use crate::fault::Fault;
use crate::source::{DeviceSource, Regions};
use crate::store::{Room, heap_parts};
use crate::stream::{NO_ROUTE, StreamCore};
use std::sync::{Arc, PoisonError};
use terrace_core::pressure::CachePolicy;
use terrace_core::{AllocError, Allocator, Arena, BestFit, Block, Cause, Request};

impl<B: Backend> Pool<B> {
    /// A block for a stream, when its cache had none.
    pub(super) fn serve(&self, home: &Arc<StreamCore>, request: Request) -> Result<(Block, Place), DeviceError> {
        self.usable()?;
        self.judge(request)?;
        let request = request.owner(home.owner);
        loop {
            let mut inner = self.inner();
            let route = home.route();
            let place = if route == NO_ROUTE { Place::Pool } else { Place::Graph(route) };
            let served = inner.attempt(place, request).map(|block| (block, place));
            let what = match served {
                Ok(served) => {
                    self.unlock(inner);
                    return Ok(served);
                }
                Err(error) => inner.describe(error),
            };
            self.unlock(inner);
            let memory = matches!(what.cause, Cause::OutOfMemory | Cause::SourceFailed | Cause::OutOfSlots);
            self.usable()?;
            if memory && self.ask(&what) {
                continue;
            }
            let mut inner = self.inner();
            return match inner.fall_back(self, request) {
                Some(block) if memory => Ok((block, Place::Fallback)),
                _ => {
                    inner.failed += 1;
                    Err(DeviceError::OutOfMemory(Box::new(what)))
                }
            };
        }
    }

    /// Refuses what can never be met.
    fn judge(&self, request: Request) -> Result<(), DeviceError> {
        let Request { bytes, align, .. } = request;
        let bad = |rule| Err(DeviceError::BadRequest { bytes, align, rule });
        if bytes == 0 {
            return bad("a block has at least one byte");
        }
        if !align.is_power_of_two() {
            return bad("an alignment is a power of two");
        }
        let total = self.ground.backend.description().total;
        if bytes > total {
            return bad("that is more than the device has in all");
        }
        // A segment starts where the driver likes, at least at a multiple of its own grain.
        if align > 2 << 20 {
            return bad("the largest alignment is 2 MiB");
        }
        Ok(())
    }

    /// Calls the user's hook, without a lock.
    fn ask(&self, what: &OutOfMemory) -> bool {
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hook.is_some_and(|hook| hook(what))
    }
}

impl<B: Backend> Inner<B> {
    /// The arena of a place, and all that can be given back for it.
    fn attempt(&mut self, place: Place, request: Request) -> Result<Block, AllocError> {
        let first = self.from(place, request);
        let Err(mut error) = first else { return first };
        for step in [Self::drain, Self::wait_for_held] {
            if !matches!(error.cause, Cause::OutOfMemory | Cause::OutOfSlots | Cause::SourceFailed) {
                return Err(error);
            }
            if step(self) {
                match self.from(place, request) {
                    Ok(block) => return Ok(block),
                    Err(next) => error = next,
                }
            }
        }
        // A graph's pool takes segments of its own: what the arena does not need may serve.
        if matches!(place, Place::Graph(_)) && self.arena.trim() > 0 { self.from(place, request) } else { Err(error) }
    }

    fn from(&mut self, place: Place, request: Request) -> Result<Block, AllocError> {
        match place {
            Place::Graph(id) => match self.graphs.get_mut(&id) {
                Some(graph) => graph.arena.allocate(request),
                None => Err(AllocError::new(Cause::BadRequest, request.bytes)),
            },
            _ => self.arena.allocate(request),
        }
    }

    /// A failure as users see it.
    fn describe(&mut self, error: AllocError) -> OutOfMemory {
        let stats = self.arena.stats();
        let fault: Option<Fault> = self.arena.source_mut().take_fault();
        OutOfMemory {
            asked: error.asked,
            largest_free: error.largest_free,
            reserved: stats.reserved,
            in_use: stats.in_use,
            capacity: stats.capacity,
            cause: error.cause,
            fault,
        }
    }

    /// Host memory that the device can reach, where that is allowed.
    fn fall_back(&mut self, pool: &Pool<B>, request: Request) -> Option<Block> {
        if !self.fallback_on {
            return None;
        }
        if self.fallback.is_none() {
            let source = DeviceSource::Regions(Regions::new(pool.ground.clone(), Kind::Pinned, 0));
            let room = Room { slots: pool.options.blocks.min(1 << 16), bins: 4, entries: 0, segments: 1 << 12 };
            let parts = heap_parts(room, BestFit::new);
            let arena = Arena::new(source, self.fences.clone(), parts, pool.options.arena(false));
            self.fallback = arena.ok();
        }
        self.fallback.as_mut()?.allocate(request).ok()
    }

    /// Lets the caps of all caches follow the pressure on the device.
    pub(super) fn adapt(&mut self, policy: &CachePolicy) {
        let stats = self.arena.stats();
        for stream in self.streams.iter().filter_map(std::sync::Weak::upgrade) {
            stream.adapt(policy, stats.in_use, stats.capacity);
        }
    }
}
