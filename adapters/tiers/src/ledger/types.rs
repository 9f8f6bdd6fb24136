//! Types of the ledger's interface: settings, events, actions, views.

use super::error::Refusal;
use crate::policy::PolicyKind;
use std::fmt;
use terrace_core::pressure::Level;
use terrace_core::residence::{Residence, TIERS, Tier};

/// The id of a buffer. Ids of freed buffers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl BufferId {
    /// The id of no buffer in any ledger.
    pub(crate) const NONE: Self = Self { index: u32::MAX, generation: 0 };

    /// Its index in tables: small, and reused after the buffer is freed.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Memory that a device addresses, and processors reach by copies.
    Device,
    /// Memory that processors address.
    Memory,
    /// Files.
    File,
}

/// The settings of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierSpec {
    /// What it stores bytes in.
    pub medium: Medium,
    /// Bytes it may hold; 0 for an absent tier. More than 2^60 count as 2^60.
    pub capacity: u64,
    /// Sizes of copies are rounded up to multiples of this; 1 for exact sizes. At least 1.
    pub unit: u64,
}

/// The limits and guarantees of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Most bytes of its buffers, each counted once however many copies there are.
    pub cap: u64,
    /// Most bytes of its copies in each tier.
    pub tier_caps: [u64; TIERS as usize],
    /// Bytes of its copies in each tier below which neither other tenants nor maintenance evict it. No room is kept
    /// free for it.
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
    /// Two touches no further apart than this promote. In the unit of [`LedgerEvent::Tick`].
    pub touch_window: u64,
    /// Bytes that maintenance begins to move in a tick; a larger buffer moves alone. 0 for no maintenance.
    pub maintenance_budget: u64,
    /// How long a tier is suspended after a copy into it failed; doubled after each further failure, up to 64 times. In
    /// the unit of [`LedgerEvent::Tick`].
    pub backoff: u64,
}

impl Settings {
    /// The defaults: one tenant without limits, S3-FIFO, and times in milliseconds.
    ///
    /// Promotion on a second touch within ten seconds, 64 MiB of maintenance in a tick, a backoff of one second.
    pub fn new(tiers: Vec<TierSpec>) -> Self {
        let (tenants, policy) = (vec![TenantQuota::UNLIMITED], PolicyKind::default());
        Self { tiers, tenants, policy, touch_window: 10_000, maintenance_budget: 64 << 20, backoff: 1_000 }
    }
}

/// A user's preferences for a buffer, which the ledger may ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementHint {
    /// The preferred tier, if it has room or room can be made.
    pub tier: Option<Tier>,
    /// Evict others first, as long as those are enough.
    pub keep: bool,
}

/// The state of a buffer's lease, read when the ledger decides.
///
/// A caller that reports [`LeaseStatus::Leased`] must send [`LedgerEvent::Released`] when that lease ends (a refused
/// `close` of the lease word asks for that). Reporting [`LeaseStatus::RecentlyUsed`] resets the word's visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// No lease is held, and none was since the last report.
    Idle,
    /// No lease is held, but one was since the last report.
    RecentlyUsed,
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
    /// The target had no room after all: it has no copy.
    Full,
    /// The copy failed: the target has no copy.
    Failed,
}

/// What happened. Times and leases come from outside the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// A user requests a buffer. Answered once, by [`Action::Grant`] or [`Action::Refuse`].
    Allocate {
        /// Identifies the request; must not be in use.
        ticket: u64,
        /// Size of the buffer.
        bytes: u64,
        /// Its tenant.
        tenant: u16,
        /// Whether it waits for frees of other users. If not, it waits only while the ledger makes room.
        wait: bool,
        /// Preferences for its placement.
        hint: PlacementHint,
    },
    /// A buffer exists since an earlier start: granted at once in its tier, even beyond capacity and caps. Refused only
    /// if it is empty or a sum would overflow. A tier or tenant above its limits takes nothing until enough of it has
    /// left.
    Adopt {
        /// Identifies the request; must not be in use.
        ticket: u64,
        /// Size of the buffer.
        bytes: u64,
        /// The request.
        tenant: u16,
        /// The tier that has it.
        tier: Tier,
    },
    /// The requester gave up. If the request was granted and its buffer not used yet, the buffer is freed.
    Cancel {
        /// The request.
        ticket: u64,
    },
    /// The user frees a buffer of which no lease is held. A migration in progress still ends by its event; then the
    /// buffer is forgotten.
    Free {
        /// The buffer.
        id: BufferId,
    },
    /// A buffer was used. Not needed for every use: a search for room sees [`LeaseStatus::RecentlyUsed`] too. The
    /// second touch within the window promotes the buffer and evicts for it, unless a request waits for frees of other
    /// users.
    Touch {
        /// The buffer.
        id: BufferId,
    },
    /// The copy in a tier was written: other copies are stale now.
    Wrote {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// The user requests a copy in a better tier, for which others are evicted, but not while room is made for a
    /// request. The copy where it was stays. Answered by [`Action::MoveFinished`].
    Promote {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user requests that no better tier has a copy, and that this one gets one if no lower tier has any. Answered
    /// by [`Action::MoveFinished`].
    Demote {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user requests a copy in a tier; copies elsewhere stay. Answered by [`Action::MoveFinished`].
    Replicate {
        /// The buffer.
        id: BufferId,
        /// The target tier.
        to: Tier,
    },
    /// The user will use a buffer soon: promoted if there is room that no request waits for.
    Prefetch {
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
        /// Whether the copy is gone; if not, a lease was held.
        done: bool,
    },
    /// The copy in a tier survives a power cut. It is not dropped until another one does.
    Synced {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// A tier had no memory for a buffer that was granted there: it is suspended.
    TierRefused {
        /// The tier.
        tier: Tier,
    },
    /// The cause of a tier's suspension is gone: it takes copies again.
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
    /// Time has passed: maintenance is due.
    Tick {
        /// The time in any unit, never less than before.
        now: u64,
    },
}

/// What the caller must do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request is granted: allocate its buffer in this tier. Its contents are undefined yet.
    Grant {
        /// The request.
        ticket: u64,
        /// The new buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
        /// The memory may have held another tenant's bytes: zero it first.
        zero: bool,
    },
    /// A request is refused.
    Refuse {
        /// The request.
        ticket: u64,
        /// The reason.
        error: Refusal,
    },
    /// Close the buffer's lease word, copy its bytes, send [`LedgerEvent::CopyEnded`]. Room in the target is reserved
    /// from now on; a stale copy there is overwritten.
    Copy {
        /// The buffer.
        id: BufferId,
        /// The tier that has the newest bytes.
        from: Tier,
        /// The tier that is to have them too.
        to: Tier,
    },
    /// Free a copy's memory, send [`LedgerEvent::DropEnded`]. Its bytes are elsewhere, or stale.
    Drop {
        /// The buffer.
        id: BufferId,
        /// The tier.
        tier: Tier,
    },
    /// Free all memory of a freed buffer now: the actions that follow grant its room to others.
    Forget {
        /// The buffer.
        id: BufferId,
    },
    /// A user's move request is finished: satisfied; or not, for lack of room, as the move is impossible, or as a newer
    /// request replaced it.
    MoveFinished {
        /// The buffer.
        id: BufferId,
        /// As in the event.
        to: Tier,
        /// Whether the request is satisfied.
        satisfied: bool,
    },
    /// The pressure level of a tier changed. Above its capacity, after [`LedgerEvent::Resize`] or
    /// [`LedgerEvent::Adopt`], it is critical.
    Pressure {
        /// The tier.
        tier: Tier,
        /// The new level.
        level: Level,
    },
}

/// The state of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its tenant.
    pub tenant: u16,
    /// The tiers that have copies.
    pub residence: Residence,
    /// Number of writes so far.
    pub version: u64,
    /// The tier of the copy that survives a power cut, and the version of that copy.
    pub synced: Option<(Tier, u64)>,
    /// Whether a copy or a drop is in progress.
    pub moving: bool,
    /// Whether it met a lease or a failure, and is not moved until the lease is released or until the next tick.
    pub deferred: bool,
}

/// The state of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierView {
    /// What it stores bytes in.
    pub medium: Medium,
    /// Bytes it may hold.
    pub capacity: u64,
    /// Bytes of copies, and of copies in progress to it.
    pub used: u64,
    /// Bytes of copies that are about to leave.
    pub leaving: u64,
    /// Its pressure level.
    pub level: Level,
    /// While suspended, when that ends, in the unit of [`LedgerEvent::Tick`]; [`LedgerEvent::TierRecovered`] ends it
    /// earlier.
    pub suspended_until: Option<u64>,
}
