//! New pages for the device's arena, mapped without the pool's lock: others allocate and free meanwhile.
//!
//! ```text
//!   thread A  |lock: plan, take from the capacity|  create .. map .. allow  |lock: finish|
//!   thread B         waits |hit|     |miss in a gap|   |free|                               no driver call is waited for
//! ```
//!
//! Promises upward: a block is given out after its pages are mapped; where the driver refuses, the arena tries all else that it
//! knows, under the lock; no request fails while pages are on their way that might serve it.
//! Asks from below: [`Arena::allocate_later`](terrace_core::Arena::allocate_later) and [`MapJob`], which needs no lock.

use super::{DevicePool, PoolState};
use crate::backend::Backend;
use crate::source::{BackendContext, MapDone, MapJob};
use std::sync::{MutexGuard, PoisonError};
use terrace_core::{AllocError, Allocator, Block, Request};

/// A growth under way; when dropped by a panic of the backend, others do not wait for it any more.
struct Underway<'a, B: Backend>(&'a DevicePool<B>);

impl<B: Backend> Drop for Underway<'_, B> {
    fn drop(&mut self) {
        self.0.inner().growing -= 1;
        self.0.grown.notify_all();
    }
}

impl<B: Backend> DevicePool<B> {
    /// Allocates from the device's arena. Releases the lock while pages are mapped.
    pub(super) fn allocate_unlocked<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        request: Request,
    ) -> (MutexGuard<'a, PoolState<B>>, Result<Block, AllocError>) {
        let growth = match inner.arena.allocate_later(request) {
            Ok(Err(growth)) => growth,
            Ok(Ok(block)) => return (inner, Ok(block)),
            Err(error) => return (inner, Err(error)),
        };
        let jobs: Vec<MapJob> = growth.ranges().filter_map(|(start, _)| inner.arena.source().job(start)).collect();
        inner.growing += 1;
        self.unlock(inner);
        let underway = Underway(self);
        let mapped = map_all(&jobs, &self.context, self.options.zero_fresh);
        let mut inner = self.inner();
        std::mem::forget(underway);
        inner.growing -= 1;
        self.grown.notify_all();
        let served = match mapped {
            Ok(done) => {
                inner.arena.source_mut().mapped_later(done);
                Ok(inner.arena.finish(growth))
            }
            Err(calls) => {
                inner.arena.source_mut().count_calls(calls);
                inner.arena.cancel(growth);
                inner.arena.allocate(request)
            }
        };
        (inner, served)
    }

    /// Waits until no growth is under way.
    pub(super) fn wait_for_growths<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
    ) -> MutexGuard<'a, PoolState<B>> {
        while inner.growing > 0 {
            inner = self.grown.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner
    }
}

/// Maps all ranges or none.
///
/// # Errors
/// The number of driver calls, if one was refused.
fn map_all<B: Backend>(jobs: &[MapJob], context: &BackendContext<B>, zero: bool) -> Result<Vec<MapDone>, u64> {
    let mut done: Vec<MapDone> = Vec::new();
    for job in jobs {
        match job.run(context, zero) {
            Ok(mapped) => done.push(mapped),
            Err(calls) => return Err(done.into_iter().fold(calls, |calls, done| calls + done.undo(context))),
        }
    }
    Ok(done)
}
