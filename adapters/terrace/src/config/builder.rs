//! Collects settings, from code or from `TERRACE_*` variables, to be checked once.
//!
//! Promises upward: later calls win; nothing is judged before [`Builder::build`] but the form of variables; a variable
//! of the process that is probably misspelt is told once, on the standard error stream.
//! Asks from below: values from texts.

use super::value::{parse_bytes, parse_shares, parse_strategy, parse_switch};
use super::{Config, ConfigError, Strategy, Values};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::Once;
use terrace_core::spelling;

/// Every variable begins so.
const PREFIX: &str = "TERRACE_";

/// The variables.
const NAMES: [&str; 11] = [
    "TERRACE_CAPACITY",
    "TERRACE_DEVICE_FRACTION",
    "TERRACE_FALLBACK",
    "TERRACE_GRANULE",
    "TERRACE_MIN_FREE",
    "TERRACE_POOLED_PER_BUCKET",
    "TERRACE_PRESSURE",
    "TERRACE_SEGMENT",
    "TERRACE_SMALL_THRESHOLD",
    "TERRACE_STRATEGY",
    "TERRACE_ZERO_FRESH",
];

/// Collects values.
///
/// Start with [`Config::builder`] or a preset; the settings are described at [`Values`].
#[derive(Clone, Debug, PartialEq)]
pub struct Builder(Values);

impl From<Values> for Builder {
    fn from(values: Values) -> Self {
        Self(values)
    }
}

impl Builder {
    /// Sets [`Values::capacity`], bytes.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.0.capacity = bytes;
        self
    }

    /// Sets [`Values::granule`], bytes.
    pub fn granule(mut self, bytes: u64) -> Self {
        self.0.granule = bytes;
        self
    }

    /// Sets [`Values::small_threshold`], bytes.
    pub fn small_threshold(mut self, bytes: u64) -> Self {
        self.0.small_threshold = bytes;
        self
    }

    /// Sets [`Values::segment`], bytes.
    pub fn segment(mut self, bytes: u64) -> Self {
        self.0.segment = bytes;
        self
    }

    /// Sets [`Values::pooled_per_bucket`], blocks.
    pub fn pooled_per_bucket(mut self, blocks: u32) -> Self {
        self.0.pooled_per_bucket = blocks;
        self
    }

    /// Sets [`Values::device_fraction`].
    pub fn device_fraction(mut self, share: f64) -> Self {
        self.0.device_fraction = share;
        self
    }

    /// Sets [`Values::min_free`], bytes.
    pub fn min_free(mut self, bytes: u64) -> Self {
        self.0.min_free = bytes;
        self
    }

    /// Sets [`Values::zero_fresh`].
    pub fn zero_fresh(mut self, on: bool) -> Self {
        self.0.zero_fresh = on;
        self
    }

    /// Sets [`Values::pressure`]: moderate, high, critical.
    pub fn pressure(mut self, shares: [f64; 3]) -> Self {
        self.0.pressure = shares;
        self
    }

    /// Sets [`Values::strategy`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.0.strategy = strategy;
        self
    }

    /// Sets [`Values::fallback`].
    pub fn fallback(mut self, on: bool) -> Self {
        self.0.fallback = on;
        self
    }

    /// Takes what the process's `TERRACE_*` variables say over what was set.
    ///
    /// # Errors
    /// A variable whose value has not the form of its setting. Variables of other names are left alone; one whose name
    /// differs from a setting's by a letter or two is told on the standard error stream, once in a process.
    pub fn environment(self) -> Result<Self, ConfigError> {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            let misspelt = std::env::vars_os().filter_map(|(name, _)| misspelt(&name));
            // A process without that stream cannot be told.
            misspelt.for_each(|sentence| _ = writeln!(io::stderr(), "terrace: {sentence}"));
        });
        self.variables(std::env::vars_os())
    }

    /// The same with these variables.
    ///
    /// # Errors
    /// As [`environment`](Self::environment).
    ///
    /// # Example
    /// ```
    /// use terrace::config::Config;
    /// let config = Config::builder().variables([("TERRACE_MIN_FREE".into(), "1GiB".into())])?.build()?;
    /// assert_eq!(config.min_free, 1 << 30);
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn variables(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        for (name, value) in variables {
            if let Some(setting) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
                let value = value.to_string_lossy();
                self.set(setting, value.trim())
                    .map_err(|allowed| ConfigError::new(&format!("{PREFIX}{setting}"), &value, allowed))?;
            }
        }
        Ok(self)
    }

    /// Sets what a variable names; the allowed form when the value has another.
    fn set(&mut self, setting: &str, value: &str) -> Result<(), &'static str> {
        let values = &mut self.0;
        match setting {
            "CAPACITY" => values.capacity = parse_bytes(value)?,
            "GRANULE" => values.granule = parse_bytes(value)?,
            "SMALL_THRESHOLD" => values.small_threshold = parse_bytes(value)?,
            "SEGMENT" => values.segment = parse_bytes(value)?,
            "POOLED_PER_BUCKET" => {
                values.pooled_per_bucket = value.parse().map_err(|_| "a whole number from 0 to 4294967295")?;
            }
            "DEVICE_FRACTION" => [values.device_fraction] = parse_shares(value, "a number above 0, at most 1")?,
            "MIN_FREE" => values.min_free = parse_bytes(value)?,
            "ZERO_FRESH" => values.zero_fresh = parse_switch(value)?,
            "PRESSURE" => {
                values.pressure = parse_shares(value, "three rising shares with commas, such as 0.6,0.8,0.95")?;
            }
            "FALLBACK" => values.fallback = parse_switch(value)?,
            "STRATEGY" => values.strategy = parse_strategy(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first setting that is out of bounds. See [`Values::check`].
    pub fn build(self) -> Result<Config, ConfigError> {
        self.0.check()
    }
}

/// What is told of a variable that has no setting's name, but nearly.
fn misspelt(name: &OsStr) -> Option<String> {
    let name = name.to_str().filter(|name| name.starts_with(PREFIX))?;
    Some(format!("{name} is no setting; {} is", spelling::nearest(name.as_bytes(), NAMES)?))
}

#[cfg(test)]
mod tests {
    use super::{Config, NAMES, misspelt};

    #[test]
    fn each_name_is_a_setting_that_refuses_nonsense() {
        for name in NAMES {
            let read = Config::builder().variables([(name.into(), "nonsense".into())]);
            assert!(read.is_err_and(|error| error.to_string().contains(name)), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_a_setting_s_is_told() {
        let told = misspelt("TERRACE_STRATGY".as_ref());
        assert_eq!(told.as_deref(), Some("TERRACE_STRATGY is no setting; TERRACE_STRATEGY is"));
        for other in ["TERRACE_STRATEGY", "TERRACE_LIMIT", "TERRACE_TORCH_CAPACITY", "STRATGY"] {
            assert_eq!(misspelt(other.as_ref()), None);
        }
    }
}
