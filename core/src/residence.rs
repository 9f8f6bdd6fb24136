//! Which tiers hold memory for a buffer, and in which of them the bytes are the newest.
//!
//! Promises upward: a transition either keeps the newest bytes somewhere or is refused with what to do first; one table
//! for a buffer on host and device and for one on five tiers. Pure and `Copy`: nothing is moved here, it is only known.
//! Asks from below: nothing.
//!
//! Two sets say it all: `present` (memory is there) and `valid` (the bytes there are the newest). With two tiers:
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

/// A tier by number, below [`TIERS`]; 0 is by convention the fastest, or the host where there are two.
pub type Tier = u8;

/// Tiers a residence can tell apart: the bits of its sets.
pub const TIERS: u8 = u8::BITS as u8;

/// What is about to happen to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Memory was taken for it in a tier; the bytes there mean nothing yet.
    Reserve(Tier),
    /// Its bytes will be read in a tier.
    Read(Tier),
    /// Some of its bytes will be written in a tier.
    Update(Tier),
    /// All of its bytes will be written in a tier.
    Overwrite(Tier),
    /// Its bytes are copied; memory is taken in the target where there is none.
    Copy {
        /// A tier where they are valid.
        from: Tier,
        /// Another tier.
        to: Tier,
    },
    /// Its memory in a tier is given back.
    Evict(Tier),
}

/// Why a change is refused. The residence is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidenceError {
    /// The bytes there are old: copy from `from` first (the lowest-numbered valid tier).
    CopyFirst {
        /// A tier that holds the newest bytes.
        from: Tier,
    },
    /// There is no memory in that tier: reserve it or copy to it first.
    NotPresent,
    /// There is memory in that tier already.
    AlreadyPresent,
    /// The newest bytes are there and nowhere else: copy them away first.
    LastCopy,
    /// A copy from a tier to itself.
    SameTier,
    /// No tier has that number.
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

/// Where the copies of one buffer are. One bit a tier.
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
    /// Tiers that hold memory for the buffer.
    present: u8,
    /// Tiers whose bytes are the newest: not empty, a subset of `present`.
    valid: u8,
}

/// The set of one tier.
fn bit(tier: Tier) -> Result<u8, ResidenceError> {
    if tier < TIERS { Ok(1 << tier) } else { Err(ResidenceError::NoSuchTier) }
}

impl Residence {
    /// A new buffer, in one tier only.
    ///
    /// # Errors
    /// [`ResidenceError::NoSuchTier`].
    pub fn new(tier: Tier) -> Result<Self, ResidenceError> {
        bit(tier).map(|set| Self { present: set, valid: set })
    }

    /// Whether there is memory for the buffer in a tier.
    pub fn present(&self, tier: Tier) -> bool {
        bit(tier).is_ok_and(|set| self.present & set != 0)
    }

    /// Whether the bytes in a tier are the newest.
    pub fn valid(&self, tier: Tier) -> bool {
        bit(tier).is_ok_and(|set| self.valid & set != 0)
    }

    /// The tier that alone holds the newest bytes while others hold older ones.
    pub fn dirty(&self) -> Option<Tier> {
        let alone = self.valid.is_power_of_two() && self.valid != self.present;
        alone.then(|| self.best())
    }

    /// The lowest-numbered tier that holds the newest bytes: where to copy from.
    pub fn best(&self) -> Tier {
        self.valid.trailing_zeros() as Tier
    }

    /// Makes a change, or refuses it and stays as it was. O(1).
    ///
    /// # Errors
    /// What stands in the way; see [`ResidenceError`].
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

    /// As it is, if there is memory in the tier.
    fn held(self, set: u8) -> Result<Self, ResidenceError> {
        if self.present & set == 0 { Err(ResidenceError::NotPresent) } else { Ok(self) }
    }

    /// As it is, if the tier's bytes are the newest.
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
