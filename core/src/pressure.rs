//! Memory pressure: levels with hysteresis, and advice for the caps of caches.
//!
//! Promises upward: levels at 60, 80 and 95 %, with hysteresis; each change is reported once; pure functions, exact at every
//! boundary (fractions are compared by cross-multiplication in 128 bits).
//! Asks from below: nothing.

use core::ops::Range;

/// Level of memory pressure, by the part of capacity in use. Ordered: a higher level is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Level {
    /// Less than 60 % is in use.
    #[default]
    Normal,
    /// At least 60 % is in use: begin to return unused memory.
    Elevated,
    /// At least 80 % is in use: empty caches, evict ahead of need.
    High,
    /// At least 95 % is in use: the next allocation may fail.
    Critical,
}

impl Level {
    /// All levels, in order; each is at the index of its number.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Elevated, Self::High, Self::Critical];

    /// The level's name, in small letters.
    ///
    /// # Example
    /// ```
    /// use terrace_core::pressure::Level;
    /// assert_eq!(Level::ALL.map(Level::name), ["normal", "elevated", "high", "critical"]);
    /// ```
    pub const fn name(self) -> &'static str {
        ["normal", "elevated", "high", "critical"][self as usize]
    }
}

/// The levels above normal, each with its threshold in permille.
const LEVELS: [(Level, u64); 3] = [(Level::Elevated, 600), (Level::High, 800), (Level::Critical, 950)];

/// How far below its threshold a level ends, in permille of capacity.
///
/// 50 permille of an 80 GB device are 4 GB, more than a training step allocates and frees again.
pub const HYSTERESIS: u64 = 50;

/// Whether `used / capacity` is at least `permille`. Exact; true if both are 0.
fn at_least(used: u64, capacity: u64, permille: u64) -> bool {
    u128::from(used) * 1000 >= u128::from(capacity) * u128::from(permille)
}

/// The level of `used / capacity` without hysteresis. A capacity of 0 means not limited: always normal.
///
/// # Example
/// ```
/// use terrace_core::pressure::{Level, level};
/// assert_eq!([level(599, 1000), level(600, 1000), level(950, 1000)], [Level::Normal, Level::Elevated, Level::Critical]);
/// ```
pub fn level(used: u64, capacity: u64) -> Level {
    level_from(used, capacity, LEVELS.map(|(_, begins)| begins))
}

/// Like [`level`], with the thresholds of elevated, high and critical in permille, ascending.
///
/// # Example
/// ```
/// use terrace_core::pressure::{Level, level_from};
/// assert_eq!(level_from(250, 1000, [100, 200, 300]), Level::High);
/// ```
pub fn level_from(used: u64, capacity: u64, begins: [u64; 3]) -> Level {
    let levels = LEVELS.iter().zip(begins).rev();
    let mut reached = levels.filter(|&(_, begins)| capacity != 0 && at_least(used, capacity, begins));
    reached.next().map_or(Level::Normal, |((level, _), _)| *level)
}

/// Like [`level_from`], with hysteresis: a level ends only [`HYSTERESIS`] below its threshold.
///
/// # Example
/// ```
/// use terrace_core::pressure::{Level, level_after};
/// let begins = [100, 200, 300];
/// assert_eq!(level_after(Level::High, 160, 1000, begins), Level::High);
/// assert_eq!(level_after(Level::High, 149, 1000, begins), Level::Elevated);
/// assert_eq!(level_after(Level::Normal, 300, 1000, begins), Level::Critical);
/// ```
pub fn level_after(last: Level, used: u64, capacity: u64, begins: [u64; 3]) -> Level {
    let rising = level_from(used, capacity, begins);
    // The level stays while pressure is at or above its threshold less HYSTERESIS.
    let falling = level_from(used, capacity, begins.map(|begins| begins.saturating_sub(HYSTERESIS)));
    rising.max(falling.min(last))
}

/// The bytes in use with which [`level_after`] keeps a level.
///
/// Two comparisons then tell that nothing has changed.
///
/// # Example
/// ```
/// use terrace_core::pressure::{Level, level_after, level_bounds};
/// let begins = [100, 200, 300];
/// assert_eq!(level_bounds(Level::Elevated, 1000, begins), 50..200);
/// for level in Level::ALL {
///     for (capacity, used) in [0, 7, 1001].into_iter().flat_map(|capacity| (0..1100).map(move |used| (capacity, used))) {
///         let stays = level_after(level, used, capacity, begins) == level;
///         assert_eq!(level_bounds(level, capacity, begins).contains(&used), stays, "{level:?}, {used} of {capacity}");
///     }
/// }
/// ```
pub fn level_bounds(level: Level, capacity: u64, begins: [u64; 3]) -> Range<u64> {
    if capacity == 0 {
        return if level == Level::Normal { 0..u64::MAX } else { 0..0 };
    }
    let bytes =
        |permille: u64| (u128::from(capacity) * u128::from(permille)).div_ceil(1000).min(u64::MAX.into()) as u64;
    let at = level as usize;
    let lower = at.checked_sub(1).map_or(0, |below| bytes(begins[below].saturating_sub(HYSTERESIS)));
    lower..begins.get(at).map_or(u64::MAX, |&permille| bytes(permille))
}

/// A pressure level with hysteresis: rises at once, falls only [`HYSTERESIS`] below its threshold.
///
/// # Example
/// ```
/// use terrace_core::pressure::{Level, Pressure};
/// let mut pressure = Pressure::new(1000);
/// let mut told = Vec::new();
/// for used in [610, 590, 549, 810] {
///     pressure.update(used, |level| told.push(level));
/// }
/// assert_eq!(told, [Level::Elevated, Level::Normal, Level::High]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Capacity in bytes, which is 100 %; 0 for not limited.
    capacity: u64,
    /// The level reported last.
    level: Level,
}

impl Pressure {
    /// Normal pressure on `capacity` bytes (0: not limited).
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, level: Level::Normal }
    }

    /// The level as of the last update.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Sets the bytes in use; returns the level, and passes it to `changed` if it has changed.
    pub fn update(&mut self, used: u64, changed: impl FnOnce(Level)) -> Level {
        let next = level_after(self.level, used, self.capacity, LEVELS.map(|(_, begins)| begins));
        if next != self.level {
            self.level = next;
            changed(next);
        }
        next
    }
}

/// What a cache should do about its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapAdvice {
    /// Keep the cap.
    Keep,
    /// Raise the cap to this.
    Grow(u64),
    /// Lower the cap to this, and free the items above it.
    Shrink(u64),
}

/// How caps follow pressure: by default they shrink above 80 % in use and grow below 30 %, by 1.5.
///
/// Shrinking and growing are by one factor, so that a step down and a step up cancel (but for rounding).
///
/// # Example
/// ```
/// use terrace_core::pressure::{CapAdvice, CachePolicy};
/// let policy = CachePolicy::default();
/// assert_eq!(policy.advise(299, 1000, 4096), CapAdvice::Grow(6144));
/// assert_eq!(policy.advise(500, 1000, 4096), CapAdvice::Keep);
/// assert_eq!(policy.advise(801, 1000, 6144), CapAdvice::Shrink(4096));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Permille of capacity in use above which caches shrink.
    pub shrink_above: u64,
    /// Permille of capacity in use below which caches grow.
    pub grow_below: u64,
    /// The minimum cap that is advised, in the cap's unit: bytes, or a cache's granules.
    pub min: u64,
    /// The maximum cap that is advised, in the cap's unit.
    pub max: u64,
}

impl Default for CachePolicy {
    /// Shrinks above 800 permille and grows below 300; the cap has no bounds.
    fn default() -> Self {
        Self { shrink_above: 800, grow_below: 300, min: 0, max: u64::MAX }
    }
}

impl CachePolicy {
    /// The advice for a cap of `cap` bytes or granules while `used` of `capacity` bytes are in use.
    ///
    /// A capacity of 0 means not limited: caches grow.
    pub fn advise(&self, used: u64, capacity: u64, cap: u64) -> CapAdvice {
        let above = capacity != 0 && u128::from(used) * 1000 > u128::from(capacity) * u128::from(self.shrink_above);
        let below = capacity == 0 || !at_least(used, capacity, self.grow_below);
        // 1.5 = 3/2; a cap of 1 byte still grows, because the half is rounded up.
        let grown = cap.saturating_add(cap.div_ceil(2)).min(self.max);
        let shrunk = (u128::from(cap) * 2 / 3) as u64;
        let shrunk = shrunk.max(self.min);
        if above && shrunk < cap {
            CapAdvice::Shrink(shrunk)
        } else if below && !above && grown > cap {
            CapAdvice::Grow(grown)
        } else {
            CapAdvice::Keep
        }
    }
}
