//! The settings of all libraries: one table of names, ranges and defaults.
//!
//! Promises upward: a name, a default, a range and the words for it stand here only; parsing and checking never allocate,
//! so that an allocator may do both while it starts.
//! Asks from below: suggestions for misspelt names.
//!
//! A [`Surface`] is a place where settings are set: a structure of options, or variables of the environment. A
//! [`Profile`] is a choice of defaults. The text of a value is parsed by its row of the table, [`Spec::parse`]; a value
//! from code is checked by [`check`], which also compares settings that bound each other.

mod allowed;
mod chosen;
mod size;
mod table;

use crate::spelling;
pub use allowed::{Allowed, Bounds, Relation, Step, ValueText};
pub use chosen::ChosenSettings;
use core::fmt;
pub use size::parse_bytes;
pub use table::*;

/// A place where settings are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `ArenaSettings` of the core.
    Arena,
    /// `Config` of `terrace`, and its variables.
    Config,
    /// `DeviceOptions` of `terrace-device`.
    Device,
    /// The variables of the allocator for programs.
    Host,
    /// `ManagerBuilder` of `terrace-tiers`.
    Manager,
    /// The variables of PyTorch's allocator.
    Torch,
}

/// A choice of defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What holds where nothing else is said.
    Usual,
    /// The memory of a device.
    Device,
    /// The memory of a device under PyTorch.
    Torch,
    /// Serving a model.
    Inference,
    /// Training a model.
    Training,
    /// A small or shared device.
    Constrained,
}

/// The value of a setting; [`Allowed`] says which form a setting has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Bytes, or a number of things.
    Number(u64),
    /// A part of what there is.
    Share(f64),
    /// Three shares.
    Shares([f64; 3]),
    /// On or off.
    Switch(bool),
    /// Milliseconds; `None`: never.
    Delay(Option<u32>),
    /// Which of the setting's words, from 0.
    Word(usize),
    /// Some of the setting's words: bit n stands for word n.
    Words(u32),
    /// NUMA nodes: bit n stands for node n.
    Nodes(u64),
}

/// What the setting `debug` asks for: its words, in the table's order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct DebugSwitches {
    /// Whether structures are checked, and a broken invariant ends the process.
    pub check: bool,
    /// Whether statistics are told at the end.
    pub stats: bool,
    /// Whether live blocks are recorded from the beginning, and those live at the end are listed.
    pub leaks: bool,
    /// As `leaks`, with call stacks.
    pub sites: bool,
}

impl DebugSwitches {
    /// Whether live blocks are recorded, with call stacks or without.
    pub const fn records(self) -> bool {
        self.leaks || self.sites
    }
}

/// The words, as in the environment.
impl fmt::Debug for DebugSwitches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&DEBUG.text((*self).into()), f)
    }
}

impl From<DebugSwitches> for Value {
    fn from(DebugSwitches { check, stats, leaks, sites }: DebugSwitches) -> Self {
        Self::Words([check, stats, leaks, sites].iter().rev().fold(0, |bits, on| bits << 1 | u32::from(*on)))
    }
}

/// One setting: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Its name in code and in files.
    pub name: &'static str,
    /// Its variable of the environment, if it has one.
    pub variable: Option<&'static str>,
    /// Where it is set.
    pub surfaces: &'static [Surface],
    /// What it accepts.
    pub allowed: Allowed,
    /// What it is where nothing is said. Where bytes have a share as default, it is one of what there is.
    pub default: Value,
    /// Profiles of which something else holds.
    pub overrides: &'static [Override],
}

/// What a profile has instead of the row's own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Override {
    /// The profile.
    pub profile: Profile,
    /// Its default.
    pub default: Value,
    /// What it accepts, where that differs.
    pub allowed: Option<Allowed>,
    /// Its variable, where that differs.
    pub variable: Option<&'static str>,
}

/// A value that a setting does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// The setting's name, or its variable's.
    pub name: &'static str,
    /// What it accepts.
    pub allowed: Allowed,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} takes {}", self.name, self.allowed)
    }
}

impl core::error::Error for BadSetting {}

impl Spec {
    /// The row as a profile has it.
    ///
    /// # Example
    /// ```
    /// use terrace_core::settings::{POOLED_PER_BUCKET, Profile};
    /// assert_eq!(POOLED_PER_BUCKET.default.number(), 8);
    /// assert_eq!(POOLED_PER_BUCKET.of(Profile::Device).default.number(), 64);
    /// ```
    pub fn of(mut self, profile: Profile) -> Self {
        if let Some(found) = self.overrides.iter().find(|found| found.profile == profile) {
            self.default = found.default;
            self.allowed = found.allowed.unwrap_or(self.allowed);
            self.variable = found.variable.or(self.variable);
        }
        self
    }

    /// Parses a value as it stands in the environment.
    ///
    /// # Errors
    /// What the setting accepts, with the name of its variable.
    ///
    /// # Example
    /// ```
    /// use terrace_core::settings::{GRANULE, Value};
    /// assert_eq!(GRANULE.parse("4K"), Ok(Value::Number(4096)));
    /// let bad = GRANULE.parse("100").unwrap_err();
    /// assert_eq!(bad.to_string(), "TERRACE_GRANULE takes a power of two from 1 to 2MiB");
    /// ```
    pub fn parse(&self, text: &str) -> Result<Value, BadSetting> {
        self.allowed.parse(text).ok_or(self.refusal())
    }

    /// Checks a value for itself.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn accept(&self, value: Value) -> Result<Value, BadSetting> {
        if self.allowed.holds(value) { Ok(value) } else { Err(self.refusal()) }
    }

    /// The value as text, which [`parse`](Self::parse) accepts, but for a share of bytes.
    ///
    /// That is told in percent of what there is.
    ///
    /// # Example
    /// ```
    /// use terrace_core::settings::{MEMORY, PURGE_DELAY, SEGMENT};
    /// assert_eq!(SEGMENT.text(SEGMENT.default).to_string(), "16MiB");
    /// assert_eq!(PURGE_DELAY.text(PURGE_DELAY.default).to_string(), "250ms");
    /// assert_eq!(MEMORY.text(MEMORY.default).to_string(), "50 % of what there is");
    /// ```
    pub fn text(&self, value: Value) -> ValueText {
        ValueText { allowed: self.allowed, value }
    }

    fn refusal(&self) -> BadSetting {
        BadSetting { name: self.variable.unwrap_or(self.name), allowed: self.allowed }
    }
}

/// The settings of a surface, in the order of the table.
pub fn of(surface: Surface) -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().filter(move |spec| spec.surfaces.contains(&surface))
}

/// The variables of a surface.
pub fn variables(surface: Surface) -> impl Iterator<Item = &'static str> {
    of(surface).filter_map(move |spec| spec.of(surface.profile()).variable)
}

/// The variable of a surface that was probably meant by a name which is none of them.
///
/// # Example
/// ```
/// use terrace_core::settings::{Surface, misspelt};
/// assert_eq!(misspelt(Surface::Host, b"TERRACE_LIMT"), Some("TERRACE_LIMIT"));
/// assert_eq!(misspelt(Surface::Host, b"TERRACE_LIMIT"), None);
/// ```
pub fn misspelt(surface: Surface, name: &[u8]) -> Option<&'static str> {
    spelling::nearest(name, variables(surface))
}

/// Checks the values of a surface: each for itself first, then those that bound each other.
///
/// `value_of` returns the value of a setting by its name; `None`: its type allows nothing wrong.
///
/// # Errors
/// The first setting in the order of the table that is out of bounds, and what it accepts.
///
/// # Example
/// ```
/// use terrace_core::settings::{Surface, Value, check};
/// let value_of = |name: &str| match name {
///     "granule" => Some(Value::Number(4096)),
///     "segment" => Some(Value::Number(64)),
///     _ => None,
/// };
/// assert_eq!(check(Surface::Arena, value_of).unwrap_err().name, "segment");
/// ```
pub fn check(surface: Surface, value_of: impl Fn(&str) -> Option<Value>) -> Result<(), BadSetting> {
    let rows = || of(surface).filter_map(|spec| Some((spec.of(surface.profile()), value_of(spec.name)?)));
    let number_of = |name: &str| value_of(name).map_or(0, Value::number);
    let bad = rows().find(|(spec, value)| !spec.allowed.holds(*value)).or_else(|| {
        rows().find(|(spec, value)| match value {
            Value::Number(number) => !spec.allowed.relation().holds(*number, number_of),
            _ => false,
        })
    });
    bad.map_or(Ok(()), |(Spec { name, allowed, .. }, _)| Err(BadSetting { name, allowed }))
}

impl Surface {
    /// The defaults of a surface.
    pub const fn profile(self) -> Profile {
        match self {
            Self::Device => Profile::Device,
            Self::Torch => Profile::Torch,
            _ => Profile::Usual,
        }
    }
}

/// The value of a row, by its form. A default has the form of its row: a panic is a mistake in this workspace.
impl Value {
    /// The number.
    pub const fn number(self) -> u64 {
        if let Self::Number(number) = self { number } else { panic!("not a number") }
    }

    /// The share.
    pub const fn share(self) -> f64 {
        if let Self::Share(share) = self { share } else { panic!("not a share") }
    }

    /// Bytes: the number, or the share of so many bytes.
    pub fn part_of(self, bytes: u64) -> u64 {
        match self {
            Self::Number(number) => number,
            share => (bytes as f64 * share.share()) as u64,
        }
    }

    /// The three shares.
    pub const fn shares(self) -> [f64; 3] {
        if let Self::Shares(shares) = self { shares } else { panic!("not three shares") }
    }

    /// Whether it is on.
    pub const fn is_on(self) -> bool {
        if let Self::Switch(on) = self { on } else { panic!("not a switch") }
    }

    /// The milliseconds; `None`: never.
    pub const fn delay(self) -> Option<u32> {
        if let Self::Delay(delay) = self { delay } else { panic!("not a time") }
    }

    /// What the setting `debug` asks for.
    pub const fn switches(self) -> DebugSwitches {
        match self {
            Self::Words(bits) => {
                DebugSwitches { check: bits & 1 != 0, stats: bits & 2 != 0, leaks: bits & 4 != 0, sites: bits & 8 != 0 }
            }
            _ => panic!("not some words"),
        }
    }

    /// Which of the setting's words, from 0.
    pub const fn word(self) -> usize {
        if let Self::Word(word) = self { word } else { panic!("not a word") }
    }
}
