//! A pool of arrays by length: rent one, use it, drop it.
//!
//! Promises upward: an array has at least the requested length, and room for the next size up; of each size at most `cap` arrays are
//! kept; memory is zero where it is new or was asked to be cleared; the pool knows each array that is out, and where it was rented.
//! Asks from below: an [`ObjectPool`](crate::ObjectPool) for each size, made when the size is first rented.
//!
//! | module | what it is |
//! | --- | --- |
//! | `error` | what goes wrong |
//! | `ledger` | arrays that left as a `Vec` or a pointer |
//! | `sizes` | the arrays of one size |
//! | `rented` | an array that is out |
//! | `builder` | caps, clearing, retention |

mod builder;
mod error;
mod ledger;
mod rented;
mod sizes;

pub use builder::ArrayPoolBuilder;
pub use error::{ArrayError, ReturnError, ReturnRefusal};
pub use ledger::Outstanding;
pub use rented::RentedArray;
pub use sizes::ArraySizeStats;

use crate::pool_ref::PoolRef;
use bytemuck::Zeroable;
use ledger::{ArrayForm, ArrayLedger, Entry, Leaked};
use rented::ArrayParts;
use sizes::ArraySizes;
use std::fmt;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A type whose arrays a pool can keep: zeroed memory is a value of it, and its values are plain data.
pub trait ArrayElement: Zeroable + Copy + Send + 'static {}

impl<T: Zeroable + Copy + Send + 'static> ArrayElement for T {}

/// A pool of arrays; clones are handles to the same pool.
///
/// # Example
/// ```
/// use terrace_pool::ArrayPool;
/// let pool = ArrayPool::<f32>::new();
/// let mut samples = pool.rent(1000)?;
/// samples[999] = 0.5;
/// assert_eq!((samples.len(), samples.capacity()), (1000, 1024));
/// drop(samples); // back into the pool
/// assert_eq!(pool.rent(1010)?[999], 0.5, "arrays are as their last user left them");
/// assert_eq!(pool.rent_cleared(1010)?[999], 0.0);
/// # Ok::<(), terrace_pool::ArrayError>(())
/// ```
pub struct ArrayPool<T> {
    inner: Arc<ArrayPoolState<T>>,
}

/// A pool without its handles.
struct ArrayPoolState<T> {
    sizes: ArraySizes<T>,
    /// Whether each array is cleared when it is returned.
    clear: bool,
    ledger: Mutex<ArrayLedger>,
    counters: ArrayCounters,
}

#[derive(Debug, Default)]
struct ArrayCounters {
    overflows: AtomicU64,
    refused: AtomicU64,
}

/// What an array pool did and holds: plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayStats {
    /// The sizes that were rented so far, the smallest first.
    pub sizes: Vec<ArraySizeStats>,
    /// Arrays rented beyond the cap of their size, or longer than the largest size: made for one rent, and freed after it.
    pub overflows: u64,
    /// Of these, arrays that are out.
    pub overflows_out: usize,
    /// Arrays that left as a `Vec` or a pointer and have not come back.
    pub detached: usize,
    /// Returns that were refused: not an array of this pool, returned already, or resized.
    pub refused_returns: u64,
}

impl ArrayStats {
    /// Arrays that are out, in whatever form.
    pub fn out(&self) -> u64 {
        let pooled: u64 = self.sizes.iter().map(|size| u64::from(size.out)).sum();
        pooled + (self.overflows_out + self.detached) as u64
    }
}

impl<T> Clone for ArrayPool<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: ArrayElement> fmt::Debug for ArrayPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayPool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<T: ArrayElement> Default for ArrayPool<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ArrayPoolState<T> {
    fn ledger(&self) -> MutexGuard<'_, ArrayLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a return that was refused.
    fn refused<A>(&self, refusal: ReturnRefusal, array: A) -> ReturnError<A> {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        ReturnError { refusal, array }
    }
}

impl<T: ArrayElement> ArrayPool<T> {
    /// A pool that keeps at most 64 arrays of each size, and clears none that it was not asked to.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Sets up a pool.
    pub fn builder() -> ArrayPoolBuilder<T> {
        ArrayPoolBuilder::new()
    }

    /// Rents an array of `len` elements, as its last user left it; a new one is zero.
    ///
    /// Its capacity is the next size: 16 elements, and four sizes for each power of two above, so at most a quarter is unused. O(1).
    ///
    /// # Errors
    /// [`ArrayError`]: no elements, more than an address space has, or no memory.
    #[track_caller]
    #[inline(always)]
    pub fn rent(&self, len: usize) -> Result<RentedArray<'_, T>, ArrayError> {
        self.inner.rent(PoolRef::Borrowed(&self.inner), len, Location::caller())
    }

    /// As [`rent`](Self::rent), with all elements zero. O(len).
    ///
    /// # Errors
    /// As [`rent`](Self::rent).
    #[track_caller]
    pub fn rent_cleared(&self, len: usize) -> Result<RentedArray<'_, T>, ArrayError> {
        let mut array = self.rent(len)?;
        array.fill(T::zeroed());
        Ok(array)
    }

    /// As [`rent`](Self::rent), for an array that does not borrow the pool.
    ///
    /// # Errors
    /// As [`rent`](Self::rent).
    #[track_caller]
    pub fn rent_owned(&self, len: usize) -> Result<RentedArray<'static, T>, ArrayError> {
        self.inner.rent(PoolRef::Owned(Arc::clone(&self.inner)), len, Location::caller())
    }

    /// Takes back an array that left by [`RentedArray::into_vec`]. O(capacity - length).
    ///
    /// # Errors
    /// [`ReturnError`], with the array: it is not of this pool, or it was resized.
    pub fn give_back(&self, array: Vec<T>) -> Result<(), ReturnError<Vec<T>>> {
        let settled = self.inner.ledger().settle(array.as_ptr().addr(), Some(array.capacity()));
        match settled {
            Ok(entry) => {
                let mut array = array;
                array.resize(entry.capacity, T::zeroed());
                self.inner.keep(array.into_boxed_slice());
                Ok(())
            }
            Err(refusal) => Err(self.inner.refused(refusal, array)),
        }
    }

    /// Takes back an array that left by [`RentedArray::into_raw`].
    ///
    /// # Errors
    /// [`ReturnError`], with the pointer: it is not of this pool, or it came back already.
    pub fn give_back_raw(&self, array: *mut T) -> Result<(), ReturnError<*mut T>> {
        let settled = self.inner.ledger().settle(array.addr(), None);
        let entry = settled.map_err(|refusal| self.inner.refused(refusal, array))?;
        // SAFETY: the ledger has arrays of `T` only, and has just given this one up.
        let returned = unsafe { ledger::adopt(entry) };
        self.inner.keep(returned);
        Ok(())
    }

    /// The arrays that are out: where each was rented, and how long it is. O(sizes · cap).
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let mut out: Vec<_> = self.inner.sizes.outstanding();
        out.extend(self.inner.ledger().outstanding());
        out
    }

    /// Drops idle arrays that no rent took for the retention time; returns how many.
    ///
    /// [`ArrayPoolBuilder::idle`] sets that time; without it, nothing is dropped.
    pub fn maintain(&self) -> u32 {
        self.inner.sizes.made().map(|size| size.maintain()).sum()
    }

    /// Drops all idle arrays; returns how many.
    pub fn trim(&self) -> u32 {
        self.inner.sizes.made().map(|size| size.trim()).sum()
    }

    /// Counters: what the pool did, and what it holds now. O(sizes).
    pub fn stats(&self) -> ArrayStats {
        let (counters, ledger) = (&self.inner.counters, self.inner.ledger());
        ArrayStats {
            sizes: self.inner.sizes.made().map(|size| size.stats()).collect(),
            overflows: counters.overflows.load(Ordering::Relaxed),
            overflows_out: ledger.count(|form| form == ArrayForm::Guard),
            detached: ledger.count(|form| form != ArrayForm::Guard),
            refused_returns: counters.refused.load(Ordering::Relaxed),
        }
    }
}

impl<T: ArrayElement> ArrayPoolState<T> {
    /// Rents an array that goes back to `pool`, which is this.
    #[inline(always)]
    fn rent<'a>(
        &self,
        pool: PoolRef<'a, ArrayPoolState<T>>,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<RentedArray<'a, T>, ArrayError> {
        // The slow path returns parts: a whole guard would be copied where the fast path only fills registers.
        let parts = match self.sizes.of(len).and_then(|(class, size)| Some(ArrayParts::of(class, size.take(at)?))) {
            Some(parts) => parts,
            None => self.rent_slowly(len, at)?,
        };
        Ok(RentedArray::new(pool, parts, len))
    }

    /// An array that this thread has not returned last.
    #[cold]
    #[inline(never)]
    fn rent_slowly(&self, len: usize, at: &'static Location<'static>) -> Result<ArrayParts<T>, ArrayError> {
        if size_of::<T>() == 0 {
            // All such arrays have one address, and could not be told apart.
            return Err(ArrayError::ZeroSized);
        }
        let mut capacity = len;
        if let Some((class, size)) = self.sizes.of(len) {
            if let Some(out) = size.take_slowly(at)? {
                return Ok(ArrayParts::of(class, out));
            }
            capacity = size.len;
        }
        if len == 0 {
            return Err(ArrayError::Empty);
        }
        let array: Box<[T]> = sizes::zeroed(capacity)?;
        self.counters.overflows.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { capacity, rented_at: at, form: ArrayForm::Guard, start: Leaked(null_mut()) };
        self.ledger().note(array.as_ptr().addr(), entry);
        Ok(ArrayParts::overflow(array))
    }

    /// Keeps an array that came back from outside, if its size has room.
    fn keep(&self, mut array: Box<[T]>) {
        if self.clear {
            array.fill(T::zeroed());
        }
        if let Some((_, size)) = self.sizes.of(array.len()).filter(|(_, size)| size.len == array.len()) {
            size.put(array);
        }
    }
}
