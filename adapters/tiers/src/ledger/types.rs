//! Types of the ledger's interface: settings, events, actions, views.

use super::error::Refusal;
use crate::policy::PolicyKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_core::pressure::Level;
use terrace_core::residence::{TIERS, Tier};

/// The id of a buffer. Ids of freed buffers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl BufferId {
    /// An id that no buffer of any ledger has.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// The id with this index and generation, as [`index`](Self::index) and [`generation`](Self::generation) gave them.
    #[cfg(feature = "track")]
    pub(crate) fn from_parts(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// How many buffers had the index before.
    #[cfg(feature = "track")]
    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    /// The buffer's index in tables: small, and reused after the buffer is freed.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {}.{}", self.index, self.generation)
    }
}

/// What a tier stores bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// Memory that only a device addresses: processors reach it by copies.
    Device,
    /// Memory that processors address.
    Memory,
    /// Files.
    File,
}

/// The settings of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// What the tier stores bytes in.
    pub medium: Medium,
    /// Bytes that the tier may hold; 0 for an absent tier. More than 2^60 count as 2^60.
    pub capacity: u64,
    /// The size of a copy is rounded up to a multiple of this many bytes. At least 1, which rounds nothing.
    pub unit: u64,
}

/// The limits and guarantees of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Most bytes that all buffers of the tenant may have, each buffer counted once however many copies it has.
    pub cap: u64,
    /// Most bytes that the tenant's copies may take in each tier.
    pub tier_caps: [u64; TIERS as usize],
    /// Guaranteed bytes in each tier: while the tenant's copies take no more, neither other tenants nor maintenance
    /// evict them. No room is kept free for the tenant.
    pub guaranteed: [u64; TIERS as usize],
}

impl TenantQuota {
    /// No caps, no guarantees.
    pub const UNLIMITED: Self =
        Self { cap: u64::MAX, tier_caps: [u64::MAX; TIERS as usize], guaranteed: [0; TIERS as usize] };
}

/// The settings of a ledger.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tiers, best first: at most 8.
    pub tiers: Vec<TierSpec>,
    /// The tenants, numbered from 0.
    pub tenants: Vec<TenantQuota>,
    /// The eviction policy of each tier.
    pub policy: PolicyKind,
    /// The second touch of a buffer within this time promotes it. In the unit of [`LedgerEvent::Tick`].
    pub touch_window: u64,
    /// Most bytes that maintenance begins to move in one tick; a larger buffer moves alone. 0 for no maintenance.
    pub maintenance_budget: u64,
    /// Room is made ahead of demand in a tier to which at least this many bytes come between two ticks.
    pub ahead_from: u64,
    /// How long a tier is suspended after a copy into it failed, in the unit of [`LedgerEvent::Tick`]. Each further
    /// failure doubles the time, up to 64 times this.
    pub backoff: u64,
}

impl Settings {
    /// The defaults: one tenant without limits, S3-FIFO, and times in milliseconds.
    ///
    /// A second touch within ten seconds promotes; maintenance moves 64 MiB in a tick; room is made
    /// ahead from 8 MiB a tick on, as one copy at a time serves less; the backoff is one second.
    pub fn new(tiers: Vec<TierSpec>) -> Self {
        let (tenants, policy) = (vec![TenantQuota::UNLIMITED], PolicyKind::default());
        let (maintenance_budget, ahead_from) = (64 << 20, 8 << 20);
        Self { tiers, tenants, policy, touch_window: 10_000, maintenance_budget, ahead_from, backoff: 1_000 }
    }
}

/// A user's preferences for a buffer, which the ledger may ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementHint {
    /// The preferred tier, if it has room or room can be made.
    pub tier: Option<Tier>,
    /// Whether to evict other buffers first, as long as these free enough bytes.
    pub keep: bool,
}

/// How a buffer is leased, as the caller reports it when the ledger decides.
///
/// A caller that reports [`LeaseStatus::Leased`] must send [`LedgerEvent::Released`] when the last lease ends; a
/// `close` of the lease word that is refused makes the last release say so. A caller that reports
/// [`LeaseStatus::RecentlyUsed`] must reset the word's visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// No lease is held, and none was since the last report.
    Idle,
    /// No lease is held, but so many were since the last report, as far as the caller counts: at least one.
    RecentlyUsed(u8),
    /// A lease is held.
    Leased,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// Both tiers have the bytes.
    Done,
    /// A lease was held: nothing was copied.
    Leased,
    /// The source could not be read: nothing was copied.
    SourceFailed,
    /// The target had no room after all: it has no valid copy.
    Full,
    /// The copy failed: the target has no valid copy.
    Failed,
}

/// Something that happened outside the ledger, which the caller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// A user requests a buffer. Answered once, by [`Action::Grant`] or [`Action::Refuse`].
    Allocate {
        /// Number that identifies the request; must not be in use.
        ticket: u64,
        /// Size of the buffer.
        bytes: u64,
        /// Its tenant.
        tenant: u16,
        /// Whether the request waits until other users free buffers. If not, it waits only while the ledger makes room.
        wait: bool,
        /// Preferences for its placement.
        hint: PlacementHint,
    },
    /// A user opens a dormant buffer, one that [`recover`](super::Ledger::recover) has counted: from now on the ledger
    /// knows it by an id. It is granted at once in its tier, where its bytes count already, as a buffer that was used and
    /// whose copy survives a power cut. Rejected as stale if no dormant buffer can be this one.
    Adopt {
        /// Number that identifies the request; must not be in use.
        ticket: u64,
        /// Size of the buffer.
        bytes: u64,
        /// Its tenant.
        tenant: u16,
        /// The tier that has the buffer.
        tier: Tier,
    },
    /// The requester gave up. If the request was granted and its buffer not used yet, the buffer is freed.
    Cancel {
        /// The request.
        ticket: u64,
    },
    /// The user frees a buffer; no lease of it may be held. If a migration is in progress, the caller must still report
    /// its end; the buffer is forgotten then.
    Free {
        /// The buffer.
        id: BufferId,
    },
    /// A buffer was used. Not every use need be reported: a search for room also sees [`LeaseStatus::RecentlyUsed`].
    /// The second touch within [`Settings::touch_window`] promotes the buffer, and evicts others for it, unless a
    /// request waits for other users to free buffers.
    Touch {
        /// The buffer.
        id: BufferId,
    },
    /// The buffer's copy in a tier was written: its other copies are stale now.
    Wrote {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// The user requests a copy in a better tier. Other buffers are evicted for it, but not while the ledger makes room
    /// for an allocation; existing copies stay. Answered by [`Action::MoveFinished`]. A prefetch to the same tier, if
    /// one is pending, becomes this request: both are answered once.
    Promote {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user requests that all tiers better than `to` drop their copies. If neither `to` nor a lower tier has a
    /// valid copy, the buffer is copied to `to` first. Answered by [`Action::MoveFinished`].
    Demote {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user requests a copy in a tier; copies in other tiers stay. Answered by [`Action::MoveFinished`].
    Replicate {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user will use a buffer soon: it is promoted to the tier of its hint, or else to the best memory tier that
    /// accepts it, unless a request waits for other users to free buffers. Others are evicted for it, but none that was
    /// prefetched and not used yet: no policy evicts such a buffer while others are enough. Answered by
    /// [`Action::MoveFinished`].
    Prefetch {
        /// The buffer.
        id: BufferId,
    },
    /// The user has used a buffer and will not soon again: it is the first to leave when room is needed. The caller must
    /// reset the word's visits.
    Used {
        /// The buffer.
        id: BufferId,
    },
    /// A lease that blocked a migration was released.
    Released {
        /// The buffer.
        id: BufferId,
    },
    /// A copy ended.
    CopyEnded {
        /// The buffer.
        id: BufferId,
        /// As in the action.
        from: Tier,
        /// As in the action.
        to: Tier,
        /// How it ended.
        outcome: CopyOutcome,
    },
    /// A drop ended.
    DropEnded {
        /// The buffer.
        id: BufferId,
        /// As in the action.
        tier: Tier,
        /// Whether the copy was dropped; if not, a lease was held.
        done: bool,
    },
    /// The copy in a tier survives a power cut now. The ledger does not drop it until another copy survives one.
    Synced {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// A tier had no memory for a buffer that the ledger granted there: the ledger suspends the tier.
    TierRefused {
        /// The tier.
        tier: Tier,
    },
    /// The cause of a tier's suspension is gone: the tier takes copies again.
    TierRecovered {
        /// The tier.
        tier: Tier,
    },
    /// The capacity of a tier changed.
    Resize {
        /// The tier.
        tier: Tier,
        /// The new capacity in bytes.
        capacity: u64,
    },
    /// Other programs need a tier's memory for a while, or no longer: the tier holds no more than `bytes`, whatever its
    /// capacity. A request that fits the capacity is not too large meanwhile: it waits, or there is no room for it.
    Budget {
        /// The tier.
        tier: Tier,
        /// Bytes that the tier may hold for now; `u64::MAX` for as many as its capacity.
        bytes: u64,
    },
    /// Time has passed: maintenance is due.
    Tick {
        /// The current time, in any unit; must not be less than in earlier ticks.
        now: u64,
    },
}

/// What the caller must do, in the order of the actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request is granted: allocate memory for its buffer in this tier. The contents are undefined until they are
    /// written.
    Grant {
        /// The request.
        ticket: u64,
        /// The new buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
        /// Whether to zero the memory first, as it may have held another tenant's bytes.
        zero: bool,
    },
    /// A request is refused.
    Refuse {
        /// The request.
        ticket: u64,
        /// The reason.
        error: Refusal,
    },
    /// Close the buffer's lease word, copy its bytes, then send [`LedgerEvent::CopyEnded`]. Room in the target is
    /// reserved already; a stale copy there is overwritten.
    Copy {
        /// The buffer.
        id: BufferId,
        /// The tier that has the newest bytes.
        from: Tier,
        /// The tier that is to have the newest bytes too.
        to: Tier,
    },
    /// Free the memory of a copy, then send [`LedgerEvent::DropEnded`]. Another copy has the bytes, or they are stale.
    Drop {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// Free all memory of a freed buffer before the next action, which may grant its room to others.
    Forget {
        /// The buffer.
        id: BufferId,
    },
    /// A user's move request has ended. It is not satisfied if there was no room, the bytes could not be read, the move
    /// is impossible, the buffer was freed, or a newer request replaced this one.
    MoveFinished {
        /// The buffer.
        id: BufferId,
        /// As in the event.
        to: Tier,
        /// Whether the request is satisfied.
        satisfied: bool,
    },
    /// The pressure level of a tier changed. The level is critical while the tier holds more than its capacity, after
    /// [`LedgerEvent::Resize`] or [`Ledger::recover`](super::Ledger::recover).
    Pressure {
        /// The tier.
        tier: Tier,
        /// The new level.
        level: Level,
    },
}
