//! S3-FIFO: a small queue for the new, a main queue for those used again, and the names of those that left the small
//! one.
//!
//! New members come into the small queue, which may hold a tenth of the bytes. From its back, members used at least
//! twice go on to the main queue and the others leave; their names stay for a while, and a member that comes back in
//! that time goes to the main queue at once. There the back is the victim unless it was used, in which case it goes
//! around once more for each of up to three uses.
//!
//! Each member is asked about at most once a call; a call goes around the main queue at most four times, for the uses.

use super::list::Lists;
use super::{Policy, Verdict};

const SMALL: usize = 0;
const MAIN: usize = 1;
/// Names of evicted members; no longer members.
const GHOST: usize = 2;

/// The small queue's share is one part in so many of the bytes: the paper's 10 %.
const SMALL_SHARE: u64 = 10;
/// Uses that are told apart: the paper's two bits.
const MAX_USES: u8 = 3;
/// Uses in the small queue that lead to the main one: the paper's `freq > 1`.
const PROMOTION_USES: u8 = 2;

/// Evicts what was hardly used while it was new, then what was not used for longest in the main queue.
#[derive(Debug, Default)]
pub struct S3Fifo {
    lists: Lists<3>,
}

impl S3Fifo {
    /// Moves a member to the front of a queue, with so many uses.
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

    /// The queue to look at: the small one while it has its share or more, unless every member there was asked (`left`:
    /// how many were not).
    fn queue(&self, left: [usize; 2]) -> Option<usize> {
        let (small, main) = (self.lists.totals(SMALL).1, self.lists.totals(MAIN).1);
        let first = if small.saturating_mul(SMALL_SHARE) >= small + main { SMALL } else { MAIN };
        [first, SMALL + MAIN - first].into_iter().find(|queue| left[*queue] > 0)
    }

    /// Whether the member at the back of a queue goes on as it stands, unasked: where to, and with how many uses.
    fn reinsertion(&mut self, queue: usize, id: u32) -> Option<(usize, u8)> {
        let uses = *self.lists.uses(id);
        match queue {
            _ if self.lists.is_visited(id) => Some((queue, uses)),
            SMALL => (uses >= PROMOTION_USES).then_some((MAIN, 0)),
            _ => uses.checked_sub(1).map(|uses| (MAIN, uses)),
        }
    }

    /// Takes a victim out; the name of one that was hardly used stays.
    fn evict(&mut self, queue: usize, id: u32) -> Option<u32> {
        let bytes = self.lists.remove(id)?;
        if queue == SMALL {
            self.lists.push_front(GHOST, id, bytes);
        }
        Some(id)
    }

    /// Forgets the oldest names, until their bytes are no more than those of the members.
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
            let uses = *self.lists.uses(id) + u8::from(answer == Verdict::Referenced);
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
