//! How much memory, kept how: one configuration for everything.
//!
//! Promises upward: a [`Config`] is always valid; it is made of [`Values`] by one check, whether they come from a
//! [`Builder`], a preset, `TERRACE_*` variables or a file (feature `serde`). Every error names the setting, the value
//! and what is allowed.
//! Asks from below: names, ranges and defaults from the core's table.
//!
//! All act on a device that is opened with [`Options`](crate::device::DeviceOptions) made of a configuration, and on
//! [`Device::first`](crate::Device::first), which reads the variables over [`Config::device`]. Those with a star act on
//! an arena too, by [`Config::arena`] and [`Fit`].
//!
//! | setting | variable | values | default |
//! | --- | --- | --- | --- |
//! | `capacity` | `TERRACE_CAPACITY` | whole bytes below 2^64, such as 512MiB or 12G; 0 (not limited) or at least `segment` | `0`: what the device has, less the two limits below |
//! | `granule` * | `TERRACE_GRANULE` | a power of two from 1 to 2MiB | `64`; at least 256 on a device |
//! | `small_threshold` * | `TERRACE_SMALL_THRESHOLD` | whole bytes below 2^64, such as 512MiB or 12G | `16KiB` |
//! | `segment` * | `TERRACE_SEGMENT` | whole bytes from 1 to 256TiB, at least `granule` | `16MiB` |
//! | `pooled_per_bucket` * | `TERRACE_POOLED_PER_BUCKET` | a whole number from 0 to 4294967295 | `8`; on a device 64, within the 64KiB that each stream keeps |
//! | `device_fraction` | `TERRACE_DEVICE_FRACTION` | a number above 0, at most 1 | `0.9` |
//! | `min_free` | `TERRACE_MIN_FREE` | whole bytes below 2^64, such as 512MiB or 12G | `512MiB`, at most an eighth of the device; where `capacity` is set, on devices that share the host's memory only |
//! | `zero_fresh` * | `TERRACE_ZERO_FRESH` | on or off (also 1 or 0, true or false) | `off` |
//! | `pressure` | `TERRACE_PRESSURE` | three rising shares with commas, above 0, at most 1, such as 0.6,0.8,0.95 | `0.6,0.8,0.95` |
//! | `strategy` * | `TERRACE_STRATEGY` | good, best, first or worst | `best` |
//! | `fallback` | `TERRACE_FALLBACK` | on or off (also 1 or 0, true or false) | `off` |
//!
//! Sizes are in powers of 1024, in each spelling: see [`parse_bytes`].

mod builder;

pub use builder::Builder;
use std::fmt;
use std::ops::Deref;
use terrace_core::Fit;
use terrace_core::arena::ArenaSettings;
pub use terrace_core::settings::parse_bytes;
use terrace_core::settings::{self, Allowed, Profile, Spec, Surface, Value};

/// The plain values of a configuration; [`Values::check`] makes a [`Config`] of them.
///
/// What each may be is in the table of [`config`](self).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct Values {
    /// The most bytes to hold; 0: what the device has, within `device_fraction` and `min_free`.
    pub capacity: u64,
    /// Smallest step of size in bytes.
    pub granule: u64,
    /// Requests up to this many bytes take the path for small ones.
    pub small_threshold: u64,
    /// Bytes to take from a source that gives segments when a smaller request needs memory, as far as the slack allows;
    /// at least a granule. Pages come one by one.
    pub segment: u64,
    /// Free blocks an owner keeps per size.
    pub pooled_per_bucket: u32,
    /// Share of a device's memory to use at most.
    pub device_fraction: f64,
    /// Bytes of a device to leave to others.
    pub min_free: u64,
    /// Whether fresh segments are filled with zeros.
    pub zero_fresh: bool,
    /// Shares of capacity at which pressure becomes moderate, high and critical.
    pub pressure: [f64; 3],
    /// Which free block a request gets.
    pub strategy: Fit,
    /// Whether pinned host memory is given when a device has none left.
    pub fallback: bool,
}

impl Default for Values {
    fn default() -> Self {
        Self::of(Profile::Usual)
    }
}

impl Values {
    /// The defaults of a profile.
    fn of(profile: Profile) -> Self {
        let default = |spec: Spec| spec.of(profile).default;
        Self {
            capacity: default(settings::CAPACITY).number(),
            granule: default(settings::GRANULE).number(),
            small_threshold: default(settings::SMALL_THRESHOLD).number(),
            segment: default(settings::SEGMENT).number(),
            pooled_per_bucket: default(settings::POOLED_PER_BUCKET).number() as u32,
            device_fraction: default(settings::DEVICE_FRACTION).share(),
            min_free: default(settings::MIN_FREE).number(),
            zero_fresh: default(settings::ZERO_FRESH).is_on(),
            pressure: default(settings::PRESSURE).shares(),
            strategy: Fit::ALL[default(settings::STRATEGY).word()],
            fallback: default(settings::FALLBACK).is_on(),
        }
    }

    /// Sets what a row of the table names to a value that the row accepts.
    fn set(&mut self, name: &str, value: Value) {
        match name {
            "capacity" => self.capacity = value.number(),
            "granule" => self.granule = value.number(),
            "small_threshold" => self.small_threshold = value.number(),
            "segment" => self.segment = value.number(),
            "pooled_per_bucket" => self.pooled_per_bucket = value.number() as u32,
            "device_fraction" => self.device_fraction = value.share(),
            "min_free" => self.min_free = value.number(),
            "zero_fresh" => self.zero_fresh = value.is_on(),
            "pressure" => self.pressure = value.shares(),
            "strategy" => self.strategy = Fit::ALL[value.word()],
            "fallback" => self.fallback = value.is_on(),
            _ => {}
        }
    }

    /// The value of a setting, and its text; `None` where any value of its type will do.
    fn bounded(&self, name: &str) -> Option<(Value, String)> {
        let [moderate, high, critical] = self.pressure;
        let number = |number: u64| Some((Value::Number(number), number.to_string()));
        match name {
            "capacity" => number(self.capacity),
            "granule" => number(self.granule),
            "segment" => number(self.segment),
            "device_fraction" => Some((Value::Share(self.device_fraction), self.device_fraction.to_string())),
            "pressure" => Some((Value::Shares(self.pressure), format!("{moderate},{high},{critical}"))),
            _ => None,
        }
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(self) -> Result<Config, ConfigError> {
        let checked = settings::check(Surface::Config, |name| self.bounded(name).map(|(value, _)| value));
        match checked {
            Ok(()) => Ok(Config(self)),
            Err(bad) => {
                let value = self.bounded(bad.name).map_or(String::new(), |(_, text)| text);
                Err(ConfigError { name: bad.name.into(), value, allowed: bad.allowed })
            }
        }
    }
}

/// Values that were checked: read them as fields, change them through [`Config::to_builder`].
///
/// # Example
/// ```
/// use terrace::{Config, engine::Fit};
/// let config = Config::builder().granule(256).strategy(Fit::Best).build()?;
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
        Values::of(Profile::Inference).into()
    }

    /// Starts from values for a small or shared device: little is kept, segments are small.
    pub fn constrained() -> Builder {
        Values::of(Profile::Constrained).into()
    }

    /// Starts from values for training: steps repeat, segments are large.
    pub fn training() -> Builder {
        Values::of(Profile::Training).into()
    }

    /// Starts from what a device has when nothing is said: `DeviceOptions::default()`, as values.
    pub fn device() -> Builder {
        Values::of(Profile::Device).into()
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
    pub allowed: Allowed,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is `{}`; allowed: {}", self.name, self.value.escape_debug(), self.allowed)
    }
}

impl std::error::Error for ConfigError {}
