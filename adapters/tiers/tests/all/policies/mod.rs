//! The same policies over plain vectors, searched from end to end: the back is the first element.

pub mod cache;

use std::collections::HashSet;
use terrace_tiers::policy::{PolicyKind, Verdict};

#[derive(Clone, Copy, Debug)]
struct Member {
    id: u32,
    bytes: u64,
    uses: u8,
}

/// A policy as its description says it.
pub struct Naive {
    kind: PolicyKind,
    /// LRU and SIEVE have one; S3-FIFO has the small and the main one.
    queues: [Vec<Member>; 2],
    ghosts: Vec<(u32, u64)>,
    hand: Option<u32>,
}

impl Naive {
    pub fn new(kind: PolicyKind) -> Self {
        Self { kind, queues: [Vec::new(), Vec::new()], ghosts: Vec::new(), hand: None }
    }

    /// All members, with sizes.
    pub fn members(&self) -> Vec<(u32, u64)> {
        self.queues.iter().flatten().map(|member| (member.id, member.bytes)).collect()
    }

    fn place(&self, id: u32) -> Option<(usize, usize)> {
        let at = |queue: usize| Some((queue, self.queues[queue].iter().position(|member| member.id == id)?));
        at(0).or_else(|| at(1))
    }

    fn take(&mut self, id: u32) -> Option<Member> {
        let (queue, at) = self.place(id)?;
        if self.hand == Some(id) {
            self.hand = self.queues[queue].get(at + 1).map(|member| member.id);
        }
        Some(self.queues[queue].remove(at))
    }

    fn forget(&mut self, id: u32) -> bool {
        let before = self.ghosts.len();
        self.ghosts.retain(|(ghost, _)| *ghost != id);
        self.ghosts.len() < before
    }

    pub fn insert(&mut self, id: u32, bytes: u64) {
        if self.place(id).is_some() {
            return;
        }
        let queue = usize::from(self.forget(id));
        self.queues[queue].push(Member { id, bytes, uses: 0 });
        let sum = |list: &[(u32, u64)]| list.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while sum(&self.ghosts) > sum(&self.members()) {
            self.ghosts.remove(0);
        }
    }

    pub fn touch(&mut self, id: u32) {
        let Some((queue, at)) = self.place(id) else { return };
        match self.kind {
            PolicyKind::Lru => {
                let member = self.queues[queue].remove(at);
                self.queues[queue].push(member);
            }
            PolicyKind::Sieve => self.queues[queue][at].uses = 1,
            PolicyKind::S3Fifo => self.queues[queue][at].uses = (self.queues[queue][at].uses + 1).min(3),
        }
    }

    pub fn remove(&mut self, id: u32) {
        self.take(id);
        self.forget(id);
    }

    pub fn restore(&mut self, id: u32, bytes: u64) {
        let queue = usize::from(self.kind == PolicyKind::S3Fifo && !self.forget(id));
        self.queues[queue].insert(0, Member { id, bytes, uses: 0 });
        self.hand = Some(id).filter(|_| self.kind == PolicyKind::Sieve);
    }

    pub fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        match self.kind {
            PolicyKind::Lru => self.lru(judge),
            PolicyKind::Sieve => self.sieve(judge),
            PolicyKind::S3Fifo => self.s3fifo(judge),
        }
    }

    fn lru(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        for member in self.queues[0].clone() {
            match judge(member.id) {
                Verdict::Evict => return self.take(member.id).map(|member| member.id),
                Verdict::Referenced(_) => self.touch(member.id),
                Verdict::Skip => {}
            }
        }
        None
    }

    fn sieve(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        let mut asked = HashSet::new();
        while asked.len() < self.queues[0].len() {
            let at = self.hand.and_then(|hand| self.place(hand)).map_or(0, |(_, at)| at);
            let member = self.queues[0][at];
            let next = self.queues[0].get(at + 1).map(|member| member.id);
            if asked.contains(&member.id) {
                self.hand = next;
                continue;
            }
            if member.uses == 0 {
                asked.insert(member.id);
                if judge(member.id) == Verdict::Evict {
                    self.take(member.id);
                    self.hand = next;
                    return Some(member.id);
                }
            }
            self.queues[0][at].uses = 0;
            self.hand = next;
        }
        None
    }

    fn s3fifo(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32> {
        let mut asked = HashSet::new();
        loop {
            let bytes = [0, 1].map(|queue| self.queues[queue].iter().map(|member| member.bytes).sum::<u64>());
            let open = [0, 1].map(|queue| self.queues[queue].iter().any(|member| !asked.contains(&member.id)));
            let small_first = bytes[0] * 10 >= bytes[0] + bytes[1];
            let queue = match (open, small_first) {
                ([false, false], _) => return None,
                ([true, false], _) | ([true, true], true) => 0,
                _ => 1,
            };
            let mut member = self.queues[queue].remove(0);
            let mut to = queue;
            match (asked.contains(&member.id), queue) {
                (true, _) => {}
                (false, 0) if member.uses >= 2 => (to, member.uses) = (1, 0),
                (false, 1) if member.uses > 0 => member.uses -= 1,
                _ => {
                    asked.insert(member.id);
                    match judge(member.id) {
                        Verdict::Evict if queue == 0 => {
                            self.ghosts.push((member.id, member.bytes));
                            return Some(member.id);
                        }
                        Verdict::Evict => return Some(member.id),
                        Verdict::Referenced(uses) => member.uses = (member.uses + uses).min(3),
                        Verdict::Skip => {}
                    }
                }
            }
            self.queues[to].push(member);
        }
    }
}
