//! Searches in a trie, and its check. A node's key may be anywhere among those of its subtree, so each search keeps the
//! best key that it has visited.

use super::{Branch, ByAddress, Key, Order, largest};
use crate::error::{Violation, ensure};
use crate::index::slot::{NONE, Slots};

/// The node with the first key at or after `from`, or [`NONE`]. In order by size, `from` must share the first bits of
/// the keys.
#[inline]
pub(crate) fn at_or_after<S: Slots, O: Order>(slots: &S, order: O, root: u32, from: Key) -> u32 {
    let mut path = order.path(from);
    let (mut at, mut later) = (root, NONE);
    let (mut found, mut least) = (NONE, Key::MAX);
    // Goes down the path of `from`: the answer is a node on it, or in the subtree right of the path's last turn to the
    // left.
    while at != NONE {
        let slot = slots.slot(at);
        let key = O::key(slot);
        if key >= from && key < least {
            (found, least) = (at, key);
        }
        let side = (path >> 63) as usize;
        path <<= 1;
        if side == 0 && slot.link[1] != NONE {
            later = slot.link[1];
        }
        at = slot.link[side];
    }
    // All keys in the subtree of `later` are after `from`: the first is on the subtree's left edge.
    while later != NONE {
        let slot = slots.slot(later);
        let key = O::key(slot);
        if key < least {
            (found, least) = (later, key);
        }
        later = if slot.link[0] == NONE { slot.link[1] } else { slot.link[0] };
    }
    found
}

/// The node with the last key, or [`NONE`].
pub(crate) fn last<S: Slots, O: Order>(slots: &S, _: O, root: u32) -> u32 {
    let (mut at, mut found, mut most) = (root, NONE, 0);
    while at != NONE {
        let slot = slots.slot(at);
        if O::key(slot) >= most {
            (found, most) = (at, O::key(slot));
        }
        at = if slot.link[1] == NONE { slot.link[0] } else { slot.link[1] };
    }
    found
}

/// By address: the lowest gap of at least `size` granules at or after `from`, or [`NONE`].
pub(crate) fn first_fit<S: Slots>(
    (slots, branches): (&S, &[Branch]),
    order: ByAddress,
    root: u32,
    size: u32,
    from: Key,
) -> u32 {
    let (mut found, mut lowest) = (NONE, Key::MAX);
    if from >> order.width != 0 {
        return NONE;
    }
    // Goes down the path of `from` as `at_or_after` does, but notes only subtrees with a gap that fits. No key is below
    // 0, so from 0 on the whole trie is searched.
    let (mut at, mut later) = if from == 0 { (NONE, root) } else { (root, NONE) };
    let mut path = order.path(from);
    while at != NONE {
        let slot = slots.slot(at);
        let key = ByAddress::key(slot);
        if slot.gap >= size && key >= from && key < lowest {
            (found, lowest) = (at, key);
        }
        let side = (path >> 63) as usize;
        path <<= 1;
        if side == 0 && largest(branches, slot.link[1]) >= size {
            later = slot.link[1];
        }
        at = slot.link[side];
    }
    // All keys in the subtree of `later` are after `from`: goes down to the lowest gap that fits, to the left where
    // that has one.
    while later != NONE {
        let slot = slots.slot(later);
        let key = ByAddress::key(slot);
        if slot.gap >= size && key < lowest {
            (found, lowest) = (later, key);
        }
        let [left, right] = slot.link;
        later = if largest(branches, left) >= size {
            left
        } else if largest(branches, right) >= size {
            right
        } else {
            NONE
        };
    }
    found
}

/// Counts the nodes of the subtree of `i`, and checks their positions (`path`: the bits of the path, and their number),
/// parents and largest gaps. O(n).
pub(crate) fn check<S: Slots, O: Order>(
    slots: &S,
    branches: &[Branch],
    order: O,
    (i, parent): (u32, u32),
    (path, bits): (u64, u32),
) -> Result<u32, Violation> {
    if i == NONE {
        return Ok(0);
    }
    let (slot, branch) = (slots.slot(i), branches[i as usize]);
    let [left, right] = slot.link;
    ensure(slot.gap > 0, "only records with a gap are in the index", i)?;
    ensure(bits < 64 && branch.parent == parent, "a trie's links go both ways", i)?;
    let here = order.path(O::key(slot));
    ensure(bits == 0 || (here ^ path) >> (64 - bits) == 0, "the bits of a gap's key spell the path to it", i)?;
    let below = largest(branches, left).max(largest(branches, right)).max(slot.gap);
    ensure(!O::LARGEST || branch.largest == below, "a node keeps the largest gap below it", i)?;
    let turn = 1 << (63 - bits);
    let below = check(slots, branches, order, (left, i), (path, bits + 1))?;
    Ok(1 + below + check(slots, branches, order, (right, i), (path | turn, bits + 1))?)
}
