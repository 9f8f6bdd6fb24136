//! New pages or a segment for the device's arena, without the pool's lock: others allocate and free meanwhile.
//!
//! ```text
//!   thread A  |lock: plan, take from the capacity|  create .. map .. allow  |lock: finish|
//!   thread B         waits |hit|     |miss in a gap|   |free|                               no driver call is waited for
//! ```
//!
//! Promises upward: a block is given out after its pages are mapped or its segment is taken; where the driver refuses, the arena tries all else that it
//! knows, under the lock; no request fails while pages are on their way that might serve it.
//! Asks from below: [`Arena::allocate_later`](terrace_core::Arena::allocate_later); [`MapJob`] and [`TakeJob`], which need no lock.

use super::{DevicePool, PoolState};
use crate::backend::Backend;
use crate::source::{BackendContext, DeviceSource, MapDone, MapJob, TakeJob};
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
    /// Allocates from the device's arena. Releases the lock while pages are mapped or a segment is taken.
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

    /// Does what growths ask of the driver without the lock, then ends each: with its block, or `None` where the driver refused.
    pub(super) fn end_growths<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        growths: Vec<Growth>,
    ) -> (MutexGuard<'a, PoolState<B>>, Vec<Option<Block>>) {
        let jobs: Vec<_> = growths.iter().map(|growth| GrowthJob::of(growth, inner.arena.source())).collect();
        inner.growing += 1;
        // Not `unlock`: the callbacks that it makes may wait for growths, and for this one too.
        drop(inner);
        let underway = Underway(self);
        let ran: Vec<_> = jobs.iter().map(|job| job.run(&self.context, self.options.zero_fresh)).collect();
        let mut inner = self.inner();
        std::mem::forget(underway);
        inner.end_growth(&self.grown);
        let end = |(growth, ran): (Growth, Result<GrowthDone, u64>)| match ran {
            Ok(done) => {
                done.tell(inner.arena.source_mut());
                inner.arena.finish(growth).ok()
            }
            Err(calls) => {
                inner.arena.source_mut().count_calls(calls);
                inner.arena.cancel(growth);
                None
            }
        };
        let blocks = growths.into_iter().zip(ran).map(end).collect();
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

/// What a growth asks of the driver.
enum GrowthJob {
    Map(Vec<MapJob>),
    Take(TakeJob, u64),
}

/// What the driver gave.
enum GrowthDone {
    Mapped(Vec<MapDone>),
    /// First address and bytes.
    Taken(u64, u64),
}

impl GrowthJob {
    fn of<B: Backend>(growth: &Growth, source: &DeviceSource<B>) -> Self {
        match growth.segment().and_then(|bytes| Some((source.take_job(bytes)?, bytes))) {
            Some((job, bytes)) => Self::Take(job, bytes),
            None => Self::Map(growth.ranges().filter_map(|(start, _)| source.job(start)).collect()),
        }
    }

    /// Does all of it or nothing.
    ///
    /// # Errors
    /// The number of driver calls, if one was refused.
    fn run<B: Backend>(&self, context: &BackendContext<B>, zero: bool) -> Result<GrowthDone, u64> {
        match self {
            Self::Map(jobs) => map_all(jobs, context, zero).map(GrowthDone::Mapped),
            Self::Take(job, bytes) => job.run(context, zero).map(|base| GrowthDone::Taken(base, *bytes)),
        }
    }
}

impl GrowthDone {
    fn tell<B: Backend>(self, source: &mut DeviceSource<B>) {
        match self {
            Self::Mapped(done) => source.mapped_later(done),
            Self::Taken(base, bytes) => source.taken_later(base, bytes),
        }
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
