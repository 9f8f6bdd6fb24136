//! Bounds and functions of a pool to be.

use super::hooks::Hooks;
use super::inner::{ObjectPoolState, PoolBounds};
use super::slot_allocator::SlotAllocator;
use super::slots::ObjectSlots;
use super::stats::ObjectCounters;
use super::worker::Lifeline;
use super::{FactoryError, ObjectError, ObjectPool, Places};
use crate::waiting::WaitingPool;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Objects that may exist, where nothing is said.
const MOST: u32 = 1024;
/// Most objects of any pool: 2^24 stamps are 128 MiB.
const LIMIT: u32 = 1 << 24;
/// Objects that each thread keeps to itself, where nothing is said: enough for gets that nest four deep.
const FRONT: u32 = 4;

/// Sets up an [`ObjectPool`].
///
/// # Example
/// ```
/// use std::time::Duration;
/// use terrace_pool::ObjectPool;
/// let pool = ObjectPool::builder(String::new)
///     .least(2) // made now, and again after eviction
///     .most(16) // the 17th get waits
///     .keep(8) // idle ones beyond this go at maintenance, the least recently used first
///     .idle(Duration::from_secs(60)) // and so do those that no get took for so long
///     .interval(Duration::from_secs(5)) // maintenance by a thread of the pool's own
///     .reset(|text| text.clear())
///     .validate(|text| text.capacity() < 1 << 20)
///     .build()?;
/// assert_eq!(pool.stats().existing, 2);
/// # Ok::<(), terrace_pool::ObjectError>(())
/// ```
#[must_use = "a builder makes no pool before `build`"]
pub struct ObjectPoolBuilder<T> {
    hooks: Hooks<T>,
    bounds: PoolBounds,
    front: u32,
    interval: Option<Duration>,
}

impl<T> fmt::Debug for ObjectPoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPoolBuilder").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> ObjectPoolBuilder<T> {
    pub(super) fn new(factory: impl Fn() -> Result<T, FactoryError> + Send + Sync + 'static) -> Self {
        let hooks = Hooks { make: Box::new(factory), reset: None, validate: None };
        let bounds = PoolBounds { least: 0, most: MOST, keep: u32::MAX, idle: None };
        Self { hooks, bounds, front: FRONT, interval: None }
    }

    /// Sets how many objects are made ahead, now and at each maintenance; 0 unless set.
    ///
    /// No eviction goes below this number.
    pub fn least(mut self, least: u32) -> Self {
        self.bounds.least = least;
        self
    }

    /// Sets how many objects may exist at once, out or idle; 1024 unless set, at most 2^24.
    ///
    /// A slot for each is reserved when the pool is built: the object's size, rounded up to 64 bytes.
    pub fn most(mut self, most: u32) -> Self {
        self.bounds.most = most;
        self
    }

    /// Sets how many idle objects maintenance leaves, those returned last; all unless set.
    pub fn keep(mut self, keep: u32) -> Self {
        self.bounds.keep = keep;
        self
    }

    /// Sets the retention time: maintenance drops an object that was idle for longer.
    ///
    /// It may stay a sixteenth of the time, and one interval of maintenance, longer.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.bounds.idle = Some(idle);
        self
    }

    /// Starts a thread that calls [`maintain`](ObjectPool::maintain) at this interval.
    ///
    /// It ends when the last handle of the pool is dropped.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval.max(Duration::from_millis(1)));
        self
    }

    /// Sets how many objects each thread keeps to itself; 4 unless set, at most 8, 0 for none.
    ///
    /// Other threads take them only where they could not make a new one.
    pub fn front(mut self, objects: u32) -> Self {
        self.front = objects;
        self
    }

    /// Sets a function that prepares each returned object for its next user.
    ///
    /// An object for which it panics is dropped.
    pub fn reset(mut self, reset: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        self.hooks.reset = Some(Box::new(reset));
        self
    }

    /// Sets a function that says whether an object may be handed out.
    ///
    /// An object that may not, or for which it panics, is dropped, and a get makes a new one in its place.
    pub fn validate(mut self, validate: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.hooks.validate = Some(Box::new(validate));
        self
    }

    /// Makes the pool and its first `least` objects.
    ///
    /// # Errors
    /// [`ObjectError::Bounds`]; errors of the factory; [`ObjectError::Thread`].
    pub fn build(self) -> Result<ObjectPool<T>, ObjectError> {
        let PoolBounds { least, most, .. } = self.bounds;
        if most == 0 || most > LIMIT || least > most {
            return Err(ObjectError::Bounds { least, most, limit: LIMIT });
        }
        let refused = |_| ObjectError::Bounds { least, most, limit: LIMIT };
        let places = Arc::new(Places::new(most, self.front).map_err(refused)?);
        let inner = Arc::new(ObjectPoolState {
            waiters: WaitingPool::new(SlotAllocator(Arc::clone(&places))),
            places,
            slots: ObjectSlots::new(most),
            hooks: self.hooks,
            bounds: self.bounds,
            counters: ObjectCounters::default(),
            history: Mutex::default(),
        });
        if let (_, Some(failure)) = inner.make_missing() {
            return Err(failure);
        }
        let lifeline = Lifeline::start(inner, self.interval).map_err(ObjectError::Thread)?;
        Ok(ObjectPool { lifeline: Arc::new(lifeline) })
    }
}
