//! Searches in a trie, and its check. A node's own key may be anywhere among those below it, so each walk keeps the
//! best key it met.

use super::{Branch, ByAddress, Key, Order, largest};
use crate::error::{Violation, ensure};
use crate::index::slot::{NONE, Slots};

/// The first node at or after `from`, or [`NONE`]. In order of size; `from` shares the first bits of the keys.
#[inline]
pub(crate) fn at_or_after<S: Slots, O: Order>(slots: &S, order: O, root: u32, from: Key) -> u32 {
    let mut way = order.way(from);
    let (mut at, mut later) = (root, NONE);
    let (mut found, mut least) = (NONE, Key::MAX);
    // Down the way of `from`: a node on it may be the answer, and so may those right of the last turn to the left.
    while at != NONE {
        let slot = slots.slot(at);
        let key = O::key(slot);
        if key >= from && key < least {
            (found, least) = (at, key);
        }
        let side = (way >> 63) as usize;
        way <<= 1;
        if side == 0 && slot.link[1] != NONE {
            later = slot.link[1];
        }
        at = slot.link[side];
    }
    // Everything there is after `from`: the first is on its left edge.
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

/// The last node in order, or [`NONE`].
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

/// Address order: the lowest gap of at least `size` granules at or after `from`, or [`NONE`].
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
    // Down the way of `from`, as in order of size; only sides that hold a fit count. Every place is after 0.
    let (mut at, mut later) = if from == 0 { (NONE, root) } else { (root, NONE) };
    let mut way = order.way(from);
    while at != NONE {
        let slot = slots.slot(at);
        let key = ByAddress::key(slot);
        if slot.gap >= size && key >= from && key < lowest {
            (found, lowest) = (at, key);
        }
        let side = (way >> 63) as usize;
        way <<= 1;
        if side == 0 && largest(branches, slot.link[1]) >= size {
            later = slot.link[1];
        }
        at = slot.link[side];
    }
    // The lowest fit of what lies after `from`: always into the lower side that holds one.
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

/// Counts the nodes below `i` and checks their places (`way`: the bits that led here, and how many), parents and
/// largest gaps. O(n).
pub(crate) fn check<S: Slots, O: Order>(
    slots: &S,
    branches: &[Branch],
    order: O,
    (i, parent): (u32, u32),
    (way, bits): (u64, u32),
) -> Result<u32, Violation> {
    if i == NONE {
        return Ok(0);
    }
    let (slot, branch) = (slots.slot(i), branches[i as usize]);
    let [left, right] = slot.link;
    ensure(slot.gap > 0, "only records with a gap are in the index", i)?;
    ensure(bits < 64 && branch.parent == parent, "a trie's links go both ways", i)?;
    let here = order.way(O::key(slot));
    ensure(bits == 0 || (here ^ way) >> (64 - bits) == 0, "the bits of a gap's key spell the way to it", i)?;
    let below = largest(branches, left).max(largest(branches, right)).max(slot.gap);
    ensure(!O::LARGEST || branch.largest == below, "a node keeps the largest gap below it", i)?;
    let turn = 1 << (63 - bits);
    let below = check(slots, branches, order, (left, i), (way, bits + 1))?;
    Ok(1 + below + check(slots, branches, order, (right, i), (way | turn, bits + 1))?)
}
