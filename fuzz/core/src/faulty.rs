//! Parts that go wrong now and then, when their bug is switched on.
//!
//! Promises upward: each is the part inside, exactly, when no bug is on.
//! Asks from below: the part inside.

use crate::bug;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use terrace_core::{Index, Region, Slot, Slots, Source, SourceError, SourceUsage, Violation};

/// An index that forgets, misses or overlooks.
///
/// - `range_loses_gap`: every 8th change of a gap makes it nothing.
/// - `range_misses_exact_fit`: a gap of exactly the size asked (5 granules and more) is not found.
/// - `range_ignores_alignment`: a gap is given in which the block does not fit once it is aligned.
#[derive(Debug)]
pub struct FaultyIndex<I> {
    inner: I,
    changes: u32,
}

impl<I> FaultyIndex<I> {
    /// Wraps an index.
    pub fn new(inner: I) -> Self {
        Self { inner, changes: 0 }
    }

    /// What becomes of a gap.
    fn kept(&mut self, gap: u32) -> u32 {
        self.changes += 1;
        if bug("range_loses_gap") && self.changes.is_multiple_of(8) { 0 } else { gap }
    }
}

/// What is asked inside instead of `size`.
fn asked(size: u32) -> u32 {
    if bug("range_misses_exact_fit") && size >= 5 { size + 1 } else { size }
}

impl<I: Index> Index for FaultyIndex<I> {
    fn cut_low(&self) -> bool {
        self.inner.cut_low()
    }

    fn room(&self) -> u32 {
        self.inner.room()
    }

    fn bytes(&self) -> (u64, u64) {
        self.inner.bytes()
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.inner.insert(slots, i);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.inner.remove(slots, i);
    }

    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        let gap = self.kept(gap);
        self.inner.update(slots, i, end, gap);
    }

    fn hand_over<S: Slots>(&mut self, slots: &mut S, from: u32, to: u32, end: u32, gap: u32) {
        let gap = self.kept(gap);
        self.inner.hand_over(slots, from, to, end, gap);
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let blind = bug("range_ignores_alignment");
        self.inner.find(slots, asked(size), slack, |slot| blind || fits(slot))
    }

    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let blind = bug("range_ignores_alignment");
        self.inner.find_exact(slots, asked(size), slack, |slot| blind || fits(slot))
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        self.inner.largest(slots)
    }

    fn largest_sure<S: Slots>(&self, slots: &S) -> u32 {
        self.inner.largest_sure(slots)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        self.inner.check(slots)
    }
}

/// Records in which, every 16th time they are written to, one is lost: it becomes empty again.
#[derive(Debug)]
pub struct Forgetful<T> {
    records: Vec<T>,
    bug: &'static str,
    writes: Cell<u32>,
    empty: fn() -> T,
}

impl<T> Forgetful<T> {
    /// `count` empty records, which are forgotten when `bug` is on.
    pub fn new(count: usize, bug: &'static str, empty: fn() -> T) -> Self {
        Self { records: (0..count).map(|_| empty()).collect(), bug, writes: Cell::new(0), empty }
    }

    fn written(&mut self) -> &mut [T] {
        if bug(self.bug) {
            self.writes.set(self.writes.get() + 1);
            if self.writes.get().is_multiple_of(16)
                && let Some(record) = self.records.get_mut(1)
            {
                *record = (self.empty)();
            }
        }
        &mut self.records
    }
}

impl<T> Deref for Forgetful<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.records
    }
}

impl<T> DerefMut for Forgetful<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.written()
    }
}

impl<T> AsRef<[T]> for Forgetful<T> {
    fn as_ref(&self) -> &[T] {
        &self.records
    }
}

impl<T> AsMut<[T]> for Forgetful<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self.written()
    }
}

/// A fixed source for fuzzing: regions one behind the other, up to a capacity.
///
/// - `pool_source_overlaps`, `arena_source_overlaps`: every fourth region begins inside the one before.
#[derive(Debug)]
pub struct FaultySource {
    usage: SourceUsage,
    out: Vec<Region>,
    next: u64,
    bug: &'static str,
}

impl FaultySource {
    /// A source of `capacity` bytes, whose regions overlap when `bug` is on.
    pub fn new(capacity: u64, bug: &'static str) -> Self {
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { usage, out: Vec::new(), next: 1 << 20, bug }
    }
}

impl Source for FaultySource {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let available = self.usage.capacity - self.usage.reserved;
        if bytes == 0 || bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.usage.calls += 1;
        self.usage.handles += 1;
        let back = if bug(self.bug) && self.usage.handles.is_multiple_of(4) { 4096 } else { 0 };
        let region = Region { id: self.usage.handles, base: self.next - back, bytes };
        // No two regions touch: the next one begins at a multiple of 4 KiB behind a free one.
        self.next = (region.base + bytes).next_multiple_of(4096) + if back == 0 && !bug(self.bug) { 4096 } else { 0 };
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        self.out.push(region);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let at = self.out.iter().position(|out| *out == region).ok_or(SourceError::Misuse("not out"))?;
        self.out.swap_remove(at);
        self.usage.calls += 1;
        self.usage.reserved -= region.bytes;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}
