//! Caps, clearing and retention of a pool to be.

use super::ledger::ArrayLedger;
use super::sizes::ArraySizes;
use super::{ArrayCounters, ArrayElement, ArrayPool, ArrayPoolState};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Arrays of each size that are kept, where nothing is said.
const CAP: u32 = 64;
/// Arrays of one size that can be kept: their slots and marks take 65,536 · (64 + 64 + 8) bytes, 8.5 MiB.
const MOST: u32 = 1 << 16;
/// Elements of the longest arrays that are kept, where nothing is said.
const LONGEST: usize = 1 << 28;

/// Sets up an [`ArrayPool`].
///
/// # Example
/// ```
/// use terrace_pool::ArrayPool;
/// let pool = ArrayPool::<u8>::builder().cap(8).cap_of(1 << 20, 2).clear(true).build();
/// pool.rent(100)?.fill(7);
/// assert_eq!(pool.rent(100)?[..], [0; 100], "cleared when it was returned");
/// # Ok::<(), terrace_pool::ArrayError>(())
/// ```
#[must_use = "a builder makes no pool before `build`"]
pub struct ArrayPoolBuilder<T> {
    cap: u32,
    caps: Vec<(usize, u32)>,
    longest: usize,
    clear: bool,
    idle: Option<Duration>,
    element: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for ArrayPoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayPoolBuilder").field("cap", &self.cap).field("caps", &self.caps).finish_non_exhaustive()
    }
}

impl<T: ArrayElement> ArrayPoolBuilder<T> {
    pub(super) fn new() -> Self {
        Self { cap: CAP, caps: Vec::new(), longest: LONGEST, clear: false, idle: None, element: PhantomData }
    }

    /// Sets how many arrays of each size are kept; 64 unless set, 0 for none, at most 65,536.
    ///
    /// Rents beyond the cap get an array that is freed after them.
    pub fn cap(mut self, arrays: u32) -> Self {
        self.cap = arrays.min(MOST);
        self
    }

    /// Sets the cap of the size that arrays of `len` elements have, in place of [`cap`](Self::cap).
    pub fn cap_of(mut self, len: usize, arrays: u32) -> Self {
        self.caps.push((len, arrays.min(MOST)));
        self
    }

    /// Sets the longest arrays that are kept, in elements; 2^28 unless set.
    ///
    /// Longer ones are made for each rent, of exactly its length.
    pub fn longest(mut self, len: usize) -> Self {
        self.longest = len;
        self
    }

    /// Sets whether each array is cleared when it is returned; it is not unless set.
    pub fn clear(mut self, clear: bool) -> Self {
        self.clear = clear;
        self
    }

    /// Sets the retention time: [`maintain`](ArrayPool::maintain) drops arrays that were idle for longer.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
        self
    }

    /// Makes the pool. It takes memory when arrays are rented.
    pub fn build(self) -> ArrayPool<T> {
        let sizes = ArraySizes::new(self.longest, self.cap, self.caps, self.idle);
        let (ledger, counters) = (Mutex::new(ArrayLedger::default()), ArrayCounters::default());
        ArrayPool { inner: Arc::new(ArrayPoolState { sizes, clear: self.clear, ledger, counters }) }
    }
}
