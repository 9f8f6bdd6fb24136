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

/// The caller's verdict on a member that the policy would evict next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Evict it.
    Evict,
    /// Skip the member: it is protected or being moved, and cannot leave now. This says nothing about its use.
    Skip,
    /// Skip the member: it is in use, or was used so many times since the last verdict on it, at least once. Each counts
    /// as a touch, so that the policy also learns of uses that were not reported by [`Policy::touch`].
    Referenced(u8),
}

/// Keeps the members of one tier in the order of their eviction.
pub trait Policy: Send {
    /// Inserts an id as a member that was just used. An id that is a member already keeps its position.
    fn insert(&mut self, id: u32, bytes: u64);

    /// Records a use of a member. Ignores ids that are not members.
    fn touch(&mut self, id: u32);

    /// Removes a member and its history, because it was freed or left the tier for another reason than eviction.
    fn remove(&mut self, id: u32);

    /// Removes and returns the member to evict: the first for which `judge` returns [`Verdict::Evict`].
    ///
    /// The policy may remember its id as a ghost. Returns `None` if `judge` let none of the members go.
    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32>;

    /// Inserts a victim again that was not evicted after all, as the next candidate.
    fn restore(&mut self, id: u32, bytes: u64);

    /// Whether an id is a member.
    fn contains(&self, id: u32) -> bool;

    /// Number of members and their total bytes.
    fn totals(&self) -> (usize, u64);
}

/// Which eviction policy a tier uses.
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
    /// All, in the order of the words of the setting `policy`.
    pub const ALL: [Self; 3] = [Self::Lru, Self::Sieve, Self::S3Fifo];

    /// Builds an empty policy.
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
            Self::S3Fifo => Box::<S3Fifo>::default(),
        }
    }
}
