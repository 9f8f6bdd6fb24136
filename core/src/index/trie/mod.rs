//! A binary trie of gaps, linked through their own slots.
//!
//! Promises upward: insert, remove and search walk down at most as many levels as the keys have bits: 32 by address, 60
//! by size in a bin; about log2 of the number of gaps when their places are not chosen to hurt. Nothing is balanced:
//! a gap comes and goes with one write each to its parent.
//! Asks from below: slots with room for branches; `link` and branch belong to the trie while a gap is in it.
//!
//! Every node holds a gap, as in the tree bins of Doug Lea's malloc: a gap hangs anywhere on the way that the bits of
//! its key spell from the root, 0 to the left and 1 to the right, and the first free place on that way is its own.
//! So all keys on a left side are below all keys on the right side beside it; the key of the node above both
//! may be anywhere.
//!
//! ```text
//!              0110            insert 0001: left of the root, left of 0011, and there is its place
//!            0/    \1          remove 0110: any leaf below it takes its place: 0001, 0011 or 1010
//!         0011      1010
//!        0/
//!      0001
//! ```
//!
//! Keys are addresses (first fit) or sizes, then addresses (best and worst fit): no two are equal. The trie by address
//! also keeps the largest gap at and below each node, so that "the lowest address that fits" is one walk down.

mod walk;

pub(crate) use walk::{at_or_after, check, first_fit, last};

use super::slot::{NONE, Slot, Slots};

/// A place in the order: granules, the size above the address.
pub(crate) type Key = u64;

/// What a trie is ordered by.
pub(crate) trait Order: Copy {
    /// Whether branches keep the largest gap at and below them.
    const LARGEST: bool;

    /// Where a gap is in the order.
    fn key(slot: &Slot) -> Key;

    /// The bits that spell the way to a key, the first one on top.
    fn way(self, key: Key) -> u64;
}

/// Where the gap ends: that stays when a block is cut from its low end. All addresses are below `2^width`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByAddress {
    pub width: u32,
}

impl Order for ByAddress {
    const LARGEST: bool = true;

    #[inline]
    fn key(slot: &Slot) -> Key {
        u64::from(slot.gap_end())
    }

    #[inline]
    fn way(self, key: Key) -> u64 {
        key << (64 - self.width)
    }
}

/// Size of the gap, then where it starts. All keys have their first `shared` bits in common.
#[derive(Clone, Copy)]
pub(crate) struct BySize {
    pub shared: u32,
}

impl Order for BySize {
    const LARGEST: bool = false;

    #[inline]
    fn key(slot: &Slot) -> Key {
        u64::from(slot.gap) << 32 | u64::from(slot.end)
    }

    #[inline]
    fn way(self, key: Key) -> u64 {
        key << self.shared
    }
}

/// What a trie keeps of a gap beside its record, in storage that the caller lends. 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct Branch {
    /// The largest gap at and below the node (kept in address order only).
    largest: u32,
    /// The node above; [`NONE`] for the root.
    parent: u32,
}

impl Branch {
    /// A branch of nothing.
    pub const EMPTY: Self = Self { largest: 0, parent: 0 };
}

/// A trie over some slots. It is its root, [`NONE`] when empty.
pub(crate) struct Trie<'a, S, O> {
    pub slots: &'a mut S,
    pub branches: &'a mut [Branch],
    pub order: O,
}

impl<S: Slots, O: Order> Trie<'_, S, O> {
    /// Adds a gap.
    #[inline]
    pub fn insert(&mut self, root: &mut u32, i: u32) {
        let record = self.slots.slot_mut(i);
        record.link = [NONE; 2];
        let gap = record.gap;
        let mut way = self.order.way(O::key(record));
        let (mut parent, mut at, mut side) = (NONE, *root, 0);
        while at != NONE {
            if O::LARGEST {
                let largest = &mut self.branches[at as usize].largest;
                *largest = (*largest).max(gap);
            }
            side = (way >> 63) as usize;
            way <<= 1;
            (parent, at) = (at, self.slots.slot(at).link[side]);
        }
        self.branches[i as usize] = Branch { largest: gap, parent };
        if parent == NONE {
            *root = i;
        } else {
            self.slots.slot_mut(parent).link[side] = i;
        }
    }

    /// Takes a gap out: a leaf below it, if there is one, takes its place.
    #[inline]
    pub fn remove(&mut self, root: &mut u32, i: u32) {
        let leaf = self.leaf(i);
        let above = self.branches[leaf as usize].parent;
        self.replace(root, above, leaf, NONE);
        if leaf != i {
            self.hand_over(root, i, leaf);
        }
        if O::LARGEST {
            self.refresh(if above == i { leaf } else { above }, if leaf == i { above } else { leaf });
        }
    }

    /// A node below `i` with none below it; `i` itself when it has none.
    #[inline]
    pub fn leaf(&self, i: u32) -> u32 {
        let mut leaf = i;
        loop {
            let [left, right] = self.slots.slot(leaf).link;
            let below = if right == NONE { left } else { right };
            if below == NONE {
                return leaf;
            }
            leaf = below;
        }
    }

    /// Replaces `from` by `to`, which must be in no trie.
    ///
    /// `to` takes over the gap of `from`, or becomes the leaf that `from` was.
    #[inline]
    pub fn hand_over(&mut self, root: &mut u32, from: u32, to: u32) {
        let link = self.slots.slot(from).link;
        let branch = self.branches[from as usize];
        self.replace(root, branch.parent, from, to);
        self.slots.slot_mut(to).link = link;
        self.branches[to as usize] = branch;
        for child in link.into_iter().filter(|&child| child != NONE) {
            self.branches[child as usize].parent = to;
        }
    }

    /// Puts `new` where `old` hangs below `parent`, which is [`NONE`] for the root.
    #[inline]
    fn replace(&mut self, root: &mut u32, parent: u32, old: u32, new: u32) {
        if parent == NONE {
            *root = new;
        } else {
            let link = &mut self.slots.slot_mut(parent).link;
            link[usize::from(link[1] == old)] = new;
        }
    }

    /// Recomputes the largest gaps from `at` up to the root: to `least`, and on while they change.
    pub fn refresh(&mut self, mut at: u32, least: u32) {
        let mut passed = false;
        while at != NONE {
            passed |= at == least;
            let Slot { gap, link: [left, right], .. } = *self.slots.slot(at);
            let now = gap.max(largest(self.branches, left)).max(largest(self.branches, right));
            let Branch { largest, parent } = &mut self.branches[at as usize];
            if core::mem::replace(largest, now) == now && passed {
                return;
            }
            at = *parent;
        }
    }
}

/// The largest gap at and below a node, 0 when there is none (in order of address).
pub(crate) fn largest(branches: &[Branch], i: u32) -> u32 {
    if i == NONE { 0 } else { branches[i as usize].largest }
}
