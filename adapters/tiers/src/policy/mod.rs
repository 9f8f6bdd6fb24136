//! Eviction policies: which buffer leaves a tier first: LRU, SIEVE or S3-FIFO, chosen for each manager.
//!
//! Promises upward: only the insertion of an id higher than any before allocates memory; insertion, touch and removal
//! are O(1); a victim is found in O(1) amortised over touches, and [`Policy::victim`] asks about each member at most
//! once. The calls alone determine the victim.
//! Asks from below: `list`, linked lists in one table.
//!
//! Members are ids below 2^32, small ones as they index a table, each with a size: shares of queues and of the ghost
//! list are counted in bytes, whose sum must stay below 2^64.
//!
//! | policy | victim | a scan of members that are used once |
//! | --- | --- | --- |
//! | [`Lru`] | the least recently used member | evicts everything else |
//! | [`Sieve`] | the first member not used since the hand last passed it | mostly evicts itself |
//! | [`S3Fifo`] | in the small queue a member hardly used there, else one in the main queue | evicts itself |
//!
//! Sources: SIEVE is Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024; S3-FIFO is Yang et al., "FIFO queues are all
//! you need for cache eviction", SOSP 2023.

mod list;
pub(crate) use list::NODE_BYTES;
mod lru;
mod s3fifo;
mod sieve;

pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

/// The caller's verdict on a member that is the next victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Evict it.
    Evict,
    /// Skip it: it cannot leave now, which says nothing about its use (it is protected, or being moved).
    Skip,
    /// Skip it as referenced: it is in use, or was used since the last verdict on it. Counts as a touch, so that a use
    /// recorded only beside the buffer reaches the policy when it matters.
    Referenced,
}

/// An eviction order over the members of one tier.
pub trait Policy: Send {
    /// Inserts a member as just used. A present member keeps its position.
    fn insert(&mut self, id: u32, bytes: u64);

    /// Records a use of a member. Ignores other ids.
    fn touch(&mut self, id: u32);

    /// Removes a member and all history of it: it was freed, or left for another reason than eviction.
    fn remove(&mut self, id: u32);

    /// Removes and returns the member to evict first, of those that `judge` lets go. It may be kept as a ghost. `None`:
    /// `judge` was asked about every member, and none may leave.
    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32>;

    /// Takes back a victim that was not evicted after all, as the next candidate.
    fn restore(&mut self, id: u32, bytes: u64);

    /// Whether an id is a member.
    fn contains(&self, id: u32) -> bool;

    /// Number of members and their total bytes.
    fn totals(&self) -> (usize, u64);
}

/// The choice of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`Lru`].
    Lru,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`].
    #[default]
    S3Fifo,
}

impl PolicyKind {
    /// Builds an empty policy.
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
            Self::S3Fifo => Box::<S3Fifo>::default(),
        }
    }
}
