//! S3-FIFO: a small queue for new members, a main queue for those used again, and a ghost list of ids evicted from the
//! small queue.
//!
//! New members enter the small queue, which may hold a tenth of the bytes. From its back, members used at least twice
//! move to the main queue and the others are evicted; their ids stay in the ghost list for a while, and a member whose
//! id is there is inserted into the main queue. The back of the main queue is the victim unless it was used; then it is
//! reinserted at the front once for each of up to three uses.
//!
//! One call of `victim` asks `judge` about each member at most once; it cycles through the main queue at most four
//! times, since a member has up to three uses.

use super::list::Lists;
use super::{Policy, Verdict};

const SMALL: usize = 0;
const MAIN: usize = 1;
/// The ghost list: ids that were evicted from the small queue and are no longer members.
const GHOST: usize = 2;

/// The small queue may hold one part in this many of all members' bytes: 10 %, as in the paper.
const SMALL_SHARE: u64 = 10;
/// Most uses that are counted for a member: 3, the two bits of the paper.
const MAX_USES: u8 = 3;
/// A member with at least this many uses moves from the small queue to the main queue: `freq > 1` in the paper.
const PROMOTION_USES: u8 = 2;

/// Evicts members that are rarely used while new, then the oldest unused members of the main queue.
#[derive(Debug, Default)]
pub struct S3Fifo {
    lists: Lists<3>,
}

impl S3Fifo {
    /// Moves a member to the front of a queue and sets its number of uses; it stays visited if it was.
    fn requeue(&mut self, id: u32, to: usize, uses: u8) {
        let visited = self.lists.is_visited(id);
        if let Some(bytes) = self.lists.remove(id) {
            self.lists.push_front(to, id, bytes);
            *self.lists.uses(id) = uses;
            if visited {
                self.lists.mark_visited(id);
            }
        }
    }

    /// Chooses the queue to take a victim from: the small queue while it holds at least its share of bytes, else the
    /// main queue; the other one if all members of the first were visited. `left`: unvisited members in the small and
    /// in the main queue.
    fn queue(&self, left: [usize; 2]) -> Option<usize> {
        let (small, main) = (self.lists.totals(SMALL).1, self.lists.totals(MAIN).1);
        let first = if small.saturating_mul(SMALL_SHARE) >= small + main { SMALL } else { MAIN };
        [first, SMALL + MAIN - first].into_iter().find(|queue| left[*queue] > 0)
    }

    /// Returns the queue and the number of uses to reinsert the member at the back of a queue with, if `judge` need not
    /// be asked about it; `None` if it must be asked.
    fn reinsertion(&mut self, queue: usize, id: u32) -> Option<(usize, u8)> {
        let uses = *self.lists.uses(id);
        match queue {
            _ if self.lists.is_visited(id) => Some((queue, uses)),
            SMALL => (uses >= PROMOTION_USES).then_some((MAIN, 0)),
            _ => uses.checked_sub(1).map(|uses| (MAIN, uses)),
        }
    }

    /// Removes a victim. If it was in the small queue, its id becomes a ghost.
    fn evict(&mut self, queue: usize, id: u32) -> Option<u32> {
        let bytes = self.lists.remove(id)?;
        if queue == SMALL {
            self.lists.push_front(GHOST, id, bytes);
        }
        Some(id)
    }

    /// Removes the oldest ghosts until all ghosts together have no more bytes than all members.
    fn trim_ghosts(&mut self) {
        while self.lists.totals(GHOST).1 > self.totals().1 {
            let Some(id) = self.lists.back(GHOST) else { return };
            self.lists.remove(id);
        }
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, id: u32, bytes: u64) {
        if self.contains(id) {
            return;
        }
        let known = self.lists.remove(id).is_some();
        self.lists.push_front(if known { MAIN } else { SMALL }, id, bytes);
        self.trim_ghosts();
    }

    fn touch(&mut self, id: u32) {
        if self.contains(id) {
            let uses = self.lists.uses(id);
            *uses = (*uses + 1).min(MAX_USES);
        }
    }

    fn remove(&mut self, id: u32) {
        self.lists.remove(id);
    }

    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        let mut left = [self.lists.totals(SMALL).0, self.lists.totals(MAIN).0];
        self.lists.begin_round();
        while let Some(queue) = self.queue(left) {
            let id = self.lists.back(queue)?;
            let to = self.reinsertion(queue, id);
            if let Some((to, uses)) = to {
                left[queue] -= usize::from(to != queue);
                left[MAIN] += usize::from(to != queue);
                self.requeue(id, to, uses);
                continue;
            }
            let answer = judge(id);
            if answer == Verdict::Evict {
                return self.evict(queue, id);
            }
            left[queue] -= 1;
            let more = if let Verdict::Referenced(uses) = answer { uses } else { 0 };
            let uses = self.lists.uses(id).saturating_add(more).min(MAX_USES);
            self.requeue(id, queue, uses);
            self.lists.mark_visited(id);
        }
        None
    }

    fn restore(&mut self, id: u32, bytes: u64) {
        if self.contains(id) {
            return;
        }
        let queue = if self.lists.remove(id).is_some() { SMALL } else { MAIN };
        self.lists.push_back(queue, id, bytes);
    }

    fn contains(&self, id: u32) -> bool {
        matches!(self.lists.list(id), Some(SMALL | MAIN))
    }

    fn totals(&self) -> (usize, u64) {
        let (small, main) = (self.lists.totals(SMALL), self.lists.totals(MAIN));
        (small.0 + main.0, small.1 + main.1)
    }
}
