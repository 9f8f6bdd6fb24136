//! Least recently used: one list; a touch moves a member to the front, the victim is at the back.
//!
//! One call of `victim` asks `judge` about each member at most once: a skipped member keeps its position, a referenced
//! one moves to the front.

use super::list::Lists;
use super::{Policy, Verdict};

/// The list.
const ALL: usize = 0;

/// Evicts the least recently used member.
#[derive(Debug, Default)]
pub struct Lru {
    lists: Lists<1>,
}

impl Policy for Lru {
    fn insert(&mut self, id: u32, bytes: u64) {
        if !self.contains(id) {
            self.lists.push_front(ALL, id, bytes);
        }
    }

    fn touch(&mut self, id: u32) {
        if let Some(bytes) = self.lists.remove(id) {
            self.lists.push_front(ALL, id, bytes);
        }
    }

    fn remove(&mut self, id: u32) {
        self.lists.remove(id);
    }

    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        let mut next = self.lists.back(ALL);
        for _ in 0..self.totals().0 {
            let id = next?;
            next = self.lists.newer(id);
            match judge(id) {
                Verdict::Evict => {
                    self.remove(id);
                    return Some(id);
                }
                Verdict::Skip => {}
                Verdict::Referenced(_) => self.touch(id),
            }
        }
        None
    }

    fn restore(&mut self, id: u32, bytes: u64) {
        if !self.contains(id) {
            self.lists.push_back(ALL, id, bytes);
        }
    }

    fn contains(&self, id: u32) -> bool {
        self.lists.list(id).is_some()
    }

    fn totals(&self) -> (usize, u64) {
        self.lists.totals(ALL)
    }
}
