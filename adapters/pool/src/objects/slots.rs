//! The objects of a pool, each in a slot that one holder at a time may reach.
//!
//! Promises upward: a [`SlotClaim`] is the only way to an object; the holder of a slot sees what its last holder did.
//! Asks from below: [`Places`](crate::places::Places), by which a slot has one holder.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// The right to one slot of one pool; not a copy, so that a slot has one.
#[derive(Debug)]
pub struct SlotClaim(u32);

impl SlotClaim {
    /// Claims a slot.
    ///
    /// # Safety
    /// The caller must have taken `slot` from the [`Places`](crate::places::Places) of the pool in whose [`ObjectSlots`] it will
    /// use the claim, and must give it back there only by way of [`release`](Self::release).
    pub unsafe fn of(slot: u32) -> Self {
        Self(slot)
    }

    /// The number of the slot, which the claim still holds.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.0
    }

    /// The number of the slot, to be given back.
    pub fn release(self) -> u32 {
        self.0
    }
}

/// One slot: a cache line of its own, so that threads that use neighbours do not write the same line.
#[repr(align(64))]
struct ObjectSlot<T>(UnsafeCell<Option<T>>);

/// Room for the objects of a pool.
pub struct ObjectSlots<T> {
    slots: Box<[ObjectSlot<T>]>,
}

// SAFETY: threads reach an object by a claim only, one at a time, so that it moves between threads and is never shared.
unsafe impl<T: Send> Sync for ObjectSlots<T> {}

impl<T> ObjectSlots<T> {
    /// Empty slots.
    pub fn new(most: u32) -> Self {
        Self { slots: (0..most).map(|_| ObjectSlot(UnsafeCell::new(None))).collect() }
    }

    /// The slot of a claim, for as long as the claim is borrowed.
    #[inline(always)]
    pub fn at<'a>(&'a self, claim: &'a mut SlotClaim) -> &'a mut Option<T> {
        let slot = &self.slots[claim.0 as usize];
        // SAFETY: the claim is the only one to this slot, and is borrowed as long as the reference lives.
        unsafe { &mut *slot.0.get() }
    }

    /// The object of a claim, to be used as long as the claim is held.
    #[inline(always)]
    pub fn object(&self, claim: &mut SlotClaim) -> Option<NonNull<T>> {
        self.at(claim).as_mut().map(NonNull::from)
    }
}
