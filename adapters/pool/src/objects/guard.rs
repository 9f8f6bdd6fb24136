//! An object that is out: a guard that returns it when dropped.

use super::inner::{ObjectPoolState, Out};
use super::slots::SlotClaim;
use crate::pool_ref::PoolRef;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An object of a pool, which goes back when this is dropped.
///
/// One that borrows the pool costs nothing more; [`get_owned`](super::ObjectPool::get_owned) returns one that lives as long as its
/// holder likes (`PooledObject<'static, T>`), also after the pool's handles are gone. It can be sent to another thread, and
/// goes back from there.
pub struct PooledObject<'a, T> {
    home: PoolRef<'a, ObjectPoolState<T>>,
    /// `None` only inside `into_inner` and `drop`.
    claim: Option<SlotClaim>,
    /// Points into the claim's slot.
    object: NonNull<T>,
    /// The guard is to its object as a unique reference is.
    unique: PhantomData<&'a mut T>,
}

// SAFETY: the guard is the only way to its object, as `&mut T` would be, and its pool is shared between threads for `T: Send`.
unsafe impl<T: Send> Send for PooledObject<'_, T> {}
// SAFETY: through a shared guard threads get `&T` only.
unsafe impl<T: Send + Sync> Sync for PooledObject<'_, T> {}

impl<'a, T> PooledObject<'a, T> {
    #[inline(always)]
    pub(super) fn new(home: PoolRef<'a, ObjectPoolState<T>>, (claim, object): Out<T>) -> Self {
        Self { home, claim: Some(claim), object, unique: PhantomData }
    }

    /// Takes the object out of the pool, which may make another one in its place.
    pub fn into_inner(mut self) -> T {
        let claim = self.claim.take();
        claim.map_or_else(|| unreachable!("a guard has its claim until it ends"), |claim| self.home.detach(claim))
    }

    /// Drops the object instead of returning it, because it is broken, for example.
    ///
    /// The pool may make another one in its place.
    pub fn discard(mut self) {
        if let Some(claim) = self.claim.take() {
            self.home.discard(claim);
        }
    }
}

impl<T> Drop for PooledObject<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.home.give_back(claim);
        }
    }
}

impl<T> Deref for PooledObject<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer comes from the claim's slot, which nothing else reaches while the guard has the claim.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for PooledObject<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `self` is borrowed uniquely.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PooledObject<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PooledObject").field(&**self).finish()
    }
}
