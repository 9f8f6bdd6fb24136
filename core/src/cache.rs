//! A cache of freed items by owner and exact size: an owner reuses its own items at once.
//!
//! Promises upward: `put` and `get` in constant time, a few dozen instructions, no atomic, no lock; `put` keeps to the
//! caps.
//! Asks from below: storage that the caller lends: bins, in sets of four, and entries.
//!
//! Programs repeat sizes exactly, so a bin is for one (owner, size) pair, and sizes are not rounded. The bins are a
//! 4-way set-associative hash table: items of a pair whose set is full of other pairs are not cached.
//!
//! ```text
//! (owner, size) --hash--> bins  [ 0 | 7,64K | 0 | 0,512 | ... ]
//!                                       |           |
//!                                       v           v
//! entries                             e9 -> e2     e4        last in, first out
//! ```

use core::ops::DerefMut;

use crate::allocator::Owner;
use crate::error::{Violation, ensure};
use crate::index::NONE;
use crate::pressure::{CachePolicy, CapAdvice};

/// Number of bins in a set: four bins of 16 bytes are a cache line.
const WAYS: usize = 4;

/// The list of the cached items of one owner and one size.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Bin {
    /// The owner (high half) and the size in granules (low half); 0 in a bin never used, since no item has size 0.
    key: u64,
    /// Number of items in the list; at 0 another (owner, size) pair may claim the bin.
    count: u32,
    /// Index of the first entry; meaningless when `count` is 0.
    head: u32,
}

const _: () = assert!(size_of::<Bin>() * WAYS == 64, "the places of a pair share a cache line");

impl Bin {
    /// An unused bin.
    pub const EMPTY: Self = Self { key: 0, count: 0, head: NONE };

    #[inline]
    const fn key_of(owner: Owner, size: u32) -> u64 {
        (owner.0 as u64) << 32 | size as u64
    }

    const fn owner(&self) -> Owner {
        Owner((self.key >> 32) as u32)
    }

    #[inline]
    const fn size(&self) -> u32 {
        self.key as u32
    }
}

/// One cached item.
#[derive(Clone, Copy, Debug)]
pub struct Entry<T> {
    item: Option<T>,
    /// Index of the next entry: in the bin's list, or in the list of unused entries.
    next: u32,
}

impl<T> Entry<T> {
    /// An unused entry.
    pub const EMPTY: Self = Self { item: None, next: NONE };
}

/// A cache of items `T` (blocks, spans, buffers) by owner and exact size.
///
/// # Example
/// ```
/// use terrace_core::{Bin, Cache, Entry, Owner};
/// let mut cache = Cache::new([Bin::EMPTY; 16].to_vec(), [Entry::EMPTY; 8].to_vec(), 8);
/// assert_eq!(cache.put(Owner(1), 4096, "a"), Ok(()));
/// assert_eq!(cache.get(Owner(2), 4096), None, "another owner's");
/// assert_eq!(cache.get(Owner(1), 4096), Some("a"));
/// ```
#[derive(Clone, Debug)]
pub struct Cache<B, E> {
    bins: B,
    entries: E,
    /// Entries at this index and above were never used.
    fresh: u32,
    /// Index of the first entry in the list of unused entries.
    spare: u32,
    /// Maximum number of items in a bin.
    pooled_per_bucket: u32,
    /// Maximum number of granules in all bins; an item that would exceed it is refused.
    cap: u64,
    /// Number of granules in all bins: the sum of `count * size`.
    held: u64,
    /// Number of items in all bins.
    count: u32,
}

impl<T: Copy, B: DerefMut<Target = [Bin]>, E: DerefMut<Target = [Entry<T>]>> Cache<B, E> {
    /// An empty cache for at most `pooled_per_bucket` items of each owner and size. Bins are used in fours.
    pub fn new(bins: B, entries: E, pooled_per_bucket: u32) -> Self {
        Self { bins, entries, fresh: 0, spare: NONE, pooled_per_bucket, cap: u64::MAX, held: 0, count: 0 }
    }

    /// Number of granules held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Number of items held.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of the lent storage, used or not.
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.bins) + size_of_val(&*self.entries)) as u64
    }

    /// Maximum number of granules in all bins.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Sets the cap on granules. If more are cached already, they stay until they are taken or drained.
    pub fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// Sets the maximum number of items of one owner and size.
    pub fn set_pooled_per_bucket(&mut self, pooled_per_bucket: u32) {
        self.pooled_per_bucket = pooled_per_bucket;
    }

    /// Adapts the cap to pressure: by default it shrinks above 80 % in use and grows below 30 %.
    ///
    /// Each step is by a factor of 1.5. The bounds of [`CachePolicy`] are in granules here, as the cap is. An unlimited
    /// cap counts as the granules held.
    pub fn adapt(&mut self, policy: &CachePolicy, used: u64, capacity: u64) {
        let cap = if self.cap == u64::MAX { self.held } else { self.cap }.max(1);
        match policy.advise(used, capacity, cap) {
            CapAdvice::Keep => {}
            CapAdvice::Shrink(to) => self.cap = to,
            CapAdvice::Grow(to) => self.cap = self.cap.max(to),
        }
    }

    /// Index of the first bin in the set of an (owner, size) pair.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let lines = self.bins.len() / WAYS;
        // Fibonacci hashing (Knuth, 6.4): the high bits of a product with 2^64 / golden ratio.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((hash >> 32) * lines as u64) >> 32) as usize * WAYS
    }

    /// Index of the bin of an (owner, size) pair, if its set has one (possibly empty, but not yet claimed by another
    /// pair).
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let place = self.place(key);
        let line = self.bins.get(place..place + WAYS)?;
        Some(place + line.iter().position(|bin| bin.key == key)?)
    }

    /// Claims an empty bin for an (owner, size) pair that has none; `None` if no bin of the pair's set is empty.
    #[cold]
    fn settle(&mut self, key: u64) -> Option<usize> {
        let place = self.place(key);
        let line = self.bins.get(place..place + WAYS)?;
        let free = place + line.iter().position(|bin| bin.count == 0)?;
        self.bins[free] = Bin { key, count: 0, head: NONE };
        Some(free)
    }

    /// Caches an item of `size` granules for its owner.
    ///
    /// # Errors
    /// The item itself, when a cap is reached or no bin or entry is free.
    #[inline]
    pub fn put(&mut self, owner: Owner, size: u32, item: T) -> Result<(), T> {
        if self.held + u64::from(size) > self.cap || self.pooled_per_bucket == 0 {
            return Err(item);
        }
        let key = Bin::key_of(owner, size);
        let Some(at) = self.find(key).or_else(|| self.settle(key)) else { return Err(item) };
        if self.bins[at].count >= self.pooled_per_bucket {
            return Err(item);
        }
        let Some(entry) = self.take_entry() else { return Err(item) };
        let bin = &mut self.bins[at];
        self.entries[entry as usize] = Entry { item: Some(item), next: bin.head };
        bin.head = entry;
        bin.count += 1;
        self.held += u64::from(size);
        self.count += 1;
        Ok(())
    }

    /// Takes the item of exactly this size that the owner put last.
    #[inline]
    pub fn get(&mut self, owner: Owner, size: u32) -> Option<T> {
        let at = self.find(Bin::key_of(owner, size))?;
        self.pop(at)
    }

    #[inline]
    fn pop(&mut self, at: usize) -> Option<T> {
        let bin = &mut self.bins[at];
        if bin.count == 0 {
            return None;
        }
        let i = bin.head;
        let entry = &mut self.entries[i as usize];
        let item = entry.item.take();
        bin.head = core::mem::replace(&mut entry.next, self.spare);
        bin.count -= 1;
        self.spare = i;
        self.held -= u64::from(bin.size());
        self.count -= 1;
        item
    }

    #[inline]
    fn take_entry(&mut self) -> Option<u32> {
        let i = self.spare;
        if i != NONE {
            self.spare = self.entries[i as usize].next;
            return Some(i);
        }
        let fresh = self.fresh;
        self.entries.get(fresh as usize)?;
        self.fresh += 1;
        Some(fresh)
    }

    /// Removes all items whose owner and size `which` selects, and passes each to `to`.
    ///
    /// O(bins + items taken).
    pub fn drain(&mut self, mut which: impl FnMut(Owner, u32) -> bool, mut to: impl FnMut(Owner, u32, T)) {
        for at in 0..self.bins.len() {
            let bin = self.bins[at];
            if bin.count == 0 || !which(bin.owner(), bin.size()) {
                continue;
            }
            while let Some(item) = self.pop(at) {
                to(bin.owner(), bin.size(), item);
            }
        }
    }

    /// Removes one item of a bin at or after `from`; returns the bin to continue from, and the item.
    ///
    /// For callers that cannot drain with a closure.
    pub fn take_any(&mut self, from: usize) -> Option<(usize, Owner, u32, T)> {
        let at = from + self.bins.get(from..)?.iter().position(|bin| bin.count > 0)?;
        let bin = self.bins[at];
        self.pop(at).map(|item| (at, bin.owner(), bin.size(), item))
    }

    /// Checks every list. O(bins + entries).
    ///
    /// # Errors
    /// The first clause that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        let (mut held, mut count) = (0u64, 0u64);
        for (at, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
            let place = self.place(bin.key);
            ensure((place..place + WAYS).contains(&at), "a bin is in one of the places of its pair", at)?;
            held += u64::from(bin.count) * u64::from(bin.size());
            count += u64::from(bin.count);
            let mut entry = bin.head;
            for _ in 0..bin.count {
                ensure(entry < self.fresh, "a bin has as many entries as it counts", at)?;
                ensure(self.entries[entry as usize].item.is_some(), "an entry in a bin holds an item", entry)?;
                entry = self.entries[entry as usize].next;
            }
        }
        let (mut spare, mut unused) = (self.spare, 0);
        while spare != NONE && unused <= self.fresh {
            ensure(self.entries[spare as usize].item.is_none(), "a spare entry holds nothing", spare)?;
            (spare, unused) = (self.entries[spare as usize].next, unused + 1);
        }
        ensure(held == self.held, "held is the sum of all bins", held)?;
        ensure(count == u64::from(self.count), "count is the number of items in all bins", count)?;
        ensure(count + u64::from(unused) == u64::from(self.fresh), "an entry is used or spare", unused)
    }
}
