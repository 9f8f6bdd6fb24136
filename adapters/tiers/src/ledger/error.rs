//! Errors of the ledger.

use std::fmt;
use terrace_core::residence;

/// Why a request for a buffer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The request is for 0 bytes.
    Empty,
    /// The buffer is larger than the bytes that the tenant may use in any tier.
    TooLarge,
    /// The buffer would exceed the tenant's cap, by itself or together with the tenant's other buffers; a request that
    /// waits is refused only if it does so by itself.
    OverCap,
    /// No tier has room, and none can be made now: the buffers that could leave are leased or guaranteed, or lower
    /// tiers have no room for them.
    NoRoom,
    /// The requester cancelled it.
    Cancelled,
}

/// A refused request: the reason, and the largest buffer that there was room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// Bytes requested.
    pub requested: u64,
    /// Size in bytes of the largest buffer that there was room for at that moment (for [`RefusalReason::TooLarge`]:
    /// that there can ever be room for).
    pub largest: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, requested, largest } = self;
        match reason {
            RefusalReason::Empty => write!(f, "a buffer of 0 bytes was asked for: ask for 1 at least"),
            RefusalReason::TooLarge => {
                write!(
                    f,
                    "{requested} bytes are more than any tier holds: ask for {largest} at most, or raise a capacity"
                )
            }
            RefusalReason::OverCap => {
                write!(
                    f,
                    "{requested} bytes would pass the tenant's cap, which leaves {largest}: free buffers or raise the cap"
                )
            }
            RefusalReason::NoRoom => write!(
                f,
                "no room for {requested} bytes, {largest} are free in one tier: give leases back, free buffers, raise a capacity, \
                 or wait"
            ),
            RefusalReason::Cancelled => write!(f, "the request for {requested} bytes was cancelled"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why an event was rejected. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The buffer was freed, or is another ledger's.
    Stale,
    /// There is no such tier, or its capacity is 0.
    NoSuchTier,
    /// There is no such tenant.
    NoSuchTenant,
    /// A request with this ticket waits, or was granted and its buffer not used yet.
    TicketInUse,
    /// There is no waiting request with this ticket, and no granted one whose buffer is still unused.
    NoSuchTicket,
    /// A lease of the buffer is held.
    Leased,
    /// A copy or a drop of the buffer is in progress, which excludes the event.
    Moving,
    /// No such copy or drop is in progress.
    NotUnderWay,
    /// The buffer's residence, the set of tiers that have copies, does not allow the event.
    Residence(residence::ResidenceError),
    /// There are 2^32 - 1 buffers, which is the maximum.
    Buffers,
}

impl From<residence::ResidenceError> for Rejected {
    fn from(refusal: residence::ResidenceError) -> Self {
        Self::Residence(refusal)
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the buffer was freed, or is not of this manager",
            Self::NoSuchTier => "there is no such tier here, or it has no capacity: see what tiers there are",
            Self::NoSuchTenant => "there is no such tenant: name it when the manager is made",
            Self::TicketInUse => "the ticket is in use: take another number",
            Self::NoSuchTicket => "no request with this ticket waits or was granted lately",
            Self::Leased => "a lease of the buffer is held: give it back first",
            Self::Moving => "the buffer is being moved: wait until it is there",
            Self::NotUnderWay => "no such copy or drop is under way",
            Self::Residence(refusal) => return refusal.fmt(f),
            Self::Buffers => "there are 4294967295 buffers: free some",
        })
    }
}

impl std::error::Error for Rejected {}

/// Why no ledger can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// There is no tier with a capacity.
    NoTiers,
    /// There are more than 8 tiers.
    TooManyTiers,
    /// There is no tenant, or there are more than 65535.
    Tenants,
    /// All tenants together are guaranteed more bytes of a tier than its capacity.
    Guaranteed {
        /// The tier.
        tier: u8,
        /// Bytes guaranteed.
        guaranteed: u64,
        /// Capacity of the tier in bytes.
        capacity: u64,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTiers => write!(f, "no tier has a capacity: name one at least"),
            Self::TooManyTiers => write!(f, "there are more than 8 tiers"),
            Self::Tenants => write!(f, "there is no tenant, or there are more than 65535"),
            Self::Guaranteed { tier, guaranteed, capacity } => {
                write!(f, "tenants are promised {guaranteed} bytes of tier {tier}, which has {capacity}: promise less")
            }
        }
    }
}

impl std::error::Error for SetupError {}
