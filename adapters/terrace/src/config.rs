//! How much memory, kept how: one configuration for everything.
//!
//! Promises upward: a [`Config`] is always valid; it is made of a [`Builder`] by one check, whether the values come from code, a
//! preset, `TERRACE_*` variables or a file. Every error names the place, the setting, the value and what is allowed.
//! Asks from below: names, ranges and defaults from the core's table.
//!
//! # Which value holds
//!
//! [`Builder::load`] takes what stands further down over what stands above; `terrace config` prints what holds, and where each
//! value came from:
//!
//! 1. the defaults, in the table below;
//! 2. a preset, wherever it was chosen: `preset = "training"` in the file, `TERRACE_PRESET`, or a call such as [`Config::training`];
//! 3. calls before `load`: what the program wants if its user says nothing;
//! 4. the TOML file that `TERRACE_CONFIG` names (feature `toml`);
//! 5. the other `TERRACE_*` variables;
//! 6. calls after `load`: what the program insists on;
//! 7. changes while it runs: `Device::set`, `Manager::set`, and `host::Setting::apply` for the allocator of programs.
//!
//! ```toml
//! # TERRACE_CONFIG=/etc/terrace.toml
//! preset = "constrained"
//! device_fraction = 0.8
//! memory = "2GiB"          # sizes as text, or whole bytes as a number
//! pressure = [0.5, 0.7, 0.9]
//!
//! [[directory]]            # files of a manager
//! path = "/mnt/nvme/terrace"
//! cap = "100GiB"
//! kind = "nvme"            # nvme, ssd or hdd; found out where it is not said
//! ```
//!
//! # Settings
//!
//! Those down to `blocks` act on a device that is opened with [`Options`](crate::device::DeviceOptions) made of a configuration, and on
//! [`Device::first`](crate::Device::first), which loads over [`Config::device`]. Those with a star act on an arena too, by
//! [`Config::arena`] and [`Fit`]; `pooled_per_bucket` on a [`BufferPool`](crate::buffers::BufferPool), by `of`. A manager that is
//! built of a configuration (`ManagerBuilder::from`) takes the others, and `min_free`, and leaves `device_fraction` to the devices
//! that it is given. Of `debug`, `leaks` and `sites` act on devices too, both with the feature `track`. The allocator for programs has [variables of its own](https://docs.rs/terrace-host).
//!
//! | setting | variable | values | default |
//! | --- | --- | --- | --- |
//! | `capacity` | `TERRACE_CAPACITY` | whole bytes below 2^64, such as 512MiB or 12G; 0 (not limited) or at least `segment` | `0`: what the device has, less the two limits below |
//! | `granule` * | `TERRACE_GRANULE` | a power of two from 1 to 2MiB | `64`, on a device `256` and at least 64 |
//! | `small_threshold` * | `TERRACE_SMALL_THRESHOLD` | whole bytes below 2^64, such as 512MiB or 12G | `16KiB` |
//! | `segment` * | `TERRACE_SEGMENT` | whole bytes from 1 to 256TiB, at least `granule` | `16MiB` |
//! | `pooled_per_bucket` * | `TERRACE_POOLED_PER_BUCKET` | a whole number from 0 to 4294967295 | `8`; on a device 64, within the 64KiB that each stream keeps |
//! | `device_fraction` | `TERRACE_DEVICE_FRACTION` | a number above 0, at most 1 | `0.9` |
//! | `min_free` | `TERRACE_MIN_FREE` | whole bytes below 2^64, such as 512MiB or 12G | `512MiB`, at most an eighth of the device, or of the machine's memory under a manager; where `capacity` is set, on devices that share the host's memory only |
//! | `zero_fresh` * | `TERRACE_ZERO_FRESH` | on or off (also 1 or 0, true or false) | `off` |
//! | `pressure` | `TERRACE_PRESSURE` | three rising shares with commas, above 0, at most 1, such as 0.6,0.8,0.95 | `0.6,0.8,0.95` |
//! | `largest_handle` | `TERRACE_LARGEST_HANDLE` | whole bytes from 1 to 1TiB | `32MiB` |
//! | `move_above` | `TERRACE_MOVE_ABOVE` | a number above 0, at most 1 | `1`: pages move when there is no more memory |
//! | `strategy` * | `TERRACE_STRATEGY` | good, best, first or worst | `best` |
//! | `fallback` | `TERRACE_FALLBACK` | on or off (also 1 or 0, true or false) | `off` |
//! | `origin` | `TERRACE_ORIGIN` | auto, pages, segments, driver-pool or managed | `auto`: pages where the device can map them |
//! | `stream_cache` | `TERRACE_STREAM_CACHE` | whole bytes below 2^64, such as 512MiB or 12G | `64KiB` |
//! | `coalesce` | `TERRACE_COALESCE` | whole bytes below 2^64, such as 512MiB or 12G, or none | `none`: when memory is short |
//! | `adapt` | `TERRACE_ADAPT` | on or off (also 1 or 0, true or false) | `on` |
//! | `keep` | `TERRACE_KEEP` | whole bytes below 2^64, such as 512MiB or 12G | `0` |
//! | `idle` | `TERRACE_IDLE` | a whole number from 0 to 4294967295 | `0`: never; else milliseconds, for `Device::maintain` |
//! | `peer_access` | `TERRACE_PEER_ACCESS` | on or off (also 1 or 0, true or false) | `off` |
//! | `blocks` | `TERRACE_BLOCKS` | a whole number from 1 to 16777216 | `262144` |
//! | `memory` | `TERRACE_MEMORY` | whole bytes below 2^64, such as 512MiB or 12G | half of what is available; a quarter for training, an eighth where it is constrained |
//! | `pinned_cap` | `TERRACE_PINNED_CAP` | whole bytes below 2^64, such as 512MiB or 12G | three quarters of what memory and devices may have |
//! | `chunk` | `TERRACE_CHUNK` | a multiple of 4KiB from 4KiB to 2097148KiB | `1MiB` |
//! | `staging` | `TERRACE_STAGING` | whole bytes below 2^64, such as 512MiB or 12G | `8MiB` |
//! | `share_of_disk` | `TERRACE_SHARE_OF_DISK` | a number above 0, at most 1 | `0.25` |
//! | `maintenance_interval` | `TERRACE_MAINTENANCE_INTERVAL` | milliseconds (250, 250ms), seconds (2s) or never | `250ms` |
//! | `policy` | `TERRACE_POLICY` | lru, sieve or s3-fifo | `s3-fifo` |
//! | `engine` | `TERRACE_ENGINE` | best, io-uring or threads | `best` |
//! | `debug` | `TERRACE_DEBUG` | off, all, or with commas check, stats, leaks or sites | `off` |
//!
//! Sizes are in powers of 1024, in each spelling: see [`parse_bytes`].

mod builder;
mod directory;
#[cfg(feature = "toml")]
mod file;
#[cfg(all(feature = "tiers", target_os = "linux"))]
mod manager;
mod origin;
#[cfg(feature = "serde")]
mod serial;

pub use builder::Builder;
use builder::covered;
pub use directory::{DirectoryConfig, DirectoryKind};
pub use origin::{ConfigError, ConfigProblem, SettingOrigin};
use std::ops::Deref;
use terrace_core::Fit;
use terrace_core::arena::ArenaSettings;
pub use terrace_core::settings::parse_bytes;
use terrace_core::settings::{self, ChosenSettings, Profile, Spec, Surface, Value};

/// The plain values of a configuration; [`Values::check`] makes a [`Config`] of them.
///
/// What each may be is in the table of [`config`](self).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
        Self::of(&ChosenSettings::default())
    }
}

impl Values {
    /// What was chosen, which has been checked.
    fn of(chosen: &ChosenSettings) -> Self {
        let of = |spec: Spec| chosen.of(&spec);
        Self {
            capacity: of(settings::CAPACITY).number(),
            granule: of(settings::GRANULE).number(),
            small_threshold: of(settings::SMALL_THRESHOLD).number(),
            segment: of(settings::SEGMENT).number(),
            pooled_per_bucket: of(settings::POOLED_PER_BUCKET).number() as u32,
            device_fraction: of(settings::DEVICE_FRACTION).share(),
            min_free: of(settings::MIN_FREE).number(),
            zero_fresh: of(settings::ZERO_FRESH).is_on(),
            pressure: of(settings::PRESSURE).shares(),
            strategy: Fit::ALL[of(settings::STRATEGY).word()],
            fallback: of(settings::FALLBACK).is_on(),
        }
    }

    /// The value of a setting by its name.
    fn get(&self, name: &str) -> Option<Value> {
        Some(match name {
            "capacity" => Value::Number(self.capacity),
            "granule" => Value::Number(self.granule),
            "small_threshold" => Value::Number(self.small_threshold),
            "segment" => Value::Number(self.segment),
            "pooled_per_bucket" => Value::Number(self.pooled_per_bucket.into()),
            "device_fraction" => Value::Share(self.device_fraction),
            "min_free" => Value::Number(self.min_free),
            "zero_fresh" => Value::Switch(self.zero_fresh),
            "pressure" => Value::Shares(self.pressure),
            "strategy" => Value::Word(self.strategy as usize),
            "fallback" => Value::Switch(self.fallback),
            _ => return None,
        })
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(self) -> Result<Config, ConfigError> {
        Builder::from(self).build()
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
#[derive(Clone, Debug, Default)]
pub struct Config {
    values: Values,
    builder: Builder,
}

/// A setting as a configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigRow {
    /// Its row in the table of settings.
    pub spec: &'static Spec,
    /// Its value as text.
    pub value: String,
    /// Where the value came from.
    pub origin: SettingOrigin,
}

/// Configurations are equal when their values are, wherever these came from.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        let same = |spec: &Spec| self.builder.settings.of(spec) == other.builder.settings.of(spec);
        covered().all(same) && self.builder.directories == other.builder.directories
    }
}

impl Config {
    /// Starts from the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts from values for serving a model.
    ///
    /// Many sizes come back, so more of each is kept than by default, on a device too.
    pub fn inference() -> Builder {
        Builder::of(Profile::Inference)
    }

    /// Starts from values for a small or shared device: little is kept, segments are small.
    pub fn constrained() -> Builder {
        Builder::of(Profile::Constrained)
    }

    /// Starts from values for training: steps repeat, segments are large.
    pub fn training() -> Builder {
        Builder::of(Profile::Training)
    }

    /// Starts from what a device has when nothing is said: `DeviceOptions::default()`, as values.
    pub fn device() -> Builder {
        Builder::of(Profile::Device)
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
        self.builder.clone()
    }

    /// All settings in the order of the table, with where their values came from.
    ///
    /// # Example
    /// ```
    /// use terrace::{Config, config::SettingOrigin};
    /// let config = Config::training().set("chunk", "64KiB")?.build()?;
    /// let row = |name: &str| config.rows().find(|row| row.spec.name == name).unwrap();
    /// assert_eq!((row("chunk").value.as_str(), row("chunk").origin), ("64KiB", SettingOrigin::Code));
    /// assert_eq!(row("segment").origin.to_string(), "preset training");
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn rows(&self) -> impl Iterator<Item = ConfigRow> {
        covered().map(|spec| self.row(spec))
    }

    /// A setting's value as text, by its name.
    pub fn text(&self, name: &str) -> Option<String> {
        covered().find(|spec| spec.name == name).map(|spec| self.row(spec).value)
    }

    /// Parses the text of a variable for a setting of any surface.
    ///
    /// # Errors
    /// A value that the setting does not accept.
    pub fn parse(spec: &Spec, variable: &'static str, text: &str) -> Result<Value, ConfigError> {
        origin::parse(spec, text, SettingOrigin::Variable(variable))
    }

    /// Parses the text for a setting of a surface, by its name.
    #[cfg_attr(not(feature = "device"), expect(dead_code, reason = "devices change their settings by it"))]
    pub(crate) fn parse_of(surface: Surface, name: &str, text: &str) -> Result<(&'static str, Value), ConfigError> {
        let rows = || settings::of(surface);
        let Some(spec) = rows().find(|spec| spec.name == name) else {
            return Err(ConfigError::unknown(name, rows().map(|spec| spec.name), SettingOrigin::Code));
        };
        let spec = spec.of(surface.profile());
        Ok((spec.name, origin::parse(&spec, text, SettingOrigin::Code)?))
    }

    /// The error for a setting that cannot change any more.
    #[cfg_attr(not(feature = "device"), expect(dead_code, reason = "devices change their settings"))]
    pub(crate) fn fixed(name: &str, text: &str) -> ConfigError {
        let allowed = "no change while a device is open, but of `capacity` and `fallback`";
        ConfigError::value(name, text, allowed, SettingOrigin::Code)
    }

    /// What was chosen in the table of settings.
    pub fn settings(&self) -> &ChosenSettings {
        &self.builder.settings
    }

    /// The directories for files of a manager.
    pub fn directories(&self) -> &[DirectoryConfig] {
        &self.builder.directories
    }

    /// The preset whose values hold where nothing is set, and where it was chosen.
    pub fn preset(&self) -> (&'static str, SettingOrigin) {
        (origin::word(self.builder.settings.profile()), self.builder.preset.clone())
    }

    fn row(&self, spec: &'static Spec) -> ConfigRow {
        let value = spec.text(self.builder.settings.of(spec)).to_string();
        ConfigRow { spec, value, origin: self.builder.origin_of(spec) }
    }
}

impl Deref for Config {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
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
        config.values
    }
}
