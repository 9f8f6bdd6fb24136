//! A pool of objects that are dear to make: parsers, connections, compressors, large buffers.
//!
//! Promises upward: at most `most` objects exist; a get takes the object that its thread returned last, without a lock or an atomic
//! read-modify-write; calls that wait are served in turn; a panic in a function of the pool's maker is a typed error.
//! Asks from below: [`Places`] for slots, the queue of [`crate::waiting`].
//!
//! | module | what it is |
//! | --- | --- |
//! | `slots` | the objects, each reached by one claim |
//! | `hooks`, `error` | the functions of the pool's maker; what goes wrong |
//! | `slot_allocator` | slots, for the queue of waiters |
//! | `stats` | counters |
//! | `inner` | how an object leaves and comes back |
//! | `maintenance` | eviction, retention, objects made ahead |
//! | `guard`, `get` | an object that is out; the future of one |
//! | `worker` | the thread; the end |
//! | `builder` | bounds and functions |

mod builder;
mod error;
mod get;
mod guard;
mod hooks;
mod inner;
mod maintenance;
mod slot_allocator;
mod slots;
mod stats;
mod worker;

pub use builder::ObjectPoolBuilder;
pub use error::{FactoryError, ObjectError};
pub use get::ObjectFuture;
pub use guard::PooledObject;
pub(crate) use inner::{ObjectPoolState, Out};
pub use maintenance::Maintenance;
pub(crate) use slots::SlotClaim;
pub use stats::ObjectStats;

use crate::places::Places;
use crate::pool_ref::PoolRef;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use worker::Lifeline;

/// A pool of objects; clones are handles to the same pool, and dropping the last one closes it.
///
/// # Example
/// ```
/// use terrace_pool::ObjectPool;
/// let pool = ObjectPool::builder(|| Vec::<u8>::with_capacity(4096)).most(2).reset(|buffer| buffer.clear()).build()?;
/// let mut first = pool.try_get()?;
/// first.extend_from_slice(b"hello");
/// drop(first); // back into the pool, cleared
/// assert!(pool.try_get()?.is_empty());
/// assert_eq!((pool.stats().made, pool.stats().front_hits), (1, 1));
///
/// let (first, second) = (pool.try_get()?, pool.try_get()?);
/// assert!(pool.try_get().is_err(), "both are out");
/// # drop((first, second));
/// # Ok::<(), terrace_pool::ObjectError>(())
/// ```
pub struct ObjectPool<T> {
    lifeline: Arc<Lifeline<T>>,
}

impl<T> Clone for ObjectPool<T> {
    fn clone(&self) -> Self {
        Self { lifeline: Arc::clone(&self.lifeline) }
    }
}

impl<T> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> ObjectPool<T> {
    /// Sets up a pool whose factory always makes an object.
    pub fn builder(factory: impl Fn() -> T + Send + Sync + 'static) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder::new(move || Ok(factory()))
    }

    /// Sets up a pool whose factory may fail.
    ///
    /// # Example
    /// ```
    /// use terrace_pool::{ObjectError, ObjectPool};
    /// let pool = ObjectPool::try_builder(|| "not a number".parse::<u32>()).build()?;
    /// assert!(matches!(pool.try_get(), Err(ObjectError::Factory(_))));
    /// # Ok::<(), ObjectError>(())
    /// ```
    pub fn try_builder<E: Into<FactoryError>>(
        factory: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder::new(move || factory().map_err(Into::into))
    }
}

impl<T> ObjectPool<T> {
    /// The pool without its handles, for the pools built on this one.
    #[inline(always)]
    pub(crate) fn inner(&self) -> &ObjectPoolState<T> {
        &self.lifeline.inner
    }

    fn borrowed(&self) -> PoolRef<'_, ObjectPoolState<T>> {
        PoolRef::Borrowed(self.inner())
    }

    fn owned(&self) -> PoolRef<'static, ObjectPoolState<T>> {
        PoolRef::Owned(Arc::clone(&self.lifeline.inner))
    }

    /// Gets an object without waiting: an idle one, or a new one.
    ///
    /// Takes the object that this thread returned last, else an idle one that all threads share, else makes one, else takes one that
    /// another thread has kept to itself.
    ///
    /// # Errors
    /// [`ObjectError::Exhausted`] while all objects are out, or calls wait; errors and panics of the factory; [`ObjectError::Invalid`]
    /// for a new object that the validation refuses; [`ObjectError::Closed`].
    #[inline(always)]
    pub fn try_get(&self) -> Result<PooledObject<'_, T>, ObjectError> {
        let object = self.inner().take()?;
        Ok(PooledObject::new(self.borrowed(), object))
    }

    /// As [`try_get`](Self::try_get), for a guard that does not borrow the pool.
    ///
    /// # Errors
    /// As [`try_get`](Self::try_get).
    pub fn try_get_owned(&self) -> Result<PooledObject<'static, T>, ObjectError> {
        let object = self.inner().take()?;
        Ok(PooledObject::new(self.owned(), object))
    }

    /// The future of an object: the call that has waited longest is served first.
    ///
    /// A future may be dropped at any time, needs no particular runtime, and runs the factory where it is polled.
    ///
    /// # Errors
    /// As [`try_get`](Self::try_get), but for `Exhausted`.
    pub fn get(&self) -> ObjectFuture<'_, T> {
        ObjectFuture::new(self.borrowed())
    }

    /// As [`get`](Self::get), for a guard that does not borrow the pool.
    pub fn get_owned(&self) -> ObjectFuture<'static, T> {
        ObjectFuture::new(self.owned())
    }

    /// Blocks this thread until it gets an object, for at most `limit`; in turn with all others that wait.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`ObjectError::TimedOut`].
    pub fn get_timeout(&self, limit: Duration) -> Result<PooledObject<'_, T>, ObjectError> {
        let most = self.inner().bounds.most;
        crate::waiting::block_on(self.get(), limit).unwrap_or(Err(ObjectError::TimedOut { limit, most }))
    }

    /// Adds an object from elsewhere as an idle one; it is not reset.
    ///
    /// # Errors
    /// Returns the object if `most` exist already, or the pool is closed.
    pub fn put(&self, object: T) -> Result<(), T> {
        self.inner().put(object)
    }

    /// Drops expired and surplus idle objects, and makes objects until `least` exist.
    ///
    /// The least recently used objects go first.
    ///
    /// The pool's own thread does this at each `interval`, if it has one. O(most · log most), and two system calls of a microsecond.
    pub fn maintain(&self) -> Maintenance {
        self.inner().maintain()
    }

    /// Drops the least recently used idle objects until at most `idle` are left, or `least` exist.
    ///
    /// Returns how many it dropped.
    ///
    /// The order is exact among objects that one thread returned; among those of several it is that of their last maintenance.
    pub fn trim_to(&self, idle: u32) -> u32 {
        self.inner().trim_to(idle)
    }

    /// Closes the pool: drops idle objects now, and those that are out when they come back.
    ///
    /// Calls that wait, and later ones, are refused with [`ObjectError::Closed`].
    pub fn close(&self) {
        self.inner().close();
    }

    /// Counters: what the pool did, and what it holds now. O(most / 64 + threads).
    pub fn stats(&self) -> ObjectStats {
        self.inner().stats()
    }
}
