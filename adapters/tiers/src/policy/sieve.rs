//! SIEVE: one list in order of insertion, and a hand that moves from its back to its front, over and over.
//!
//! A touch sets a mark and moves nothing. The hand clears marks as it passes; the first unmarked member is the victim.
//! New members are inserted at the front, which the hand reaches last: a member used once lives no longer than one
//! round, and one used again stays in place.
//!
//! One call of `victim` asks `judge` about each member at most once: the hand makes at most two rounds, the first of
//! which clears marks.

use super::list::Lists;
use super::{Policy, Verdict};

/// The list.
const ALL: usize = 0;

/// Evicts the first member not used since the hand last passed it.
#[derive(Debug, Default)]
pub struct Sieve {
    lists: Lists<1>,
    /// The member that the hand points to; `None`: the hand starts at the back.
    hand: Option<u32>,
}

impl Sieve {
    /// Removes a member. If the hand points to it, the hand moves to the next member towards the front.
    fn leave(&mut self, id: u32) {
        if self.hand == Some(id) {
            self.hand = self.lists.newer(id);
        }
        self.lists.remove(id);
    }
}

impl Policy for Sieve {
    fn insert(&mut self, id: u32, bytes: u64) {
        if !self.contains(id) {
            self.lists.push_front(ALL, id, bytes);
        }
    }

    fn touch(&mut self, id: u32) {
        if self.contains(id) {
            *self.lists.uses(id) = 1;
        }
    }

    fn remove(&mut self, id: u32) {
        if self.contains(id) {
            self.leave(id);
        }
    }

    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        let mut left = self.totals().0;
        self.lists.begin_round();
        while left > 0 {
            let id = self.hand.or(self.lists.back(ALL))?;
            if !self.lists.is_visited(id) && std::mem::take(self.lists.uses(id)) == 0 {
                // A member that `judge` refuses is passed by, like a marked one.
                if judge(id) == Verdict::Evict {
                    self.leave(id);
                    return Some(id);
                }
                self.lists.mark_visited(id);
                left -= 1;
            }
            self.hand = self.lists.newer(id);
        }
        None
    }

    /// Inserts the id at the back and points the hand to it, so that it is the next candidate.
    fn restore(&mut self, id: u32, bytes: u64) {
        if !self.contains(id) {
            self.lists.push_back(ALL, id, bytes);
            self.hand = Some(id);
        }
    }

    fn contains(&self, id: u32) -> bool {
        self.lists.list(id).is_some()
    }

    fn totals(&self) -> (usize, u64) {
        self.lists.totals(ALL)
    }
}
