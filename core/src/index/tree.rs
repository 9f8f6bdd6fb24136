//! A balanced search tree of gaps, linked through their own slots.
//!
//! Promises upward: insert, remove and search in O(log n), n gaps; at most 45 levels.
//! Asks from below: slots with room for branches; `link` and branch belong to the tree while a gap is in it.
//!
//! An AVL tree (Adelson-Velsky and Landis, 1962): the heights of two siblings differ by at most one. Nodes are
//! ordered by address (first fit) or by size, then address (best and worst fit). The address-ordered tree also
//! keeps the largest gap below each node, so that "the lowest address that fits" is one walk down.

use super::slot::{NONE, Slot, Slots};
use crate::error::{Violation, ensure};

/// What the tree is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Where the gap starts; branches keep the largest gap below.
    Address,
    /// Size of the gap, then where it starts.
    Size,
}

/// A place in the order: granules, the size above the address.
pub(crate) type Key = u64;

impl Order {
    #[inline]
    pub(crate) fn key(self, slot: &Slot) -> Key {
        match self {
            Order::Address => u64::from(slot.end),
            Order::Size => u64::from(slot.gap) << 32 | u64::from(slot.end),
        }
    }
}

/// The nodes from the root down to a place. AVL height for 2^31 nodes: 1.45 * 31 = 45.
struct Path {
    nodes: [u32; 46],
    len: usize,
}

impl Path {
    fn new() -> Self {
        Self { nodes: [NONE; 46], len: 0 }
    }

    fn push(&mut self, node: u32) {
        self.nodes[self.len] = node;
        self.len += 1;
    }
}

/// What a tree keeps of a gap beside its post, in storage that the caller lends. 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The largest gap in the subtree (kept in address order only).
    largest: u32,
    /// Nodes on the longest way down from here, this one included.
    height: u32,
}

impl Branch {
    /// A branch of nothing.
    pub const EMPTY: Self = Self { largest: 0, height: 0 };
}

/// Trees over some slots, all in one order. A tree is its root, [`NONE`] when empty.
pub(crate) struct Tree<'a, S> {
    pub slots: &'a mut S,
    pub branches: &'a mut [Branch],
    pub order: Order,
}

impl<S: Slots> Tree<'_, S> {
    fn key(&self, i: u32) -> Key {
        self.order.key(self.slots.slot(i))
    }

    fn height(&self, i: u32) -> u32 {
        if i == NONE { 0 } else { self.branches[i as usize].height }
    }

    fn child(&self, i: u32, side: usize) -> u32 {
        self.slots.slot(i).link[side]
    }

    /// Recomputes what a node says of the nodes below it. True when that changed.
    fn refresh(&mut self, i: u32) -> bool {
        let [left, right] = self.slots.slot(i).link;
        let height = 1 + self.height(left).max(self.height(right));
        let largest = match self.order {
            Order::Size => 0,
            Order::Address => {
                largest(self.branches, left).max(largest(self.branches, right)).max(self.slots.slot(i).gap)
            }
        };
        let branch = Branch { largest, height };
        core::mem::replace(&mut self.branches[i as usize], branch) != branch
    }

    /// Lifts the child on `side` above `i`; returns the new top.
    fn rotate(&mut self, i: u32, side: usize) -> u32 {
        let up = self.child(i, side);
        let between = self.child(up, 1 - side);
        self.slots.slot_mut(i).link[side] = between;
        self.slots.slot_mut(up).link[1 - side] = i;
        self.refresh(i);
        self.refresh(up);
        up
    }

    /// Restores the balance at `i`, whose subtrees are balanced; returns the top of the subtree.
    fn balance(&mut self, i: u32) -> u32 {
        let [left, right] = self.slots.slot(i).link;
        let (l, r) = (self.height(left), self.height(right));
        if l.abs_diff(r) < 2 {
            return i;
        }
        let side = usize::from(r > l);
        let tall = if r > l { right } else { left };
        // The tall child must be tallest on the outside, or the rotation only mirrors the fault.
        if self.height(self.child(tall, side)) < self.height(self.child(tall, 1 - side)) {
            let inner = self.rotate(tall, 1 - side);
            self.slots.slot_mut(i).link[side] = inner;
        }
        self.rotate(i, side)
    }

    /// Goes back up `path`, below which the subtree `old` became `new`, until nothing changes above place `least`.
    fn repair(&mut self, root: &mut u32, path: &Path, least: usize, (mut old, mut new): (u32, u32)) {
        for (place, &node) in path.nodes[..path.len].iter().enumerate().rev() {
            let links = &mut self.slots.slot_mut(node).link;
            if new != old {
                let side = usize::from(links[1] == old);
                links[side] = new;
            }
            let changed = self.refresh(node);
            let top = self.balance(node);
            if !changed && top == node && place <= least {
                return;
            }
            (old, new) = (node, top);
        }
        if new != old {
            *root = new;
        }
    }

    /// Adds a gap.
    pub fn insert(&mut self, root: &mut u32, i: u32) {
        self.slots.slot_mut(i).link = [NONE; 2];
        self.refresh(i);
        let key = self.key(i);
        let mut path = Path::new();
        let mut at = *root;
        let mut side = 0;
        while at != NONE {
            path.push(at);
            side = usize::from(key > self.key(at));
            at = self.child(at, side);
        }
        let Some(&parent) = path.nodes[..path.len].last() else {
            *root = i;
            return;
        };
        self.slots.slot_mut(parent).link[side] = i;
        self.repair(root, &path, path.len, (i, i));
    }

    /// Takes a gap out. Its key must be what it was when it went in.
    pub fn remove(&mut self, root: &mut u32, i: u32) {
        let key = self.key(i);
        let mut path = Path::new();
        let mut at = *root;
        while at != i {
            path.push(at);
            at = self.child(at, usize::from(key > self.key(at)));
        }
        let [left, right] = self.slots.slot(i).link;
        if left == NONE || right == NONE {
            let only = if left == NONE { right } else { left };
            return self.repair(root, &path, path.len, (i, only));
        }
        let above = path.len;
        path.push(i);
        let mut heir = right;
        while self.child(heir, 0) != NONE {
            path.push(heir);
            heir = self.child(heir, 0);
        }
        // The heir leaves its place first; then it stands where `i` stood, in the tree and on the path.
        let orphan = self.child(heir, 1);
        let parent = path.nodes[path.len - 1];
        let side = usize::from(parent == i);
        self.slots.slot_mut(parent).link[side] = orphan;
        let link = self.slots.slot(i).link;
        self.slots.slot_mut(heir).link = link;
        self.branches[heir as usize] = self.branches[i as usize];
        path.nodes[above] = heir;
        match above.checked_sub(1).map(|k| path.nodes[k]) {
            None => *root = heir,
            Some(parent) => {
                let links = &mut self.slots.slot_mut(parent).link;
                let side = usize::from(links[1] == i);
                links[side] = heir;
            }
        }
        // The heir's gap stands where that of `i` stood: refresh at least up to there.
        self.repair(root, &path, above, (orphan, orphan));
    }
}

/// The first node at or after `from` (in order of size), or [`NONE`].
pub(crate) fn at_or_after<S: Slots>(slots: &S, root: u32, from: Key) -> u32 {
    let (mut at, mut found) = (root, NONE);
    while at != NONE {
        let slot = slots.slot(at);
        let before = Order::Size.key(slot) < from;
        if !before {
            found = at;
        }
        at = slot.link[usize::from(before)];
    }
    found
}

/// The last node in order, or [`NONE`].
pub(crate) fn last<S: Slots>(slots: &S, root: u32) -> u32 {
    let (mut at, mut found) = (root, NONE);
    while at != NONE {
        (found, at) = (at, slots.slot(at).link[1]);
    }
    found
}

/// Address order: the lowest gap of at least `size` granules at or after `from`, or [`NONE`].
pub(crate) fn first_fit<S: Slots>(slots: &S, branches: &[Branch], root: u32, size: u32, from: Key) -> u32 {
    let (mut at, mut turned) = (root, NONE);
    // Down the edge of `from`: where the walk turns left, the node or its right side may hold the answer.
    while at != NONE {
        let slot = slots.slot(at);
        if Order::Address.key(slot) < from {
            at = slot.link[1];
            continue;
        }
        if slot.gap >= size || largest(branches, slot.link[1]) >= size {
            turned = at;
        }
        at = slot.link[0];
    }
    if turned == NONE || slots.slot(turned).gap >= size {
        return turned;
    }
    // All of the right side lies after `from`: the lowest fit in it.
    at = slots.slot(turned).link[1];
    loop {
        let slot = slots.slot(at);
        if largest(branches, slot.link[0]) >= size {
            at = slot.link[0];
        } else if slot.gap >= size {
            return at;
        } else {
            at = slot.link[1];
        }
    }
}

/// The largest gap in an address-ordered subtree, 0 when it is empty.
pub(crate) fn largest(branches: &[Branch], i: u32) -> u32 {
    if i == NONE { 0 } else { branches[i as usize].largest }
}

/// Counts the nodes below `i` and checks order (keys from `low` to before `high`), balance and largest gaps. O(n).
pub(crate) fn check<S: Slots>(
    slots: &S,
    branches: &[Branch],
    order: Order,
    i: u32,
    (low, high): (Key, Key),
) -> Result<u32, Violation> {
    if i == NONE {
        return Ok(0);
    }
    let (slot, branch) = (slots.slot(i), branches[i as usize]);
    let [left, right] = slot.link;
    let height = |i| if i == NONE { 0 } else { branches[i as usize].height };
    let (l, r, key) = (height(left), height(right), order.key(slot));
    ensure(slot.gap > 0, "only posts with a gap are in the index", i)?;
    ensure(low <= key && key < high, "a tree's left side is before its top, its right side after", i)?;
    ensure(l.abs_diff(r) < 2 && branch.height == 1 + l.max(r), "heights of siblings differ by at most one", i)?;
    let below = largest(branches, left).max(largest(branches, right)).max(slot.gap);
    ensure(order == Order::Size || branch.largest == below, "a node keeps the largest gap below it", i)?;
    let left = check(slots, branches, order, left, (low, key))?;
    Ok(1 + left + check(slots, branches, order, right, (key + 1, high))?)
}
