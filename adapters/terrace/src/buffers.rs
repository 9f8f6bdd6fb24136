//! Buffers for programs: pools of buffers by size here, of objects and of arrays with feature `pool`;
//! named memory that processes share with `shm`; bytes as numbers with `bytes`.
//!
//! [`BufferPool`]: take a buffer of at least so many bytes, use it, drop it, take it again; buffers of any type.
//!
//! Promises upward: a buffer taken holds at least the requested bytes and is reset; sizes are not rounded up (a new
//! buffer has exactly the requested size, and serves later requests of that size); each bucket keeps at most `cap`
//! buffers.
//! Asks from below: [`PoolBuffer`], which `Vec<u8>` implements; a type of your own needs three functions.
//!
//! Invariants: a kept buffer lies in the bucket `floor(capacity)` of the size table; `stats().pooled` = sum of the kept
//! buffers' bytes; no bucket holds more than `cap`. No function of a [`PoolBuffer`], its drop included, is called under
//! the lock, so it may use the pool; if one panics, all other buffers and the counters stay correct.

#[cfg(feature = "bytes")]
#[doc(inline)]
pub use terrace_bytes as bytes;
#[cfg(feature = "pool")]
pub use terrace_pool::{
    ArrayElement, ArrayError, ArrayPool, ArrayPoolBuilder, ArraySizeStats, ArrayStats, FactoryError, Maintenance,
    ObjectError, ObjectFuture, ObjectPool, ObjectPoolBuilder, ObjectStats, Outstanding, PooledObject, RentedArray,
    ReturnError, ReturnRefusal,
};
#[cfg(all(feature = "shm", target_os = "linux"))]
#[doc(inline)]
pub use terrace_shm as shm;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_core::pool::SizeClasses;
use terrace_core::{AllocError, Cause, Counters, Stats};

/// Number of buffers that each bucket keeps by default.
///
/// Enough for a double-buffered pipeline four stages deep.
pub const BUCKET_CAP: usize = terrace_core::settings::POOLED_PER_BUCKET.default.number() as usize;
/// Buckets by size, from 16 bytes on: four for each power of two, so that sizes in one bucket differ by at most 25 %.
const SIZE_CLASSES: SizeClasses = match SizeClasses::new(16, 4) {
    Ok(steps) => steps,
    Err(_) => panic!("two powers of two, 4 <= 16: found out when this is compiled"),
};

/// A buffer type that a pool can keep.
pub trait PoolBuffer: Sized {
    /// Makes a buffer of exactly `bytes` bytes, or of at least so many where that cannot be.
    ///
    /// # Errors
    /// [`Cause::OutOfMemory`], or another cause.
    fn make(bytes: usize) -> Result<Self, AllocError>;

    /// Bytes that the buffer can hold.
    fn capacity(&self) -> usize;

    /// Clears the contents. Called when the buffer returns to the pool, so that its next user sees no bytes of the
    /// last.
    fn reset(&mut self);
}

impl PoolBuffer for Vec<u8> {
    fn make(bytes: usize) -> Result<Self, AllocError> {
        let mut buffer = Self::new();
        let full = |_| AllocError::new(Cause::OutOfMemory, bytes as u64);
        buffer.try_reserve_exact(bytes).map_err(full)?;
        Ok(buffer)
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }

    fn reset(&mut self) {
        self.clear();
    }
}

/// A pool of buffers; clones are handles to the same pool.
///
/// # Example
/// ```
/// use terrace::buffers::BufferPool;
/// let pool = BufferPool::<Vec<u8>>::new();
/// let mut buffer = pool.take(1000)?;
/// buffer.extend_from_slice(b"hello");
/// drop(buffer); // back into the pool
/// let again = pool.take(1000)?;
/// assert!(again.is_empty() && again.capacity() >= 1000);
/// assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
/// # Ok::<(), terrace::AllocError>(())
/// ```
pub struct BufferPool<B> {
    inner: Arc<Inner<B>>,
}

struct Inner<B> {
    cap: usize,
    kept: Mutex<BuffersBySize<B>>,
    counters: Counters,
    /// Bytes of all buffers taken so far.
    allocated_bytes: AtomicU64,
}

/// Kept buffers by bucket; no bucket is empty.
type BuffersBySize<B> = BTreeMap<u32, Vec<Kept<B>>>;

/// A reset buffer, and the number of bytes that it can hold.
struct Kept<B> {
    buffer: B,
    bytes: u64,
}

impl<B: PoolBuffer> Kept<B> {
    fn new(buffer: B) -> Self {
        let bytes = buffer.capacity() as u64;
        Self { buffer, bytes }
    }
}

impl<B> Clone for BufferPool<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<B> fmt::Debug for BufferPool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("counters", &self.inner.counters).finish_non_exhaustive()
    }
}

impl<B: PoolBuffer> Default for BufferPool<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: PoolBuffer> BufferPool<B> {
    /// A pool that keeps at most [`BUCKET_CAP`] buffers per bucket.
    pub fn new() -> Self {
        Self::with_cap(BUCKET_CAP)
    }

    /// A pool that keeps as many buffers per bucket as a configuration's `pooled_per_bucket`.
    ///
    /// # Example
    /// ```
    /// use terrace::{Config, buffers::BufferPool};
    /// let pool = BufferPool::<Vec<u8>>::of(&Config::builder().pooled_per_bucket(1).build()?);
    /// drop((pool.take(64)?, pool.take(64)?));
    /// assert_eq!(pool.stats().pooled, 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(config: &crate::Config) -> Self {
        Self::with_cap(config.pooled_per_bucket as usize)
    }

    /// A pool that keeps at most `cap` buffers per bucket (0: none).
    pub fn with_cap(cap: usize) -> Self {
        let (kept, counters) = (Mutex::new(BTreeMap::new()), Counters::new());
        Self { inner: Arc::new(Inner { cap, kept, counters, allocated_bytes: AtomicU64::new(0) }) }
    }

    fn lock(&self) -> MutexGuard<'_, BuffersBySize<B>> {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bucket of a capacity; all capacities below the smallest size share bucket 0.
    fn bucket(&self, bytes: u64) -> u32 {
        SIZE_CLASSES.floor(bytes).unwrap_or(0)
    }

    /// Acquires a buffer of at least `bytes` bytes. O(cap).
    ///
    /// Takes the smallest kept buffer that fits from the bucket of the request's size, else from the next larger
    /// bucket, else makes a new one.
    ///
    /// # Errors
    /// As [`PoolBuffer::make`]; [`Cause::BadRequest`] for 0 bytes.
    pub fn take(&self, bytes: usize) -> Result<PooledBuffer<B>, AllocError> {
        let counters = &self.inner.counters;
        if bytes == 0 {
            counters.failed();
            return Err(AllocError::new(Cause::BadRequest, 0));
        }
        let kept = self.find(bytes as u64);
        let hit = kept.is_some();
        let Kept { buffer, bytes: held } = match kept {
            Some(kept) => kept,
            None => B::make(bytes).map(Kept::new).inspect_err(|_| counters.failed())?,
        };
        if hit {
            counters.unpooled(held);
        } else {
            counters.reserved(held);
        }
        // Before the buffer counts as in use, so that no snapshot has more in use than was ever taken.
        self.inner.allocated_bytes.fetch_add(held, Ordering::Release);
        counters.allocated(held, hit);
        Ok(PooledBuffer { pool: self.clone(), buffer: Some(buffer), held })
    }

    fn find(&self, bytes: u64) -> Option<Kept<B>> {
        let own = self.bucket(bytes);
        let mut kept = self.lock();
        (own..=own + 1).find_map(|bucket| {
            let buffers = kept.get_mut(&bucket)?;
            let fitting = buffers.iter().enumerate().filter(|(_, kept)| kept.bytes >= bytes);
            let (at, _) = fitting.min_by_key(|(_, kept)| kept.bytes)?;
            let found = buffers.swap_remove(at);
            if buffers.is_empty() {
                kept.remove(&bucket);
            }
            Some(found)
        })
    }

    /// Puts a buffer into the pool, also one from elsewhere; drops it if its bucket is full.
    pub fn put(&self, mut buffer: B) {
        buffer.reset();
        let kept = Kept::new(buffer);
        self.inner.counters.reserved(kept.bytes);
        self.keep(kept);
    }

    /// Keeps a reset buffer that is counted as reserved; drops it if its bucket is full or its capacity is 0.
    fn keep(&self, kept: Kept<B>) {
        let bytes = kept.bytes;
        let mut buckets = self.lock();
        let bucket = buckets.entry(self.bucket(bytes)).or_default();
        if bytes != 0 && bucket.len() < self.inner.cap {
            bucket.push(kept);
            self.inner.counters.pooled(bytes);
            return;
        }
        buckets.retain(|_, buffers| !buffers.is_empty());
        drop(buckets);
        self.inner.counters.returned(bytes);
    }

    /// Drops every kept buffer; returns the sum of their bytes.
    pub fn trim(&self) -> u64 {
        let buffers = std::mem::take(&mut *self.lock());
        let sizes = buffers.values().flatten().map(|kept| kept.bytes);
        sizes.inspect(|bytes| (self.inner.counters.unpooled(*bytes), self.inner.counters.returned(*bytes)).0).sum()
    }

    /// Counters: bytes of buffers taken (`in_use`), of buffers kept (`pooled`), and of both (`reserved`).
    pub fn stats(&self) -> Stats {
        let stats = self.inner.counters.snapshot();
        let allocated_bytes = self.inner.allocated_bytes.load(Ordering::Acquire).max(stats.in_use);
        Stats { allocated_bytes, freed_bytes: allocated_bytes - stats.in_use, ..stats }
    }
}

/// A buffer taken from a pool, to which it returns when dropped.
#[derive(Debug)]
pub struct PooledBuffer<B: PoolBuffer> {
    pool: BufferPool<B>,
    /// `None` only inside `drop` and `into_inner`.
    buffer: Option<B>,
    /// The buffer's capacity in bytes when it was taken, as the counters have it.
    held: u64,
}

impl<B: PoolBuffer> PooledBuffer<B> {
    /// Removes the buffer from the pool: it does not return, but may be [`put`](BufferPool::put).
    pub fn into_inner(mut self) -> B {
        let buffer = self.buffer.take().unwrap_or_else(|| unreachable!("taken only here and in drop"));
        self.pool.inner.counters.freed(self.held);
        self.pool.inner.counters.returned(self.held);
        buffer
    }
}

impl<B: PoolBuffer> Deref for PooledBuffer<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.buffer.as_ref().unwrap_or_else(|| unreachable!("taken only by into_inner and drop"))
    }
}

impl<B: PoolBuffer> DerefMut for PooledBuffer<B> {
    fn deref_mut(&mut self) -> &mut B {
        self.buffer.as_mut().unwrap_or_else(|| unreachable!("taken only by into_inner and drop"))
    }
}

impl<B: PoolBuffer> Drop for PooledBuffer<B> {
    fn drop(&mut self) {
        let Some(mut buffer) = self.buffer.take() else { return };
        // The user may have grown or shrunk the buffer: subtract its old capacity, then add the new one. If `reset` or
        // `capacity` panics in between, the buffer is dropped and not counted.
        let counters = &self.pool.inner.counters;
        counters.freed(self.held);
        counters.resized_reserve(self.held, 0);
        buffer.reset();
        let kept = Kept::new(buffer);
        counters.resized_reserve(0, kept.bytes);
        self.pool.keep(kept);
    }
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
