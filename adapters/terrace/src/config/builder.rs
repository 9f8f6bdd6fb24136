//! Collects settings, from code or from `TERRACE_*` variables, to be checked once.
//!
//! Promises upward: later calls win; a variable is checked when it is read, what code sets by [`Builder::build`]; a variable
//! of the process that is probably misspelt is told once, on the standard error stream.
//! Asks from below: the core's table, which parses.

use super::{Config, ConfigError, Values};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::Once;
use terrace_core::Fit;
use terrace_core::settings::{self, Surface};

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
    pub fn strategy(mut self, strategy: Fit) -> Self {
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
    /// A variable whose value its setting does not accept. Variables of other names are left alone; one whose name
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
            let is_named = |variable: &str| name == variable;
            let mut known = settings::of(Surface::Config);
            let Some(spec) = known.find(|spec| spec.variable.is_some_and(is_named)) else { continue };
            let text = value.to_string_lossy();
            let value = spec.parse(text.trim()).map_err(|bad| ConfigError {
                name: bad.name.into(),
                value: text.into_owned(),
                allowed: bad.allowed,
            })?;
            self.0.set(spec.name, value);
        }
        Ok(self)
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
    let name = name.to_str()?;
    Some(format!("{name} is no setting; {} is", settings::misspelt(Surface::Config, name.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::{Config, misspelt};
    use terrace_core::settings::{Surface, variables};

    #[test]
    fn each_name_is_a_setting_that_refuses_nonsense() {
        for name in variables(Surface::Config) {
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
