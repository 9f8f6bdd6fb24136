//! In which tiers a buffer has memory, and in which of them the contents are current.
//!
//! Promises upward: no transition loses the current contents; the error of a refused transition says what to do first.
//! The same rules hold for a buffer on host and device and for one on five tiers. Pure and `Copy`: it records
//! transitions, and moves no bytes.
//! Asks from below: nothing.
//!
//! The state is two sets of tiers: `present` (they have memory) and `valid` (their copy is current). With two tiers:
//!
//! ```text
//! host only     present {host}          valid {host}           read host -> same     write host -> same
//! device only   present {device}        valid {device}         copy -> both          evict -> refused, last copy
//! both          present {host, device}  valid {host, device}   write host -> host dirty
//! host dirty    present {host, device}  valid {host}           copy host, device -> both
//! device dirty  present {host, device}  valid {device}         read host -> refused, copy first
//! ```
//!
//! A tier is dirty when it alone is valid while another holds an older copy.
//!
//! Invariants: `valid` is not empty; `valid` is a subset of `present`.

use crate::error::{Violation, ensure};
use bitflags::bitflags;
use core::fmt;

/// Number of a tier, below [`TIERS`]. By convention 0 is the fastest, or the host where there are two.
pub type Tier = u8;

/// Maximum number of tiers: the bits of a set.
pub const TIERS: u8 = u8::BITS as u8;

/// A transition of a buffer's residence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Memory is allocated in a tier; its contents are undefined.
    Reserve(Tier),
    /// The contents will be read in a tier.
    Read(Tier),
    /// A part of the contents will be written in a tier.
    Update(Tier),
    /// All of the contents will be overwritten in a tier.
    Overwrite(Tier),
    /// The contents are copied to a tier, where memory is allocated if there is none.
    Copy {
        /// A tier whose copy is current.
        from: Tier,
        /// Another tier, whose copy becomes current.
        to: Tier,
    },
    /// The memory in a tier is freed.
    Evict(Tier),
}

/// Why a transition is refused. The residence is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidenceError {
    /// The copy in the transition's tier is stale: copy from `from` first (the lowest-numbered valid tier).
    CopyFirst {
        /// A tier whose copy is current.
        from: Tier,
    },
    /// The buffer has no memory in the transition's tier: reserve it or copy to it first.
    NotPresent,
    /// The buffer has memory in the transition's tier already.
    AlreadyPresent,
    /// The transition's tier has the only current copy: copy it to another tier first.
    LastCopy,
    /// The transition is a copy from a tier to itself.
    SameTier,
    /// The number of the tier is not below [`TIERS`].
    NoSuchTier,
}

impl fmt::Display for ResidenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CopyFirst { from } => write!(f, "the bytes in this tier are old: copy them from tier {from} first"),
            Self::NotPresent => write!(f, "the buffer has no memory in this tier: reserve it or copy to it first"),
            Self::AlreadyPresent => write!(f, "the buffer has memory in this tier already"),
            Self::LastCopy => write!(f, "the newest bytes are in this tier only: copy them away first"),
            Self::SameTier => write!(f, "a copy needs two different tiers"),
            Self::NoSuchTier => write!(f, "tiers are numbered from 0 to {}", TIERS - 1),
        }
    }
}

impl core::error::Error for ResidenceError {}

bitflags! {
    /// A set of tiers: bit n stands for tier n.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct TierSet: u8 {
        const _ = !0;
    }
}

impl TierSet {
    /// The set of this one tier; an error if the number is too large.
    fn of(tier: Tier) -> Result<Self, ResidenceError> {
        if tier < TIERS { Ok(Self::from_bits_retain(1 << tier)) } else { Err(ResidenceError::NoSuchTier) }
    }
}

/// The residence of one buffer: two sets of tiers.
///
/// # Example
/// ```
/// use terrace_core::residence::{Transition, ResidenceError, Residence};
/// const HOST: u8 = 0;
/// const DEVICE: u8 = 1;
/// let mut buffer = Residence::new(HOST)?;
/// buffer.apply(Transition::Copy { from: HOST, to: DEVICE })?;
/// buffer.apply(Transition::Update(DEVICE))?;
/// assert_eq!(buffer.dirty(), Some(DEVICE));
/// assert_eq!(buffer.apply(Transition::Read(HOST)), Err(ResidenceError::CopyFirst { from: DEVICE }));
/// buffer.apply(Transition::Copy { from: DEVICE, to: HOST })?;
/// assert_eq!((buffer.dirty(), buffer.valid(HOST)), (None, true));
/// # Ok::<(), ResidenceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Residence {
    /// Set of the tiers in which the buffer has memory.
    present: TierSet,
    /// Set of the tiers whose copy is current: not empty, a subset of `present`.
    valid: TierSet,
}

impl Residence {
    /// A new buffer with memory in one tier.
    ///
    /// # Errors
    /// [`ResidenceError::NoSuchTier`].
    pub fn new(tier: Tier) -> Result<Self, ResidenceError> {
        TierSet::of(tier).map(|set| Self { present: set, valid: set })
    }

    /// Whether the buffer has memory in a tier.
    pub fn present(&self, tier: Tier) -> bool {
        TierSet::of(tier).is_ok_and(|set| self.present.contains(set))
    }

    /// Whether the copy in a tier is current.
    pub fn valid(&self, tier: Tier) -> bool {
        TierSet::of(tier).is_ok_and(|set| self.valid.contains(set))
    }

    /// The tier with the only current copy, while other tiers have stale ones.
    pub fn dirty(&self) -> Option<Tier> {
        let alone = self.valid.bits().is_power_of_two() && self.valid != self.present;
        alone.then(|| self.best())
    }

    /// The lowest-numbered tier whose copy is current: the source for copies.
    pub fn best(&self) -> Tier {
        self.valid.bits().trailing_zeros() as Tier
    }

    /// Applies a transition. O(1).
    ///
    /// # Errors
    /// [`ResidenceError`]: why the transition is refused; the residence is then unchanged.
    pub fn apply(&mut self, change: Transition) -> Result<(), ResidenceError> {
        *self = match change {
            Transition::Reserve(tier) => self.reserve(TierSet::of(tier)?),
            Transition::Read(tier) => self.fresh(TierSet::of(tier)?),
            Transition::Update(tier) => self.update(TierSet::of(tier)?),
            Transition::Overwrite(tier) => self.overwrite(TierSet::of(tier)?),
            Transition::Copy { from, to } => self.copy(TierSet::of(from)?, TierSet::of(to)?),
            Transition::Evict(tier) => self.evict(TierSet::of(tier)?),
        }?;
        Ok(())
    }

    /// Returns `self` if the tier has memory.
    fn held(self, tier: TierSet) -> Result<Self, ResidenceError> {
        if self.present.contains(tier) { Ok(self) } else { Err(ResidenceError::NotPresent) }
    }

    /// Returns `self` if the tier's copy is current.
    fn fresh(self, tier: TierSet) -> Result<Self, ResidenceError> {
        self.held(tier)?;
        if self.valid.contains(tier) { Ok(self) } else { Err(ResidenceError::CopyFirst { from: self.best() }) }
    }

    fn reserve(self, tier: TierSet) -> Result<Self, ResidenceError> {
        if self.present.contains(tier) {
            return Err(ResidenceError::AlreadyPresent);
        }
        Ok(Self { present: self.present | tier, ..self })
    }

    fn update(self, tier: TierSet) -> Result<Self, ResidenceError> {
        self.fresh(tier).map(|_| Self { valid: tier, ..self })
    }

    fn overwrite(self, tier: TierSet) -> Result<Self, ResidenceError> {
        self.held(tier).map(|_| Self { valid: tier, ..self })
    }

    fn copy(self, from: TierSet, to: TierSet) -> Result<Self, ResidenceError> {
        if from == to {
            return Err(ResidenceError::SameTier);
        }
        self.fresh(from)?;
        Ok(Self { present: self.present | to, valid: self.valid | to })
    }

    fn evict(self, tier: TierSet) -> Result<Self, ResidenceError> {
        self.held(tier)?;
        if self.valid == tier {
            return Err(ResidenceError::LastCopy);
        }
        Ok(Self { present: self.present - tier, valid: self.valid - tier })
    }

    /// Checks the invariants. O(1).
    ///
    /// # Errors
    /// The invariant that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        ensure(!self.valid.is_empty(), "residence: valid is not empty", self.present.bits())?;
        ensure(self.present.contains(self.valid), "residence: valid is a subset of present", self.valid.bits())
    }
}
