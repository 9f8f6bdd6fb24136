//! Which buffer leaves a tier when room is needed: LRU, SIEVE or S3-FIFO, chosen for each manager.
//!
//! Promises upward: no call but an insertion of a higher number than ever before takes memory; insertion, touch and
//! removal are O(1); a victim is found in O(1) amortised over touches, and [`Policy::victim`] asks about each member at
//! most once. Which victim is a function of the calls alone.
//! Asks from below: `list`, linked lists in one table.
//!
//! Members are numbers below 2^32, small ones (they index a table), with a size each: shares of queues and what is
//! remembered of evicted members are counted in bytes, which together are below 2^64.
//!
//! | policy | victim | a scan of members that are used once |
//! | --- | --- | --- |
//! | [`Lru`] | unused for longest | evicts everything else |
//! | [`Sieve`] | the first that was not used since the hand came by | is evicted, for the most part, itself |
//! | [`S3Fifo`] | in the small queue if it was hardly used there, else in the main one | is evicted itself |
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

/// What may be done about a member that is the next victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Evict,
    /// It cannot go now; that says nothing about its use (it is protected, or on its way).
    Skip,
    /// It cannot go: it is in use, or was used since it was asked about last. Counts as a touch. This way a use that
    /// only left a mark beside its buffer reaches the policy when it matters.
    Referenced,
}

/// An order of eviction over the members of one tier.
pub trait Policy: Send {
    /// Takes a member in, as one that was used just now. A member that is in already keeps its place.
    fn insert(&mut self, id: u32, bytes: u64);

    /// A member was used. Others are ignored.
    fn touch(&mut self, id: u32);

    /// Takes a member out and forgets all about it: it was freed, or left for another reason than eviction.
    fn remove(&mut self, id: u32);

    /// Takes out the member that should leave first, of those that may. It may be remembered as evicted. `None`: every
    /// member was asked, and none may leave.
    fn victim(&mut self, judge: &mut dyn FnMut(u32) -> Verdict) -> Option<u32>;

    /// Takes back a victim that stays after all, as the next one to be asked about.
    fn restore(&mut self, id: u32, bytes: u64);

    /// Whether it is a member.
    fn contains(&self, id: u32) -> bool;

    /// Members, and their bytes.
    fn totals(&self) -> (usize, u64);
}

/// Which policy.
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
    /// An empty one.
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
            Self::S3Fifo => Box::<S3Fifo>::default(),
        }
    }
}
