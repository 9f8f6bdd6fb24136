//! Best, worst and first fit: trees, everything in O(log n), nothing scanned.
//!
//! Best and worst fit keep a tree for each bin, so that most searches start a few levels from the answer; first fit
//! keeps one tree by address. With alignments above a granule a search may pass over gaps that are long enough but
//! badly placed: only gaps shorter than size + alignment can be, and each costs O(log n).

use core::ops::DerefMut;

use super::slot::{NONE, Slot, Slots};
use super::tree::{self, Branch, Key, Order, Tree};
use super::{Index, MAX_SLOTS};
use crate::bins::{BINS, Bitmap, bin_start, floor_bin};
use crate::error::{Violation, ensure};

/// Gaps by size: a tree for each bin.
#[derive(Clone, Debug)]
struct Sizes<B> {
    branches: B,
    /// Bit `b` is set iff `roots[b]` is not [`NONE`].
    map: Bitmap,
    roots: [u32; BINS],
}

impl<B: DerefMut<Target = [Branch]>> Sizes<B> {
    const fn new(branches: B) -> Self {
        Self { branches, map: Bitmap::new(), roots: [NONE; BINS] }
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        let bin = floor_bin(slots.slot(i).gap);
        let mut tree = Tree { slots, branches: &mut self.branches, order: Order::Size };
        tree.insert(&mut self.roots[bin as usize], i);
        self.map.set(bin);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        let bin = floor_bin(slots.slot(i).gap);
        let root = &mut self.roots[bin as usize];
        Tree { slots, branches: &mut self.branches, order: Order::Size }.remove(root, i);
        if *root == NONE {
            self.map.clear(bin);
        }
    }

    /// The first gap at or after a place in the order of sizes.
    fn at_or_after<S: Slots>(&self, slots: &S, from: Key) -> Option<u32> {
        let bin = floor_bin((from >> 32) as u32);
        let found = tree::at_or_after(slots, self.roots[bin as usize], from);
        if found != NONE {
            return Some(found);
        }
        let next = self.map.next(bin + 1)?;
        Some(tree::at_or_after(slots, self.roots[next as usize], 0))
    }

    /// The smallest gap that fits.
    fn smallest<S: Slots>(&self, slots: &S, size: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let mut from = Key::from(size) << 32;
        loop {
            let found = self.at_or_after(slots, from)?;
            let post = slots.slot(found);
            if fits(post) {
                return Some(found);
            }
            from = Order::Size.key(post) + 1;
        }
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let root = self.roots[self.map.last()? as usize];
        let gap = slots.slot(tree::last(slots, root)).gap;
        Some(tree::at_or_after(slots, root, Key::from(gap) << 32))
    }

    fn bytes(&self) -> (u64, u64) {
        (size_of::<Self>() as u64, size_of::<Branch>() as u64)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        let mut seen = 0;
        for (bin, &root) in self.roots.iter().enumerate() {
            ensure(self.map.is_set(bin as u32) == (root != NONE), "a bin's bit is set iff it holds something", bin)?;
            let end = if bin + 1 == BINS { Key::MAX } else { Key::from(bin_start(bin as u32 + 1)) << 32 };
            let keys = (Key::from(bin_start(bin as u32)) << 32, end);
            seen += tree::check(slots, &self.branches, Order::Size, root, keys)?;
        }
        Ok(seen)
    }
}

/// Best fit: the smallest gap that fits, the lowest of equals.
#[derive(Clone, Debug)]
pub struct BestFit<B>(Sizes<B>);

impl<B: DerefMut<Target = [Branch]>> BestFit<B> {
    /// An empty index over lent branches, one for each slot.
    pub const fn new(branches: B) -> Self {
        Self(Sizes::new(branches))
    }
}

impl<B: DerefMut<Target = [Branch]>> Index for BestFit<B> {
    const CUT_LOW: bool = true;

    fn room(&self) -> u32 {
        self.0.branches.len().min(MAX_SLOTS as usize) as u32
    }

    fn bytes(&self) -> (u64, u64) {
        self.0.bytes()
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.0.insert(slots, i);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.0.remove(slots, i);
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, _: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        self.0.smallest(slots, size, fits)
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        self.0.largest(slots)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        self.0.check(slots)
    }
}

/// Worst fit: the largest gap, the lowest of equals. When alignment rules that one out, the smallest that fits.
#[derive(Clone, Debug)]
pub struct WorstFit<B>(Sizes<B>);

impl<B: DerefMut<Target = [Branch]>> WorstFit<B> {
    /// An empty index over lent branches, one for each slot.
    pub const fn new(branches: B) -> Self {
        Self(Sizes::new(branches))
    }
}

impl<B: DerefMut<Target = [Branch]>> Index for WorstFit<B> {
    const CUT_LOW: bool = false;

    fn room(&self) -> u32 {
        self.0.branches.len().min(MAX_SLOTS as usize) as u32
    }

    fn bytes(&self) -> (u64, u64) {
        self.0.bytes()
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.0.insert(slots, i);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.0.remove(slots, i);
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, _: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let largest = self.0.largest(slots)?;
        let post = slots.slot(largest);
        if post.gap < size {
            return None;
        }
        if fits(post) { Some(largest) } else { self.0.smallest(slots, size, fits) }
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        self.0.largest(slots)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        self.0.check(slots)
    }
}

/// First fit: the lowest address that fits.
#[derive(Clone, Debug)]
pub struct FirstFit<B> {
    branches: B,
    root: u32,
}

impl<B: DerefMut<Target = [Branch]>> FirstFit<B> {
    /// An empty index over lent branches, one for each slot.
    pub const fn new(branches: B) -> Self {
        Self { branches, root: NONE }
    }
}

impl<B: DerefMut<Target = [Branch]>> Index for FirstFit<B> {
    const CUT_LOW: bool = true;

    fn room(&self) -> u32 {
        self.branches.len().min(MAX_SLOTS as usize) as u32
    }

    fn bytes(&self) -> (u64, u64) {
        (size_of::<Self>() as u64, size_of::<Branch>() as u64)
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        Tree { slots, branches: &mut self.branches, order: Order::Address }.insert(&mut self.root, i);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        Tree { slots, branches: &mut self.branches, order: Order::Address }.remove(&mut self.root, i);
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, _: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let mut from = 0;
        loop {
            let found = tree::first_fit(slots, &self.branches, self.root, size, from);
            if found == NONE {
                return None;
            }
            let post = slots.slot(found);
            if fits(post) {
                return Some(found);
            }
            from = Order::Address.key(post) + 1;
        }
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let gap = tree::largest(&self.branches, self.root);
        (gap > 0).then(|| tree::first_fit(slots, &self.branches, self.root, gap, 0))
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        tree::check(slots, &self.branches, Order::Address, self.root, (0, Key::MAX))
    }
}
