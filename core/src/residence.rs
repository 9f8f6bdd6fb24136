//! In which tiers a buffer has memory, and in which of them the contents are current.
//!
//! Promises upward: no transition loses the current contents; a refused one says what to do first. The same rules for a
//! buffer on host and device and for one on five tiers. Pure and `Copy`: it records transitions, and moves no bytes.
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
    /// The copy in that tier is stale: copy from `from` first (the lowest-numbered valid tier).
    CopyFirst {
        /// A tier whose copy is current.
        from: Tier,
    },
    /// The buffer has no memory in that tier: reserve it or copy to it first.
    NotPresent,
    /// The buffer has memory in that tier already.
    AlreadyPresent,
    /// That tier has the only current copy: copy it to another tier first.
    LastCopy,
    /// A copy from a tier to itself.
    SameTier,
    /// The number is not below [`TIERS`].
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

/// The residence of one buffer: two sets with one bit for each tier.
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
    /// Tiers in which the buffer has memory.
    present: u8,
    /// Tiers whose copy is current: not empty, a subset of `present`.
    valid: u8,
}

/// The set of one tier only.
fn bit(tier: Tier) -> Result<u8, ResidenceError> {
    if tier < TIERS { Ok(1 << tier) } else { Err(ResidenceError::NoSuchTier) }
}

impl Residence {
    /// A new buffer with memory in one tier.
    ///
    /// # Errors
    /// [`ResidenceError::NoSuchTier`].
    pub fn new(tier: Tier) -> Result<Self, ResidenceError> {
        bit(tier).map(|set| Self { present: set, valid: set })
    }

    /// Whether the buffer has memory in a tier.
    pub fn present(&self, tier: Tier) -> bool {
        bit(tier).is_ok_and(|set| self.present & set != 0)
    }

    /// Whether the copy in a tier is current.
    pub fn valid(&self, tier: Tier) -> bool {
        bit(tier).is_ok_and(|set| self.valid & set != 0)
    }

    /// The tier with the only current copy, while other tiers have stale ones.
    pub fn dirty(&self) -> Option<Tier> {
        let alone = self.valid.is_power_of_two() && self.valid != self.present;
        alone.then(|| self.best())
    }

    /// The lowest-numbered tier whose copy is current: the source for copies.
    pub fn best(&self) -> Tier {
        self.valid.trailing_zeros() as Tier
    }

    /// Applies a transition. O(1).
    ///
    /// # Errors
    /// [`ResidenceError`]: why the transition is refused; nothing is changed then.
    pub fn apply(&mut self, change: Transition) -> Result<(), ResidenceError> {
        *self = match change {
            Transition::Reserve(tier) => self.reserve(bit(tier)?),
            Transition::Read(tier) => self.fresh(bit(tier)?),
            Transition::Update(tier) => self.fresh(bit(tier)?).map(|_| Self { valid: 1 << tier, ..*self }),
            Transition::Overwrite(tier) => self.held(bit(tier)?).map(|_| Self { valid: 1 << tier, ..*self }),
            Transition::Copy { from, to } => self.copy(bit(from)?, bit(to)?),
            Transition::Evict(tier) => self.evict(bit(tier)?),
        }?;
        Ok(())
    }

    /// Returns `self` if the tier has memory.
    fn held(self, set: u8) -> Result<Self, ResidenceError> {
        if self.present & set == 0 { Err(ResidenceError::NotPresent) } else { Ok(self) }
    }

    /// Returns `self` if the tier's copy is current.
    fn fresh(self, set: u8) -> Result<Self, ResidenceError> {
        self.held(set)?;
        if self.valid & set == 0 { Err(ResidenceError::CopyFirst { from: self.best() }) } else { Ok(self) }
    }

    fn reserve(self, set: u8) -> Result<Self, ResidenceError> {
        if self.present & set != 0 {
            return Err(ResidenceError::AlreadyPresent);
        }
        Ok(Self { present: self.present | set, ..self })
    }

    fn copy(self, from: u8, to: u8) -> Result<Self, ResidenceError> {
        if from == to {
            return Err(ResidenceError::SameTier);
        }
        self.fresh(from)?;
        Ok(Self { present: self.present | to, valid: self.valid | to })
    }

    fn evict(self, set: u8) -> Result<Self, ResidenceError> {
        self.held(set)?;
        if self.valid == set {
            return Err(ResidenceError::LastCopy);
        }
        Ok(Self { present: self.present & !set, valid: self.valid & !set })
    }

    /// Checks the invariants. O(1).
    ///
    /// # Errors
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        ensure(self.valid != 0, "residence: valid is not empty", self.present)?;
        ensure(self.valid & !self.present == 0, "residence: valid is a subset of present", self.valid)
    }
}
