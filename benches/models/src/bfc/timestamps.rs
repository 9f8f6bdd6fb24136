//! Chunks that were freed before their fence opened.
//!
//! Promises upward: a held chunk merges with nothing until its fence opens, but for its own owner in need.
//! Asks from below: tickets of one owner open in order.

use std::collections::VecDeque;
use terrace_core::{Fence, FenceState, Owner, Source, Violation};

use super::Bfc;
use crate::chunks::{NONE, State};
use terrace_core::error::ensure;

impl<S: Source, F: Fence> Bfc<S, F> {
    /// Puts a freed chunk, in no bin, into its bin as held.
    pub(super) fn hold(&mut self, slot: u32, owner: Owner, ticket: u64) {
        let chunk = &mut self.chain.chunks[slot];
        (chunk.state, chunk.owner, chunk.stamp) = (State::Held, owner, ticket);
        self.apart += chunk.bytes;
        self.bins.insert(&self.chain, slot);
        self.waiting.entry(owner).or_default().push_back((ticket, slot));
    }

    /// Whether a queue entry still speaks of a held chunk.
    fn counts(&self, owner: Owner, ticket: u64, slot: u32) -> bool {
        let chunk = &self.chain.chunks[slot];
        chunk.state == State::Held && chunk.owner == owner && chunk.stamp == ticket
    }

    /// Frees and merges the chunks whose fence is open; stops at the first pending one of each owner.
    pub(super) fn merge_ready(&mut self, wait: bool) {
        // Taken out while chunks change; nothing in between adds to it.
        let mut waiting = std::mem::take(&mut self.waiting);
        for (&owner, queue) in &mut waiting {
            while let Some(&(ticket, slot)) = queue.front() {
                let state = if wait { self.fence.wait(owner, ticket) } else { self.fence.poll(owner, ticket) };
                if state == FenceState::Pending {
                    break;
                }
                queue.pop_front();
                if self.counts(owner, ticket, slot) {
                    self.settle(slot, state);
                }
            }
        }
        waiting.retain(|_, queue| !queue.is_empty());
        self.waiting = waiting;
    }

    /// A held chunk's fence opened or failed.
    fn settle(&mut self, slot: u32, state: FenceState) {
        self.bins.remove(&self.chain, slot);
        if state == FenceState::Failed {
            self.chain.chunks[slot].state = State::Lost;
        } else {
            self.apart -= self.chain.chunks[slot].bytes;
            self.chain.chunks[slot].state = State::Free;
            self.merge_and_insert(slot);
        }
    }

    /// Merges chunks that `owner` freed, though others may not use them yet, until one has `bytes`; whether one has.
    pub(super) fn merge_own(&mut self, owner: Owner, bytes: u64) -> bool {
        let mut queue = self.waiting.remove(&owner).unwrap_or_default();
        let mut kept = VecDeque::new();
        let mut found = false;
        while let Some((ticket, slot)) = queue.pop_front() {
            if !self.counts(owner, ticket, slot) {
                continue;
            }
            let mut entry = (ticket, slot);
            if !found {
                entry = self.merge_held(slot, owner);
                found = self.chain.chunks[entry.1].bytes >= bytes;
            }
            kept.push_back(entry);
        }
        if !kept.is_empty() {
            self.waiting.insert(owner, kept);
        }
        found
    }

    /// Joins a held chunk with the neighbours its owner may use; the whole waits for the latest fence. Returns its new
    /// queue entry.
    fn merge_held(&mut self, slot: u32, owner: Owner) -> (u64, u32) {
        let mut ticket = self.chain.chunks[slot].stamp;
        self.bins.remove(&self.chain, slot);
        self.apart -= self.chain.chunks[slot].bytes;
        let mut slot = slot;
        while let Some(next) = self.mergeable(self.chain.chunks[slot].next, owner, &mut ticket) {
            debug_assert_eq!(self.chain.chunks[slot].next, next);
            self.chain.join_next(slot);
        }
        while let Some(prev) = self.mergeable(self.chain.chunks[slot].prev, owner, &mut ticket) {
            self.chain.join_next(prev);
            slot = prev;
        }
        let chunk = &mut self.chain.chunks[slot];
        (chunk.state, chunk.owner, chunk.stamp) = (State::Held, owner, ticket);
        self.apart += chunk.bytes;
        self.bins.insert(&self.chain, slot);
        (ticket, slot)
    }

    /// Takes a neighbour that `owner` may use out of its bin, raising `ticket` to what it waits for.
    fn mergeable(&mut self, near: u32, owner: Owner, ticket: &mut u64) -> Option<u32> {
        if near == NONE {
            return None;
        }
        let chunk = self.chain.chunks[near];
        match chunk.state {
            State::Free => {}
            State::Held if chunk.owner == owner => {
                *ticket = chunk.stamp.max(*ticket);
                self.apart -= chunk.bytes;
            }
            _ => return None,
        }
        self.bins.remove(&self.chain, near);
        Some(near)
    }

    /// Every held chunk has a queue entry that counts.
    pub(super) fn check_waiting(&self) -> Result<(), Violation> {
        for (slot, chunk) in self.chain.chunks.iter().filter(|(_, chunk)| chunk.state == State::Held) {
            let queue = self.waiting.get(&chunk.owner);
            let queued = queue.is_some_and(|queue| queue.contains(&(chunk.stamp, slot)));
            ensure(queued, "every held chunk is in the queue of its owner", slot)?;
        }
        Ok(())
    }
}
