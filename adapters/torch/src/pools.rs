//! Private memory pools: for captured graphs, and for regions of a program that ask for a pool of their own.
//!
//! Promises upward: between `begin` and `end`, allocations that the filter accepts come from the pool, and no event is
//! recorded or queried on a stream that may be captured. The pool's memory is freed once `release` was called as often
//! as `begin` and all blocks of the pool are freed.
//! Asks from below: [`Stream::capture`], which routes one stream to a pool; [`Filter`].
//!
//! A filter may decide by the stream (graphs) or by the calling thread (program regions). So each allocation calls the
//! filter, and holds the lock until it is done: otherwise another thread's result could change the stream's route
//! before the allocation.

use crate::filter::Filter;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::{Capture, Device, DeviceError, GraphPool, Stream};

/// PyTorch's id of a pool: `std::pair<unsigned long long, unsigned long long>`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(pub u64, pub u64);

/// The pools of one device, and the open scopes, which route streams to them.
#[derive(Default)]
pub struct PoolScopes {
    /// The length of `inner.open`; while it is 0, allocations do not take the lock.
    open: AtomicUsize,
    inner: Mutex<GraphPoolState>,
}

#[derive(Default)]
struct GraphPoolState {
    pools: HashMap<PoolId, CountedPool>,
    /// Scopes that were begun and not ended, oldest first; a pool may have several.
    open: Vec<PoolScope>,
}

struct CountedPool {
    pool: GraphPool,
    /// Number of `begin` calls less `release` calls; at 0 the pool is removed.
    users: NonZeroU32,
}

struct PoolScope {
    id: PoolId,
    filter: Filter,
    /// Streams that this scope routes to the pool, by handle. At most one open scope routes a stream.
    routed: HashMap<u64, Capture>,
}

impl PoolScopes {
    fn inner(&self) -> MutexGuard<'_, GraphPoolState> {
        // A panic poisons the lock but never interrupts a change of the map, so the state is consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a scope: until [`end`](Self::end), allocations that the filter accepts come from the pool.
    ///
    /// The first `begin` of an id creates the pool.
    pub fn begin(&self, device: &Device, id: PoolId, filter: Filter) -> Result<(), DeviceError> {
        let mut inner = self.inner();
        if let Some(pool) = inner.pools.get_mut(&id) {
            pool.users = pool.users.saturating_add(1);
        } else {
            inner.pools.insert(id, CountedPool { pool: device.graph_pool()?, users: NonZeroU32::MIN });
        }
        inner.open.push(PoolScope { id, filter, routed: HashMap::new() });
        self.open.store(inner.open.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the youngest open scope of a pool. Returns false if the pool has none.
    pub fn end(&self, id: PoolId) -> bool {
        let mut inner = self.inner();
        let Some(at) = inner.open.iter().rposition(|open| open.id == id) else { return false };
        inner.open.remove(at);
        self.open.store(inner.open.len(), Ordering::Release);
        true
    }

    /// Drops one use of a pool. Returns false if there is no such pool.
    ///
    /// After the last use, the pool's memory is freed as soon as all of its blocks are freed.
    pub fn release(&self, id: PoolId) -> bool {
        let mut inner = self.inner();
        let Some(pool) = inner.pools.get_mut(&id) else { return false };
        match NonZeroU32::new(pool.users.get() - 1) {
            Some(left) => pool.users = left,
            None => _ = inner.pools.remove(&id),
        }
        true
    }

    /// Allocates on a stream, from the pool of the first scope whose filter accepts; returns the pool's id.
    pub fn allocate<T>(
        &self,
        handle: u64,
        stream: &Stream,
        allocate: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<(T, Option<PoolId>), DeviceError> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok((allocate()?, None));
        }
        let mut inner = self.inner();
        let pool = inner.route(handle, stream, false)?;
        Ok((allocate()?, pool))
    }

    /// Routes a stream to the pool of the graph that captures it, before the device uses the stream.
    ///
    /// From then on the device records and queries no event on the stream, which would invalidate the capture.
    pub fn route_use(&self, handle: u64, stream: &Stream) -> Result<(), DeviceError> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.inner().route(handle, stream, true).map(|_| ())
    }
}

impl GraphPoolState {
    /// Routes a stream to the first scope that accepts it. If none does, ends the stream's route, unless `keep`.
    fn route(&mut self, handle: u64, stream: &Stream, keep: bool) -> Result<Option<PoolId>, DeviceError> {
        let accepting = self.open.iter().position(|open| open.filter.accepts(handle));
        if accepting.is_none() && keep {
            return Ok(None);
        }
        for (at, open) in self.open.iter_mut().enumerate() {
            if Some(at) != accepting {
                open.routed.remove(&handle);
            }
        }
        let Some(open) = accepting.and_then(|at| self.open.get_mut(at)) else { return Ok(None) };
        if !open.routed.contains_key(&handle) {
            // A pool that was released before its scope ended is gone: the device's own pool serves the allocation.
            let Some(pool) = self.pools.get(&open.id) else { return Ok(None) };
            open.routed.insert(handle, stream.capture(&pool.pool)?);
        }
        Ok(Some(open.id))
    }
}
