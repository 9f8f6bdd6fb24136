//! A binary trie of gaps, linked through their own slots.
//!
//! Promises upward: insert, remove and search descend at most as many levels as the keys have bits: 32 by address, 60 by
//! size in a bin; about log2 of the number of gaps if no adversary chose them. There is no balancing: adding
//! a gap writes one link of its parent, removing one moves at most a leaf.
//! Asks from below: a branch for each slot; while a gap is in the trie, only the trie writes its `link` and branch.
//!
//! Every node is a gap, as in the tree bins of Doug Lea's malloc. The bits of its key are a path from the root, 0 to the
//! left and 1 to the right; a gap is inserted at the first free link on its path. So all keys in a left subtree are below
//! all keys in the right subtree beside it; the key of the node above both may be anything.
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

/// A key: an address in granules, or a size in granules in the high half and an address in the low half.
pub(crate) type Key = u64;

/// The key order of a trie.
pub(crate) trait Order: Copy {
    /// Whether branches store the size of the largest gap in their subtree.
    const LARGEST: bool;

    /// The key of a gap.
    fn key(slot: &Slot) -> Key;

    /// The path to a key: the bits in which keys of the trie differ, the first one as the top bit.
    fn path(self, key: Key) -> u64;
}

/// Order by the end of the gap, which stays when a block is cut from the gap's low end. All addresses are below
/// `2^width`.
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
    fn path(self, key: Key) -> u64 {
        key << (64 - self.width)
    }
}

/// Order by the size of the gap, then by its start. All keys of a trie share their first `shared` bits.
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
    fn path(self, key: Key) -> u64 {
        key << self.shared
    }
}

/// The trie's own record of a gap, 8 bytes in storage that the caller lends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct Branch {
    /// Size of the largest gap in the node's subtree (in address order only).
    largest: u32,
    /// Index of the parent; [`NONE`] for the root.
    parent: u32,
}

impl Branch {
    /// An unused branch.
    pub const EMPTY: Self = Self { largest: 0, parent: 0 };
}

/// A trie over some slots. The caller stores its root, which is [`NONE`] for an empty trie.
pub(crate) struct Trie<'a, S, O> {
    pub slots: &'a mut S,
    pub branches: &'a mut [Branch],
    pub order: O,
}

impl<S: Slots, O: Order> Trie<'_, S, O> {
    /// Adds the gap of record `i`.
    #[inline]
    pub fn insert(&mut self, root: &mut u32, i: u32) {
        let record = self.slots.slot_mut(i);
        record.link = [NONE; 2];
        let gap = record.gap;
        let mut path = self.order.path(O::key(record));
        let (mut parent, mut at, mut side) = (NONE, *root, 0);
        while at != NONE {
            if O::LARGEST {
                let largest = &mut self.branches[at as usize].largest;
                *largest = (*largest).max(gap);
            }
            side = (path >> 63) as usize;
            path <<= 1;
            (parent, at) = (at, self.slots.slot(at).link[side]);
        }
        self.branches[i as usize] = Branch { largest: gap, parent };
        if parent == NONE {
            *root = i;
        } else {
            self.slots.slot_mut(parent).link[side] = i;
        }
    }

    /// Removes the gap of record `i`: a leaf of its subtree, if there is one, takes its place.
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

    /// A leaf of the subtree of `i`; `i` itself if it is one.
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

    /// Replaces node `from` by `to`, which must be in no trie.
    ///
    /// `to` is the record that takes over the gap of `from`, or the leaf that takes the place of `from`.
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

    /// Replaces the link of `parent` to `old` by one to `new`; sets the root if `parent` is [`NONE`].
    #[inline]
    fn replace(&mut self, root: &mut u32, parent: u32, old: u32, new: u32) {
        if parent == NONE {
            *root = new;
        } else {
            let link = &mut self.slots.slot_mut(parent).link;
            link[usize::from(link[1] == old)] = new;
        }
    }

    /// Recomputes largest gaps from `at` up to its ancestor `least`, and further while they change.
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

/// Size of the largest gap in a subtree in address order; 0 for no node.
pub(crate) fn largest(branches: &[Branch], i: u32) -> u32 {
    if i == NONE { 0 } else { branches[i as usize].largest }
}
