//! Steals from the caches of idle threads: implements [`steal::Array`] for a class of a cache, and the thief's part.
//!
//! Promises upward: [`Cache::steal_all`] empties the cache of a thread that sleeps for any length of time, and is safe
//! if the thread does not sleep. Owners lock their cache in slow paths ([`Cache::lock_owner`]); their fast paths pay
//! nothing.
//! Asks from below: [`os::barrier`]; where the system has none, nothing is stolen.

use super::cache::{Cache, Entry, Head, top};
use crate::class::{CAP, COUNT};
use crate::steal::{self, Array, Stolen};
use crate::{os, process};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;

/// The array of one class in a cache. The class must be below `COUNT`.
pub struct ClassArray<'a> {
    pub head: &'a Head,
    pub class: usize,
}

impl steal::Array for ClassArray<'_> {
    type At = *mut Entry;
    type Block = *mut u8;

    #[inline(always)]
    fn top(&self) -> *mut Entry {
        top(self.head, self.class).load(Relaxed)
    }

    #[inline(always)]
    fn lower(&self) {
        let top = top(self.head, self.class);
        top.store(top.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    #[inline(always)]
    fn below(at: *mut Entry) -> *mut Entry {
        at.wrapping_sub(1)
    }

    #[inline(always)]
    fn announce(&self, top: *mut Entry) {
        self.head.announced.store(top, Release);
    }

    fn announced(&self) -> *mut Entry {
        self.head.announced.load(Acquire)
    }

    #[inline(always)]
    fn load(&self, at: *mut Entry) -> Option<*mut u8> {
        // SAFETY: the entry is the floor's or lies above it, so it is inside the array.
        Some(unsafe { (*at).load(Relaxed) }).filter(|block| !block.is_null())
    }

    fn store(&self, at: *mut Entry, block: *mut u8) {
        // SAFETY: the entry is the floor's or lies above it, so it is inside the array.
        unsafe { (*at).store(block, Relaxed) };
    }

    fn take(&self, at: *mut Entry) -> Option<*mut u8> {
        // SAFETY: the entry is the floor's or lies above it, so it is inside the array.
        Some(unsafe { (*at).swap(core::ptr::null_mut(), Acquire) }).filter(|block| !block.is_null())
    }

    #[inline(always)]
    fn step(&self) {
        compiler_fence(SeqCst);
    }
}

/// The uppermost block, being stolen, of each class.
type All<'a> = [Option<Stolen<ClassArray<'a>>>; COUNT];

impl Cache {
    /// Locks the cache for its owner, or for a thread that found it spare, and settles contested blocks.
    ///
    /// A thread that forks gets `None`. It holds the lock of all caches already, without which no thread steals; and
    /// the fork would not release this lock.
    pub fn lock_owner(&self) -> Option<impl Drop + use<'_>> {
        let guard = (!process::is_forking_here()).then(|| self.lock.lock());
        // The owner has ended its last pop, so none is under way.
        self.head.announced.store(null_mut(), Release);
        if self.has_contested.swap(false, Relaxed) {
            (1..COUNT).for_each(|class| self.restore_contested(class));
        }
        guard
    }

    /// Settles the contested block of a class: restores it, unless the owner popped it.
    fn restore_contested(&self, class: usize) {
        let block = self.contested[class].swap(null_mut(), Relaxed);
        if block.is_null() {
            return;
        }
        let below = usize::from(self.contested_at[class].load(Relaxed));
        let entry = self.end(class).cast_mut().wrapping_sub(below);
        steal::restore(&self.array(class), &Stolen { entry, block });
    }

    fn array(&self, class: usize) -> ClassArray<'_> {
        ClassArray { head: &self.head, class }
    }

    /// Whether the owner seems idle: the tops of the cache have not changed since the last call.
    pub fn is_idle(&self) -> bool {
        let tops = (1..COUNT).map(|class| self.array(class).top().addr());
        let now = tops.fold(0usize, |sum, top| sum.rotate_left(7) ^ top);
        self.last_tops.swap(now, Relaxed) == now
    }

    /// Steals every block of the cache and passes the blocks of each class to `give`.
    ///
    /// `false`: nothing was begun, since the cache is empty, the owner is in a slow path, or a block is still
    /// contested.
    pub fn steal_all(&self, mut give: impl FnMut(usize, &[*mut u8])) -> bool {
        let Some(_guard) = self.lock.try_lock().filter(|_| !self.has_contested.load(Relaxed)) else { return false };
        let mut taken: All<'_> = [const { None }; COUNT];
        let begin = |class: usize| if self.cap(class) == 0 { None } else { steal::begin_steal(&self.array(class)) };
        (1..COUNT).for_each(|class| taken[class] = begin(class));
        if taken.iter().all(Option::is_none) {
            return false;
        }
        let has_barrier = os::barrier();
        for (class, taken) in taken.iter().enumerate() {
            let Some(taken) = taken else { continue };
            let below = (self.end(class).addr() - taken.entry.addr()) / size_of::<Entry>();
            if !has_barrier || !steal::finish_steal(&self.array(class), taken) {
                self.contested[class].store(taken.block, Relaxed);
                self.contested_at[class].store(below as u8, Relaxed);
                self.has_contested.store(true, Relaxed);
                continue;
            }
            let mut blocks = [null_mut(); CAP];
            let lower = (below + 1..=self.cap(class)).map(|below| self.entry(class, below).load(Acquire));
            let mut count = 0;
            for (to, block) in blocks.iter_mut().zip(lower.chain([taken.block])) {
                *to = block;
                count += 1;
            }
            // The null that replaced the uppermost block is the new floor.
            self.caps[class].store((below - 1) as u8, Relaxed);
            give(class, &blocks[..count]);
        }
        true
    }
}
