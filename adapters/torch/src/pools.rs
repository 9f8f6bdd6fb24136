//! Pools: memory that captured graphs, or regions of a program, keep to themselves.
//!
//! Promises upward: between `begin` and `end` what the filter accepts comes from the pool; no event is asked of a stream
//! meanwhile that may be captured; the pool's memory goes back after as many `release`s as `begin`s, and its blocks.
//! Asks from below: [`Stream::capture`], which routes one stream; [`Filter`].
//!
//! A filter may look at the stream (graphs) or at the thread (regions), so it is asked at each allocation, under the lock
//! under which the allocation is made too: what another thread allocates on the same stream goes where its own answer says.

use crate::filter::Filter;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_device::{Capture, Device, DeviceError, GraphPool, Stream};

/// PyTorch's name for a pool: `std::pair<unsigned long long, unsigned long long>`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId(pub u64, pub u64);

/// The pools of one device.
#[derive(Default)]
pub struct PoolScopes {
    /// Length of `inner.open`: nothing is locked while nothing is open.
    open: AtomicUsize,
    inner: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    pools: HashMap<PoolId, CountedPool>,
    /// What was begun and not ended, oldest first; an id may be there twice.
    open: Vec<PoolScope>,
}

struct CountedPool {
    pool: GraphPool,
    /// Begun and not released.
    users: u32,
}

struct PoolScope {
    id: PoolId,
    filter: Filter,
    /// Streams that are routed to the pool. A stream is in at most one of all `open`.
    routed: HashMap<u64, Capture>,
}

impl PoolScopes {
    fn inner(&self) -> MutexGuard<'_, PoolState> {
        // Maps are whole between any two calls, so those a panicking thread left are.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on what the filter accepts goes to the pool, which is made at its first use.
    pub fn begin(&self, device: &Device, id: PoolId, filter: Filter) -> Result<(), DeviceError> {
        let mut inner = self.inner();
        if let Some(pool) = inner.pools.get_mut(&id) {
            pool.users += 1;
        } else {
            inner.pools.insert(id, CountedPool { pool: device.graph_pool()?, users: 1 });
        }
        inner.open.push(PoolScope { id, filter, routed: HashMap::new() });
        self.open.store(inner.open.len(), Ordering::Release);
        Ok(())
    }

    /// Ends what was begun last for the pool. False when nothing was.
    pub fn end(&self, id: PoolId) -> bool {
        let mut inner = self.inner();
        let Some(at) = inner.open.iter().rposition(|open| open.id == id) else { return false };
        inner.open.remove(at);
        self.open.store(inner.open.len(), Ordering::Release);
        true
    }

    /// One user of the pool less; with the last it goes, once its blocks are back. False when there is no such pool.
    pub fn release(&self, id: PoolId) -> bool {
        let mut inner = self.inner();
        let Some(pool) = inner.pools.get_mut(&id) else { return false };
        pool.users -= 1;
        if pool.users == 0 {
            inner.pools.remove(&id);
        }
        true
    }

    /// Allocates on a stream, from the pool whose filter accepts it if there is one; says which.
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

    /// A stream is about to be named to the device: if it is captured, no event may be asked of it.
    pub fn route_use(&self, handle: u64, stream: &Stream) -> Result<(), DeviceError> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.inner().route(handle, stream, true).map(|_| ())
    }
}

impl PoolState {
    /// Routes a stream to the first that accepts it, or, unless `keep`, back to the device.
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
            // A pool that was released before its end has no memory any more: the device's serves.
            let Some(pool) = self.pools.get(&open.id) else { return Ok(None) };
            open.routed.insert(handle, stream.capture(&pool.pool)?);
        }
        Ok(Some(open.id))
    }
}
