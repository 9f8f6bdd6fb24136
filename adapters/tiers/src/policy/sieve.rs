//! SIEVE: one list in order of arrival, and a hand that goes from its back to its front, over and over.
//!
//! A touch sets a mark and moves nothing. Where the hand finds a mark it takes it off and goes on; the first member
//! without one is the victim. New members come in at the front, which the hand reaches last: what is used once does not
//! live longer than one round, and what is used again stays where it is.
//!
//! Each member is asked about at most once a call: the hand goes around at most twice, the first time for the marks.

use super::list::Lists;
use super::{Policy, Verdict};

/// The list.
const ALL: usize = 0;

/// Evicts the first that was not used since the hand came by.
#[derive(Debug, Default)]
pub struct Sieve {
    lists: Lists<1>,
    /// The member that the hand looks at next; `None`: start at the back.
    hand: Option<u32>,
}

impl Sieve {
    /// Moves the hand off a member that leaves.
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
                // One that is in use now is passed, as one with a mark.
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

    /// To the back, where the hand goes next: it is asked about before all others.
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
