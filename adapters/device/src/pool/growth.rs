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
use std::sync::{Condvar, MutexGuard, PoisonError};
use terrace_core::arena::Growth;
use terrace_core::{AllocError, Allocator, Block, Request};

/// What an allocation came to, with the lock: it may have been released meanwhile.
pub(super) type Relocked<'a, B> = (MutexGuard<'a, PoolState<B>>, Result<Block, AllocError>);

/// A growth under way; when dropped by a panic of the backend, others do not wait for it any more.
struct Underway<'a, B: Backend>(&'a DevicePool<B>);

impl<B: Backend> Drop for Underway<'_, B> {
    fn drop(&mut self) {
        self.0.inner().end_growth(&self.0.grown);
    }
}

impl<B: Backend> DevicePool<B> {
    /// Allocates from the device's arena. Releases the lock while pages are mapped.
    pub(super) fn allocate_unlocked<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        request: Request,
    ) -> Relocked<'a, B> {
        if inner.sharing > 0 {
            let served = inner.arena.allocate(request);
            return (inner, served);
        }
        let growth = match inner.arena.allocate_later(request) {
            Ok(Err(growth)) => growth,
            Ok(Ok(block)) => return (inner, Ok(block)),
            Err(error) => return (inner, Err(error)),
        };
        let (mut inner, blocks) = self.end_growths(inner, vec![growth]);
        let grown = blocks.into_iter().flatten().next();
        let served = grown.map_or_else(|| inner.arena.allocate(request), Ok);
        (inner, served)
    }

    /// Maps the pages of growths without the lock, then ends each: with its block, or `None` where the driver refused.
    pub(super) fn end_growths<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        growths: Vec<Growth>,
    ) -> (MutexGuard<'a, PoolState<B>>, Vec<Option<Block>>) {
        let job = |(start, _)| inner.arena.source().job(start);
        let jobs: Vec<Vec<MapJob>> = growths.iter().map(|growth| growth.ranges().filter_map(job).collect()).collect();
        inner.growing += 1;
        // Not `unlock`: the callbacks that it makes may wait for growths, and for this one too.
        drop(inner);
        let underway = Underway(self);
        let mapped: Vec<_> = jobs.iter().map(|jobs| map_all(jobs, &self.context, self.options.zero_fresh)).collect();
        let mut inner = self.inner();
        std::mem::forget(underway);
        inner.end_growth(&self.grown);
        let end = |(growth, mapped): (Growth, Result<Vec<MapDone>, u64>)| match mapped {
            Ok(done) => {
                inner.arena.source_mut().mapped_later(done);
                Some(inner.arena.finish(growth))
            }
            Err(calls) => {
                inner.arena.source_mut().count_calls(calls);
                inner.arena.cancel(growth);
                None
            }
        };
        let blocks = growths.into_iter().zip(mapped).map(end).collect();
        (inner, blocks)
    }

    /// Waits until a growth ends, if any is under way.
    pub(super) fn wait_for_growth<'a>(&'a self, inner: MutexGuard<'a, PoolState<B>>) -> MutexGuard<'a, PoolState<B>> {
        let ended = inner.ended;
        let waits = |inner: &mut PoolState<B>| inner.growing > 0 && inner.ended == ended;
        self.grown.wait_while(inner, waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no growth is under way; none begins meanwhile.
    pub(super) fn wait_for_all_growths<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
    ) -> MutexGuard<'a, PoolState<B>> {
        inner.sharing += 1;
        let waited = self.grown.wait_while(inner, |inner| inner.growing > 0);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner);
        inner.sharing -= 1;
        inner
    }
}

impl<B: Backend> PoolState<B> {
    fn end_growth(&mut self, grown: &Condvar) {
        self.growing -= 1;
        self.ended += 1;
        grown.notify_all();
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
