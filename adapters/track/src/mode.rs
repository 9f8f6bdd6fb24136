//! How much a tracker records, and whether any tracker of the process records anything.
//!
//! Promises upward: while all trackers are off, a call that asks [`any`] costs one load and one branch.
//! Asks from below: nothing.

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// How much a tracker records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum TrackMode {
    /// Nothing.
    #[default]
    Off,
    /// For each tag: allocations, frees, bytes, live bytes and their peak.
    Counters,
    /// The counters, and a record for each live block.
    Records,
    /// The records, and the call stack of each block.
    Sites,
}

impl TrackMode {
    /// All modes; each is at the index of its number.
    pub const ALL: [Self; 4] = [Self::Off, Self::Counters, Self::Records, Self::Sites];

    /// The mode's name in lower case, which [`FromStr`] reads.
    pub fn name(self) -> &'static str {
        ["off", "counters", "records", "sites"][self as usize]
    }
}

impl fmt::Display for TrackMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no [`TrackMode`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTrackMode;

impl fmt::Display for UnknownTrackMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such tracking mode: use off, counters, records or sites")
    }
}

impl core::error::Error for UnknownTrackMode {}

impl FromStr for TrackMode {
    type Err = UnknownTrackMode;

    fn from_str(name: &str) -> Result<Self, UnknownTrackMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(UnknownTrackMode)
    }
}

/// Number of trackers in the process that are on.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Whether any tracker of the process is on. One load.
#[inline(always)]
pub fn any() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// The mode of one tracker, which counts in [`ACTIVE`] while it is on; dropping it turns it off.
#[derive(Debug, Default)]
pub(crate) struct ModeSwitch {
    mode: AtomicU8,
}

/// The mode of a number. A match compiles to no instruction, where an index is a load.
#[inline(always)]
fn mode_of(number: u8) -> TrackMode {
    match number {
        0 => TrackMode::Off,
        1 => TrackMode::Counters,
        2 => TrackMode::Records,
        _ => TrackMode::Sites,
    }
}

impl ModeSwitch {
    #[inline]
    pub(crate) fn get(&self) -> TrackMode {
        mode_of(self.mode.load(Ordering::Relaxed))
    }

    /// Changes the mode; returns the old one.
    pub(crate) fn set(&self, mode: TrackMode) -> TrackMode {
        let old = mode_of(self.mode.swap(mode as u8, Ordering::Relaxed));
        // Each change from off to on adds one and each change back takes one, in whichever order threads make them.
        match (old, mode) {
            (TrackMode::Off, TrackMode::Off) => {}
            (TrackMode::Off, _) => _ = ACTIVE.fetch_add(1, Ordering::Relaxed),
            (_, TrackMode::Off) => _ = ACTIVE.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        old
    }
}

impl Drop for ModeSwitch {
    fn drop(&mut self) {
        self.set(TrackMode::Off);
    }
}
