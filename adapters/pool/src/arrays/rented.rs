//! An array that is out.

use super::ledger::{ArrayForm, Entry, Leaked};
use super::{ArrayElement, ArrayPoolState};
use crate::objects::{Out, SlotClaim};
use crate::pool_ref::PoolRef;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};

/// An array of a pool, which goes back when this is dropped.
///
/// It is a slice of the length that was asked for; [`capacity`](Self::capacity) says how far [`set_len`](Self::set_len) can go.
pub struct RentedArray<'a, T: ArrayElement> {
    pool: PoolRef<'a, ArrayPoolState<T>>,
    /// The elements, which nothing else reaches while this lives.
    parts: ArrayParts<T>,
    /// At most the capacity.
    len: usize,
    clear: bool,
    unique: PhantomData<&'a mut [T]>,
}

// SAFETY: this is the only way to its elements, as `&mut [T]` would be; pools are shared between threads.
unsafe impl<T: ArrayElement> Send for RentedArray<'_, T> {}
// SAFETY: through a shared reference threads get `&[T]` only.
unsafe impl<T: ArrayElement + Sync> Sync for RentedArray<'_, T> {}

/// The elements of an array, and what has their memory.
pub(super) struct ArrayParts<T> {
    /// The first of `capacity` elements.
    start: NonNull<T>,
    capacity: usize,
    /// The slot whose box this is; `None`: a box of its own, from which `start` was leaked.
    claim: Option<SlotClaim>,
    /// The class of the slot's size.
    class: u32,
}

impl<T> ArrayParts<T> {
    /// An array of the pool's size of this class.
    #[inline(always)]
    pub(super) fn of(class: u32, (claim, mut array): Out<Box<[T]>>) -> Self {
        // SAFETY: the claim's slot holds this box, and nothing else reaches it while the claim is held.
        let array = unsafe { array.as_mut() };
        Self { start: NonNull::from(&mut **array).cast(), capacity: array.len(), claim: Some(claim), class }
    }

    /// An array in a box of its own, which the pool's ledger has.
    pub(super) fn overflow(array: Box<[T]>) -> Self {
        let capacity = array.len();
        Self { start: NonNull::from(Box::leak(array)).cast(), capacity, claim: None, class: 0 }
    }
}

impl<'a, T: ArrayElement> RentedArray<'a, T> {
    #[inline(always)]
    pub(super) fn new(pool: PoolRef<'a, ArrayPoolState<T>>, parts: ArrayParts<T>, len: usize) -> Self {
        let clear = pool.clear;
        Self { pool, parts, len, clear, unique: PhantomData }
    }

    /// Elements that the array has room for.
    pub fn capacity(&self) -> usize {
        self.parts.capacity
    }

    /// Changes the length within the capacity, without touching an element; returns whether it could.
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.parts.capacity;
        if fits {
            self.len = len;
        }
        fits
    }

    /// Has the array cleared when it is returned: its next user sees zeros instead of a secret.
    ///
    /// The return then costs O(capacity).
    pub fn clear_on_return(&mut self) {
        self.clear = true;
    }

    /// Takes the array out of the pool, which notes it until [`give_back`](super::ArrayPool::give_back).
    ///
    /// One that is dropped instead stays in [`outstanding`](super::ArrayPool::outstanding), as never returned.
    pub fn into_vec(self) -> Vec<T> {
        let len = self.len;
        let (array, pool, entry) = self.detach(ArrayForm::Vec);
        pool.ledger().note(array.as_ptr().addr(), entry);
        let mut array = array.into_vec();
        array.truncate(len);
        array
    }

    /// Takes the array out of the pool as a pointer to its first element, for code that is not Rust.
    ///
    /// The pool still owns the memory: return the pointer by [`give_back_raw`](super::ArrayPool::give_back_raw), and free it by no other
    /// means. One that never comes back is never freed, and stands in [`outstanding`](super::ArrayPool::outstanding).
    pub fn into_raw(self) -> *mut T {
        let (array, pool, entry) = self.detach(ArrayForm::Raw);
        let start: *mut T = Box::into_raw(array).cast();
        pool.ledger().note(start.addr(), Entry { start: Leaked(start.cast()), ..entry });
        start
    }

    /// Takes the array out of the pool, to be noted in the ledger.
    fn detach(self, form: ArrayForm) -> (Box<[T]>, PoolRef<'a, ArrayPoolState<T>>, Entry) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and its pool not used after this.
        let pool = unsafe { std::ptr::read(&this.pool) };
        let pooled = this.parts.claim.take().and_then(|claim| Some(pool.sizes.get(this.parts.class)?.detach(claim)));
        let (array, rented_at) = pooled.unwrap_or_else(|| {
            // SAFETY: without a claim, the array is the box that `overflow` leaked; `this` is not used after this.
            let array = unsafe { unbox(this.parts.start, this.parts.capacity) };
            let rented_at = pool.ledger().forget(array.as_ptr().addr());
            (array, rented_at)
        });
        let rented_at = rented_at.unwrap_or(Location::caller());
        let entry = Entry { capacity: array.len(), rented_at, form, start: Leaked(null_mut()) };
        (array, pool, entry)
    }
}

/// The box that an overflow leaked.
///
/// # Safety
/// `overflow` leaked a box of `capacity` elements at `start`, and nothing uses them as long as the box lives.
unsafe fn unbox<T>(start: NonNull<T>, capacity: usize) -> Box<[T]> {
    let array = slice_from_raw_parts_mut(start.as_ptr(), capacity);
    // SAFETY: the caller ensures that this is a leaked box, of which it becomes the owner.
    unsafe { Box::from_raw(array) }
}

impl<T: ArrayElement> Drop for RentedArray<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.clear {
            clear(self.parts.start, self.parts.capacity);
        }
        match self.parts.claim.take() {
            Some(claim) => {
                if let Some(size) = self.pool.sizes.get(self.parts.class) {
                    size.give_back(claim);
                }
            }
            None => end_overflow(&self.pool, self.parts.start, self.parts.capacity),
        }
    }
}

/// Clears an array that is about to go back.
#[cold]
#[inline(never)]
fn clear<T: ArrayElement>(start: NonNull<T>, capacity: usize) {
    // SAFETY: `drop` passes the elements of its array, which nothing else reaches.
    let array = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), capacity) };
    array.fill(T::zeroed());
}

/// Frees an array in a box of its own.
#[cold]
#[inline(never)]
fn end_overflow<T: ArrayElement>(pool: &ArrayPoolState<T>, start: NonNull<T>, capacity: usize) {
    pool.ledger().forget(start.addr().get());
    // SAFETY: `drop` passes an array without a claim, which is the box that `overflow` leaked, and ends it.
    drop(unsafe { unbox(start, capacity) });
}

impl<T: ArrayElement> Deref for RentedArray<'_, T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` has `capacity` elements, at least `len`, and nothing else reaches them while this is borrowed.
        unsafe { std::slice::from_raw_parts(self.parts.start.as_ptr(), self.len) }
    }
}

impl<T: ArrayElement> DerefMut for RentedArray<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and this is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.parts.start.as_ptr(), self.len) }
    }
}

impl<T: ArrayElement + fmt::Debug> fmt::Debug for RentedArray<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RentedArray").field(&&**self).finish()
    }
}
