//! What goes into the ledger and what comes out of it.

use super::error::Refusal;
use crate::policy::PolicyKind;
use std::fmt;
use terrace_core::pressure::Level;
use terrace_core::residence::{Residence, TIERS, Tier};

/// A buffer. Names of freed buffers are never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl BufferId {
    /// Of no buffer, in any ledger.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// Its place in tables: small, and given again after the buffer is freed.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {}.{}", self.index, self.generation)
    }
}

/// What a tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Bytes that a device reaches by address, and processors by copies.
    Device,
    /// Bytes that a processor reaches by address.
    Memory,
    /// Bytes in a file.
    File,
}

/// One tier, as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// What it is made of.
    pub medium: Medium,
    /// Bytes it may hold; 0 for absent. More than 2^60 count as 2^60.
    pub capacity: u64,
    /// What a copy takes here is counted in multiples of so many bytes: 1 counts them as they are. At least 1.
    pub unit: u64,
}

/// What one tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// The most bytes of its buffers, each counted once however many copies there are.
    pub cap: u64,
    /// The most bytes of its copies in each tier.
    pub tier_caps: [u64; TIERS as usize],
    /// Bytes of its copies in each tier below which no other tenant, nor maintenance, evicts it. Nothing is kept free
    /// for it.
    pub guaranteed: [u64; TIERS as usize],
}

impl TenantQuota {
    /// No caps, nothing promised.
    pub const UNLIMITED: Self =
        Self { cap: u64::MAX, tier_caps: [u64::MAX; TIERS as usize], guaranteed: [0; TIERS as usize] };
}

/// What a ledger is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tiers, the best first: at most 8.
    pub tiers: Vec<TierSpec>,
    /// The tenants: numbered from 0.
    pub tenants: Vec<TenantQuota>,
    /// Who leaves a tier first.
    pub policy: PolicyKind,
    /// Two touches at most so far apart promote. In the unit of [`LedgerEvent::Tick`].
    pub touch_window: u64,
    /// Bytes that maintenance sets in motion in a tick; a buffer larger than that goes alone. 0 for no maintenance.
    pub maintenance_budget: u64,
    /// For how long a tier takes nothing after a copy into it failed; twice as long after each further failure, up to
    /// 64 times. In the unit of [`LedgerEvent::Tick`].
    pub backoff: u64,
}

impl Settings {
    /// One tenant without limits, S3-FIFO, and times in milliseconds.
    ///
    /// Promotion on a second touch within ten seconds, 64 MiB of maintenance in a tick, a second of rest after a
    /// failure.
    pub fn new(tiers: Vec<TierSpec>) -> Self {
        let (tenants, policy) = (vec![TenantQuota::UNLIMITED], PolicyKind::default());
        Self { tiers, tenants, policy, touch_window: 10_000, maintenance_budget: 64 << 20, backoff: 1_000 }
    }
}

/// What a user would like for a buffer. The ledger is free to do otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementHint {
    /// Where it should live, if there is room or room can be made.
    pub tier: Option<Tier>,
    /// Evict others first, as long as that is enough.
    pub keep: bool,
}

/// What the world says about a buffer's lease word.
///
/// Whoever answers [`LeaseStatus::Leased`] sees to it that the end of that lease is told by [`LedgerEvent::Released`] (a refused
/// `close` of the word asks for that); [`LeaseStatus::RecentlyUsed`] takes the word's visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// No lease is held, and none was since this was asked last.
    Idle,
    /// There was one since.
    RecentlyUsed,
    /// A lease is held.
    Leased,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The bytes are in both tiers.
    Done,
    /// A lease was there first: nothing was copied.
    Leased,
    /// The bytes could not be had where they are: nothing was copied.
    SourceFailed,
    /// The target had no room after all: nothing is there.
    Full,
    /// It failed: nothing is there.
    Failed,
}

/// What happened. Times and leases come from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// Somebody asks for a buffer. Answered once, by [`Action::Grant`] or [`Action::Refuse`].
    Allocate {
        /// Names the request; not in use.
        ticket: u64,
        /// How many.
        bytes: u64,
        /// For whom.
        tenant: u16,
        /// Whether it waits for what others may free. If not, it waits only while the ledger makes room by itself.
        wait: bool,
        /// Where, best.
        hint: PlacementHint,
    },
    /// A buffer is there since an earlier start: granted at once in its tier, also beyond capacity and caps. Refused
    /// only when it is empty, and where sums would overflow. A tier, or a tenant, that has more than it may takes
    /// nothing in until enough of it has left.
    Adopt {
        /// Names the request; not in use.
        ticket: u64,
        /// How many.
        bytes: u64,
        /// Whose.
        tenant: u16,
        /// Where it is.
        tier: Tier,
    },
    /// The asker is gone. A ticket that was granted and not used yet is freed, so that the next gets it.
    Cancel {
        /// Which request.
        ticket: u64,
    },
    /// The user is done with a buffer. No lease of it is held. If a copy or drop of it is under way, that still ends by
    /// its event, and then it is forgotten.
    Free {
        /// Which.
        id: BufferId,
    },
    /// A buffer was used. Not needed for each use: a search for room sees [`LeaseStatus::RecentlyUsed`] too. The second within the
    /// window promotes, and evicts for it, unless a request waits that only others can help.
    Touch {
        /// Which.
        id: BufferId,
    },
    /// The bytes in a tier were written: other copies are old now.
    Wrote {
        /// Which buffer.
        id: BufferId,
        /// Where.
        tier: Tier,
    },
    /// The user wants a copy in a better tier, and others evicted for it; not while room is made for a request. The
    /// copy where it was stays. Answered by [`Action::MoveFinished`].
    Promote {
        /// Which buffer.
        id: BufferId,
        /// Where.
        to: Tier,
    },
    /// The user wants no copy in tiers better than this one, and one here if there is none below. Answered by
    /// [`Action::MoveFinished`].
    Demote {
        /// Which buffer.
        id: BufferId,
        /// Where.
        to: Tier,
    },
    /// The user wants a copy in a tier, others stay. Answered by [`Action::MoveFinished`].
    Replicate {
        /// Which buffer.
        id: BufferId,
        /// Where.
        to: Tier,
    },
    /// It will be used soon: promoted if there is room and no request waits for any.
    Prefetch {
        /// Which buffer.
        id: BufferId,
    },
    /// A lease that stood in the way was given back.
    Released {
        /// Which buffer.
        id: BufferId,
    },
    /// A copy has ended.
    CopyEnded {
        /// Which buffer.
        id: BufferId,
        /// As in the action.
        from: Tier,
        /// As in the action.
        to: Tier,
        /// How.
        outcome: CopyOutcome,
    },
    /// A drop has ended.
    DropEnded {
        /// Which buffer.
        id: BufferId,
        /// As in the action.
        tier: Tier,
        /// Whether the copy is gone; otherwise a lease was there first.
        done: bool,
    },
    /// The copy in a tier survives a power cut. It is not dropped until another one does.
    Synced {
        /// Which buffer.
        id: BufferId,
        /// Where.
        tier: Tier,
    },
    /// A tier had no memory for a buffer that was granted there: it rests.
    TierRefused {
        /// Which.
        tier: Tier,
    },
    /// What made a tier refuse is gone: it rests no more.
    TierRecovered {
        /// Which.
        tier: Tier,
    },
    /// A tier has another capacity.
    Resize {
        /// Which.
        tier: Tier,
        /// Bytes.
        capacity: u64,
    },
    /// Time passes, and maintenance is done.
    Tick {
        /// Any unit, never less than before.
        now: u64,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request has its buffer: make it in that tier. What it holds means nothing yet.
    Grant {
        /// Whose.
        ticket: u64,
        /// Its name.
        id: BufferId,
        /// Where.
        tier: Tier,
        /// The memory may have been another tenant's: zero it first.
        zero: bool,
    },
    /// A request has none.
    Refuse {
        /// Whose.
        ticket: u64,
        /// Why.
        error: Refusal,
    },
    /// Close the buffer, copy its bytes, say [`LedgerEvent::CopyEnded`]. The room in the target is taken from now on; there may
    /// be an old copy there already, which the bytes replace.
    Copy {
        /// Which buffer.
        id: BufferId,
        /// Where its newest bytes are.
        from: Tier,
        /// Where they are wanted too.
        to: Tier,
    },
    /// Give a copy's memory back, say [`LedgerEvent::DropEnded`]. Its bytes are elsewhere, or old.
    Drop {
        /// Which buffer.
        id: BufferId,
        /// Where.
        tier: Tier,
    },
    /// Give all memory of a freed buffer back, now: its room is given to others by the actions that follow.
    Forget {
        /// Which buffer.
        id: BufferId,
    },
    /// What a user wanted of a buffer is so, or will not be: no room, no such chance, or the user wanted something else
    /// since.
    MoveFinished {
        /// Which buffer.
        id: BufferId,
        /// As in the event.
        to: Tier,
        /// Whether it is so.
        satisfied: bool,
    },
    /// A tier's level changed. Above its capacity, after [`LedgerEvent::Resize`] or [`LedgerEvent::Adopt`], it is critical.
    Pressure {
        /// Which.
        tier: Tier,
        /// The level now.
        level: Level,
    },
}

/// What is known of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// Its size.
    pub bytes: u64,
    /// Whose it is.
    pub tenant: u16,
    /// Where its copies are.
    pub residence: Residence,
    /// How often it was written.
    pub version: u64,
    /// Where a copy survives a power cut, and of which version.
    pub synced: Option<(Tier, u64)>,
    /// Whether a copy or a drop is under way.
    pub moving: bool,
    /// Whether it met a lease or a failure, and is left alone until the lease is given back, or the next tick.
    pub deferred: bool,
}

/// What is known of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierView {
    /// What it is made of.
    pub medium: Medium,
    /// Bytes it may hold.
    pub capacity: u64,
    /// Bytes of copies, and of copies under way to it.
    pub used: u64,
    /// Bytes of those that are about to leave.
    pub leaving: u64,
    /// How full that is.
    pub level: Level,
    /// Copies into it failed: it takes nothing until then, in the unit of [`LedgerEvent::Tick`], or until
    /// [`LedgerEvent::TierRecovered`].
    pub suspended_until: Option<u64>,
}
