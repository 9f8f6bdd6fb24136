//! A pool without its handles: how an object leaves it and comes back.
//!
//! Promises upward: at most `most` objects exist; an object is out once; a call that fails changes nothing; functions that the
//! pool's maker supplied, and destructors, run without a lock, and their panics go no further.
//! Asks from below: [`Places`] says which slot; [`ObjectSlots`] holds what is in it; [`WaitingPool`] is the queue of waiters.
//!
//! A thread that made a slot available looks for waiters after it; a waiter looks for available slots after it joined the
//! queue; between the two lies the barrier of [`barrier`]. So one of them sees the other.

use super::error::ObjectError;
use super::hooks::{Hooks, destroy};
use super::maintenance::History;
use super::slot_allocator::{SlotAllocator, origin};
use super::slots::{ObjectSlots, SlotClaim};
use super::stats::{ObjectCounters, ObjectStats, count};
use crate::barrier;
use crate::front::Front;
use crate::places::{Places, SlotOrigin};
use crate::waiting::WaitingPool;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_core::Block;

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolBounds {
    /// Objects that maintenance leaves, or makes.
    pub least: u32,
    /// Objects that may exist.
    pub most: u32,
    /// Idle objects that maintenance leaves.
    pub keep: u32,
    /// How long an object stays idle before maintenance drops it.
    pub idle: Option<Duration>,
}

/// A pool, shared by its handles and by the guards that own a reference to it.
pub struct ObjectPoolState<T> {
    pub(super) places: Arc<Places>,
    pub(super) slots: ObjectSlots<T>,
    pub(super) hooks: Hooks<T>,
    pub(super) bounds: PoolBounds,
    pub(super) waiters: WaitingPool<SlotAllocator>,
    pub(super) counters: ObjectCounters,
    pub(super) history: Mutex<History>,
}

/// An object that left its pool: its claim, and where it is.
pub type Out<T> = (SlotClaim, NonNull<T>);

impl<T> ObjectPoolState<T> {
    /// The object that this thread returned last, if it may have it at once: most gets end here.
    #[inline(always)]
    pub fn take_own(&self) -> Option<Out<T>> {
        let front = self.places.own_front()?;
        let slot = front.pop()?;
        barrier::light();
        if self.is_attended() {
            self.pass_on(slot);
            return None;
        }
        Front::count(&front.hits);
        // SAFETY: `pop` took `slot` from `places`; the claim is released there, or passed on to the caller.
        let mut claim = unsafe { SlotClaim::of(slot) };
        if self.hooks.validate.is_some() && !self.is_valid(&mut claim) {
            self.refuse(claim);
            return None;
        }
        self.slots.object(&mut claim).map(|object| (claim, object))
    }

    /// Drops an object that the validation refused.
    #[cold]
    fn refuse(&self, claim: SlotClaim) {
        count(&self.counters.invalid);
        self.drop_object(claim);
        self.settle_if_asked();
    }

    /// Drops the object of a claim; only then may another one take its place.
    fn drop_object(&self, mut claim: SlotClaim) {
        destroy(self.slots.at(&mut claim).take());
        self.places.put_vacant(claim.release());
    }

    /// Whether the pool is closed, or calls wait: then slots go to where all threads find them.
    #[inline(always)]
    fn is_attended(&self) -> bool {
        self.places.is_closed() || self.waiters.has_waiters()
    }

    /// Gives a slot to those that wait for one.
    #[cold]
    fn pass_on(&self, slot: u32) {
        self.places.put(slot, false);
        self.settle();
    }

    /// An object, without waiting.
    #[inline(always)]
    pub fn take(&self) -> Result<Out<T>, ObjectError> {
        match self.take_own() {
            Some(object) => Ok(object),
            None => self.take_other(),
        }
    }

    /// An object that the thread has not returned last; a refusal for lack of objects counts.
    #[cold]
    #[inline(never)]
    pub fn take_other(&self) -> Result<Out<T>, ObjectError> {
        let taken = self.take_uncounted();
        if let Err(ObjectError::Exhausted { .. }) = taken {
            count(&self.counters.exhausted);
        }
        taken
    }

    /// As [`take_other`](Self::take_other), for calls that wait when they are refused.
    pub fn take_uncounted(&self) -> Result<Out<T>, ObjectError> {
        if self.places.is_closed() {
            return Err(ObjectError::Closed);
        }
        let exhausted = ObjectError::Exhausted { most: self.bounds.most };
        if self.waiters.has_waiters() {
            return Err(exhausted);
        }
        let taken = self.places.take();
        // A waiter may have found the fronts closed by this thread.
        self.settle_if_asked();
        let (slot, origin) = taken.ok_or(exhausted)?;
        self.admit(slot, origin)
    }

    /// The object of a slot that the queue granted.
    pub fn granted(&self, block: &Block) -> Result<Out<T>, ObjectError> {
        self.admit(block.slot, origin(block))
    }

    /// The object in a slot, if it is valid; otherwise a new one. On failure the slot is vacant.
    fn admit(&self, slot: u32, origin: SlotOrigin) -> Result<Out<T>, ObjectError> {
        match origin {
            SlotOrigin::Shared => count(&self.counters.shared_hits),
            SlotOrigin::Front => count(&self.counters.steals),
            SlotOrigin::Vacant => {}
        }
        // SAFETY: the caller took `slot` from `places`; every path below gives the claim on, or releases it there.
        let mut claim = unsafe { SlotClaim::of(slot) };
        if let Some(object) = self.slots.object(&mut claim)
            && (self.hooks.validate.is_none() || self.is_valid(&mut claim))
        {
            return Ok((claim, object));
        }
        self.replace(claim)
    }

    /// Whether the validation admits the object of a claim. One for which it panics is refused.
    #[inline(never)]
    fn is_valid(&self, claim: &mut SlotClaim) -> bool {
        self.slots.at(claim).as_ref().is_some_and(|object| self.hooks.is_valid(object).unwrap_or(false))
    }

    /// Makes a new object in a slot, in place of one that the validation refused.
    #[cold]
    #[inline(never)]
    fn replace(&self, mut claim: SlotClaim) -> Result<Out<T>, ObjectError> {
        if let Some(refused) = self.slots.at(&mut claim).take() {
            count(&self.counters.invalid);
            destroy(refused);
        }
        match self.hooks.fresh() {
            Ok(object) => {
                count(&self.counters.made);
                let object = NonNull::from(self.slots.at(&mut claim).insert(object));
                Ok((claim, object))
            }
            Err(error) => {
                count(&self.counters.failed);
                self.vacate(claim);
                Err(error)
            }
        }
    }

    /// Makes an object in a vacant slot that the caller took, and leaves it idle.
    pub(super) fn fill(&self, slot: u32) -> Result<(), ObjectError> {
        let (claim, _) = self.admit(slot, SlotOrigin::Vacant)?;
        self.leave_idle(claim);
        Ok(())
    }

    /// Takes the object of a claim out of the pool.
    pub fn detach(&self, mut claim: SlotClaim) -> T {
        let object = self.slots.at(&mut claim).take();
        count(&self.counters.detached);
        self.vacate(claim);
        object.unwrap_or_else(|| unreachable!("a slot that is out holds its object"))
    }

    /// Drops the object of a claim in place of its return.
    pub fn discard(&self, claim: SlotClaim) {
        count(&self.counters.detached);
        self.drop_object(claim);
        self.settle_if_asked();
    }

    /// Adds an object from elsewhere.
    pub fn put(&self, object: T) -> Result<(), T> {
        if self.places.is_closed() {
            return Err(object);
        }
        let Some(slot) = self.places.take_vacant() else { return Err(object) };
        // SAFETY: the caller took `slot` from `places`; `leave_idle` releases it there.
        let mut claim = unsafe { SlotClaim::of(slot) };
        *self.slots.at(&mut claim) = Some(object);
        self.leave_idle(claim);
        Ok(())
    }

    /// Gives a slot with an object to all threads.
    fn leave_idle(&self, claim: SlotClaim) {
        self.places.put(claim.release(), false);
        self.settle_if_asked();
    }

    /// Gives an empty slot back, to be filled by another call.
    #[cold]
    pub(super) fn vacate(&self, claim: SlotClaim) {
        self.places.put_vacant(claim.release());
        self.settle_if_asked();
    }

    /// Takes the object of a claim back.
    ///
    /// A function of its own, as its callers are destructors: those are inlined then, and guards stay in registers.
    #[inline(never)]
    pub fn give_back(&self, mut claim: SlotClaim) {
        if self.hooks.reset.is_some() && !self.reset(&mut claim) {
            return self.vacate(claim);
        }
        // While others wait, an object goes to where their queue looks first.
        self.places.put(claim.release(), !self.waiters.has_waiters());
        self.settle_if_asked();
    }

    /// Resets the object of a claim; false: the reset panicked, and the object was dropped.
    #[inline(never)]
    fn reset(&self, claim: &mut SlotClaim) -> bool {
        let slot = self.slots.at(claim);
        if slot.as_mut().is_none_or(|object| self.hooks.reset(object)) {
            return true;
        }
        count(&self.counters.reset_panics);
        destroy(slot.take());
        false
    }

    /// Serves waiters, or empties the pool once it is closed, after a slot became available.
    #[inline(always)]
    pub(super) fn settle_if_asked(&self) {
        barrier::light();
        if self.is_attended() {
            self.settle();
        }
    }

    /// Serves waiters; empties the pool once it is closed. A waker's panic goes no further.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self) {
        terrace_guard::catch_panic(|| self.waiters.serve());
        if self.places.is_closed() {
            self.empty();
        }
    }

    /// Refuses further gets, wakes all waiters with an error, and drops all idle objects.
    pub fn close(&self) {
        self.places.close();
        // Without it, slots that come back at this moment stay until the next return or the end.
        let _ = barrier::heavy();
        self.settle();
    }

    /// Drops all idle objects.
    fn empty(&self) {
        while let Some(slot) = self.places.take_idle() {
            self.drop_idle(slot);
        }
    }

    /// Drops the object of an idle slot that the caller took.
    pub(super) fn drop_idle(&self, slot: u32) {
        // SAFETY: the caller took `slot` from `places`, to which `drop_object` gives it back.
        self.drop_object(unsafe { SlotClaim::of(slot) });
    }

    /// The counters as of now.
    pub fn stats(&self) -> ObjectStats {
        let mut stats = self.counters.snapshot();
        for front in self.places.fronts() {
            stats.front_hits += front.hits.load(Ordering::Relaxed);
        }
        stats.idle = self.places.idle_count();
        stats.existing = self.places.existing();
        stats.most = self.bounds.most;
        stats.waiting = self.waiters.waiting();
        stats
    }
}

impl<T> Drop for ObjectPoolState<T> {
    fn drop(&mut self) {
        self.empty();
    }
}
