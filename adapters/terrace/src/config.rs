//! How much memory, kept how: one configuration for everything.
//!
//! Promises upward: a [`Config`] is always valid; it is made of [`Values`] by one check, whether they come from a
//! [`Builder`], a preset, `TERRACE_*` variables or a file (feature `serde`). Every error names the setting, the value
//! and what is allowed.
//! Asks from below: nothing.
//!
//! All act on a device that is opened with [`Options`](crate::device::DeviceOptions) made of a configuration, and on
//! [`Device::first`](crate::Device::first), which reads the variables over [`Config::device`]. Those with a star act on
//! an arena too, by [`Config::arena`] and [`Fit`].
//!
//! | setting | variable | default |
//! | --- | --- | --- |
//! | `capacity` | `TERRACE_CAPACITY` | 0: what the device has, less the two limits below |
//! | `granule` * | `TERRACE_GRANULE` | 64; at least 256 on a device |
//! | `small_threshold` * | `TERRACE_SMALL_THRESHOLD` | 16KiB |
//! | `segment` * | `TERRACE_SEGMENT` | 16MiB |
//! | `pooled_per_bucket` * | `TERRACE_POOLED_PER_BUCKET` | 8; on a device 64, within the 64KiB that each stream keeps |
//! | `device_fraction` | `TERRACE_DEVICE_FRACTION` | 0.9 |
//! | `min_free` | `TERRACE_MIN_FREE` | 512MiB, at most an eighth of the device; where `capacity` is set, on devices that share the host's memory only |
//! | `zero_fresh` * | `TERRACE_ZERO_FRESH` | off |
//! | `pressure` | `TERRACE_PRESSURE` | 0.6,0.8,0.95 |
//! | `strategy` * | `TERRACE_STRATEGY` | best |
//! | `fallback` | `TERRACE_FALLBACK` | off |

mod builder;
mod value;

pub use builder::Builder;
use std::fmt;
use std::ops::Deref;
use terrace_core::Fit;
use terrace_core::arena::ArenaSettings;
pub use value::parse_bytes;

const MIB: u64 = 1 << 20;
/// The measured defaults.
const ARENA: ArenaSettings = ArenaSettings::growing();

/// Which free block a request gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Strategy {
    /// One that certainly fits, found in O(1).
    Good,
    /// The smallest that fits.
    #[default]
    Best,
    /// The one at the lowest address that fits.
    First,
    /// The largest.
    Worst,
}

impl From<Strategy> for Fit {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Good => Self::Good,
            Strategy::Best => Self::Best,
            Strategy::First => Self::First,
            Strategy::Worst => Self::Worst,
        }
    }
}

/// The plain values of a configuration; [`Values::check`] makes a [`Config`] of them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct Values {
    /// The most bytes to hold; 0: what the device has, within `device_fraction` and `min_free`.
    pub capacity: u64,
    /// Smallest step of size in bytes, a power of two from 1 to 2 MiB.
    pub granule: u64,
    /// Requests up to this many bytes take the path for small ones.
    pub small_threshold: u64,
    /// Bytes to take from a source that gives segments when a smaller request needs memory, as far as the slack allows;
    /// at least a granule. Pages come one by one.
    pub segment: u64,
    /// Free blocks an owner keeps per size.
    pub pooled_per_bucket: u32,
    /// Share of a device's memory to use at most, above 0 up to 1.
    pub device_fraction: f64,
    /// Bytes of a device to leave to others.
    pub min_free: u64,
    /// Whether fresh segments are filled with zeros.
    pub zero_fresh: bool,
    /// Shares of capacity at which pressure becomes moderate, high and critical; rising, within 0 to 1.
    pub pressure: [f64; 3],
    /// Which free block a request gets.
    pub strategy: Strategy,
    /// Whether pinned host memory is given when a device has none left.
    pub fallback: bool,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            capacity: 0,
            granule: ARENA.granule,
            small_threshold: ARENA.small_threshold,
            segment: ARENA.segment,
            pooled_per_bucket: ARENA.pooled_per_bucket,
            device_fraction: 0.9,
            min_free: 512 * MIB,
            zero_fresh: false,
            pressure: [0.6, 0.8, 0.95],
            strategy: Strategy::default(),
            fallback: false,
        }
    }
}

impl Values {
    /// The one place where settings are judged.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(self) -> Result<Config, ConfigError> {
        let Self { granule, segment, device_fraction, pressure, .. } = self;
        let no_bytes = |name, value: u64, allowed| Err(ConfigError::new(name, value, allowed));
        if !granule.is_power_of_two() || granule > 2 * MIB {
            return no_bytes("granule", granule, "a power of two from 1 to 2MiB");
        }
        if segment < granule || segment > 1 << 48 {
            return no_bytes("segment", segment, "at least the granule, at most 2^48 bytes");
        }
        if self.capacity != 0 && self.capacity < segment {
            return no_bytes("capacity", self.capacity, "0 (not limited) or at least a segment");
        }
        if !(device_fraction > 0.0 && device_fraction <= 1.0) {
            return Err(ConfigError::new("device_fraction", device_fraction, "above 0, at most 1"));
        }
        let [moderate, high, critical] = pressure;
        if !(0.0 < moderate && moderate < high && high < critical && critical <= 1.0) {
            let value = format!("{moderate},{high},{critical}");
            return Err(ConfigError::new("pressure", value, "three rising shares above 0, at most 1"));
        }
        Ok(Config(self))
    }
}

/// Values that were checked: read them as fields, change them through [`Config::to_builder`].
///
/// # Example
/// ```
/// use terrace::config::{Config, Strategy};
/// let config = Config::builder().granule(256).strategy(Strategy::Best).build()?;
/// assert_eq!(config.pooled_per_bucket, 8);
/// let error = Config::builder().granule(100).build().unwrap_err();
/// assert_eq!(error.to_string(), "granule is `100`; allowed: a power of two from 1 to 2MiB");
/// # Ok::<(), terrace::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "Values", into = "Values")
)]
pub struct Config(Values);

impl Config {
    /// Starts from the defaults.
    pub fn builder() -> Builder {
        Builder::from(Values::default())
    }

    /// Starts from values for serving a model.
    ///
    /// Many sizes come back, so more of each is kept than by default, on a device too.
    pub fn inference() -> Builder {
        Self::builder().pooled_per_bucket(128)
    }

    /// Starts from values for a small or shared device: little is kept, segments are small.
    pub fn constrained() -> Builder {
        Self::builder().pooled_per_bucket(2).segment(2 * MIB).device_fraction(0.5)
    }

    /// Starts from values for training: steps repeat, segments are large.
    pub fn training() -> Builder {
        Self::builder().pooled_per_bucket(64).segment(64 * MIB)
    }

    /// Starts from what a device has when nothing is said: `DeviceOptions::default()`, as values.
    pub fn device() -> Builder {
        Self::builder().granule(256).pooled_per_bucket(64).segment(4 * MIB)
    }

    /// What an arena is to be told: `base`, for its kind of source, with this configuration's values.
    ///
    /// # Example
    /// ```
    /// use terrace::{Config, engine::arena::ArenaSettings};
    /// let config = Config::training().small_threshold(4096).build()?;
    /// let settings = config.arena(ArenaSettings::segments());
    /// assert_eq!((settings.small_threshold, settings.segment), (4096, 64 << 20));
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn arena(&self, base: ArenaSettings) -> ArenaSettings {
        ArenaSettings {
            granule: self.granule,
            small_threshold: self.small_threshold,
            pooled_per_bucket: self.pooled_per_bucket,
            segment: self.segment,
            grain: base.grain.max(self.granule),
            zero_fresh: self.zero_fresh,
            ..base
        }
    }

    /// Starts from this configuration.
    pub fn to_builder(&self) -> Builder {
        Builder::from(self.0.clone())
    }
}

impl Deref for Config {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.0
    }
}

impl TryFrom<Values> for Config {
    type Error = ConfigError;

    fn try_from(values: Values) -> Result<Self, ConfigError> {
        values.check()
    }
}

impl From<Config> for Values {
    fn from(config: Config) -> Self {
        config.0
    }
}

/// A setting that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting or variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What would be allowed.
    pub allowed: &'static str,
}

impl ConfigError {
    fn new(name: &str, value: impl ToString, allowed: &'static str) -> Self {
        Self { name: name.into(), value: value.to_string(), allowed }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is `{}`; allowed: {}", self.name, self.value.escape_debug(), self.allowed)
    }
}

impl std::error::Error for ConfigError {}
