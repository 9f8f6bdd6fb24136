//! Collects settings: from code, from variables of the environment, from a file; all are checked once.
//!
//! Promises upward: a later call wins over an earlier one, whatever each sets from; a preset holds where nothing else is set,
//! whenever it was chosen; each value keeps where it came from. A variable or key is parsed when it is read, relations
//! between settings are checked by [`Builder::build`]. A variable that is probably misspelt is told once, on the standard
//! error stream.
//! Asks from below: the core's table, which parses.

use super::origin::{PRESETS, PROFILES, name, parse};
use super::{Config, ConfigError, ConfigProblem, DirectoryConfig, SettingOrigin, Values};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::Once;
use terrace_core::Fit;
use terrace_core::settings::{self, ChosenSettings, Profile, Spec, Surface, TABLE, Value};

/// The variable that names a file of settings.
pub(super) const FILE: &str = "TERRACE_CONFIG";
/// The variable that names a preset.
pub(super) const PRESET: &str = "TERRACE_PRESET";
/// The variable that names directories for files, with colons between.
pub(super) const DIRECTORIES: &str = "TERRACE_DIRECTORIES";

/// What a configuration covers.
const SURFACES: [Surface; 3] = [Surface::Config, Surface::Device, Surface::Manager];

/// Collects values.
///
/// Start with [`Config::builder`] or a preset; the settings are described at [`config`](super).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Builder {
    pub(super) settings: ChosenSettings,
    /// Where a value that was set came from, by the setting's name.
    pub(super) origins: BTreeMap<&'static str, SettingOrigin>,
    pub(super) preset: SettingOrigin,
    pub(super) directories: Vec<DirectoryConfig>,
}

impl From<Values> for Builder {
    fn from(values: Values) -> Self {
        let rows = settings::of(Surface::Config).filter_map(|spec| Some((spec, values.get(spec.name)?)));
        rows.fold(Self::default(), |builder, (spec, value)| builder.put(spec, value, SettingOrigin::Code))
    }
}

impl Builder {
    /// Starts from the defaults of a profile.
    pub(super) fn of(profile: Profile) -> Self {
        let preset = if profile == Profile::Usual { SettingOrigin::Default } else { SettingOrigin::Code };
        Self { settings: ChosenSettings::new(profile), preset, ..Self::default() }
    }

    /// Sets a row's value, unchecked.
    pub(super) fn put(mut self, spec: &'static Spec, value: Value, origin: SettingOrigin) -> Self {
        self.settings.set(spec, value);
        self.origins.insert(spec.name, origin);
        self
    }

    fn number(self, spec: &'static Spec, number: u64) -> Self {
        self.put(spec, Value::Number(number), SettingOrigin::Code)
    }

    /// Sets [`Values::capacity`], bytes.
    pub fn capacity(self, bytes: u64) -> Self {
        self.number(&settings::CAPACITY, bytes)
    }

    /// Sets [`Values::granule`], bytes.
    pub fn granule(self, bytes: u64) -> Self {
        self.number(&settings::GRANULE, bytes)
    }

    /// Sets [`Values::small_threshold`], bytes.
    pub fn small_threshold(self, bytes: u64) -> Self {
        self.number(&settings::SMALL_THRESHOLD, bytes)
    }

    /// Sets [`Values::segment`], bytes.
    pub fn segment(self, bytes: u64) -> Self {
        self.number(&settings::SEGMENT, bytes)
    }

    /// Sets [`Values::pooled_per_bucket`], blocks.
    pub fn pooled_per_bucket(self, blocks: u32) -> Self {
        self.number(&settings::POOLED_PER_BUCKET, blocks.into())
    }

    /// Sets [`Values::device_fraction`].
    pub fn device_fraction(self, share: f64) -> Self {
        self.put(&settings::DEVICE_FRACTION, Value::Share(share), SettingOrigin::Code)
    }

    /// Sets [`Values::min_free`], bytes.
    pub fn min_free(self, bytes: u64) -> Self {
        self.number(&settings::MIN_FREE, bytes)
    }

    /// Sets [`Values::zero_fresh`].
    pub fn zero_fresh(self, on: bool) -> Self {
        self.put(&settings::ZERO_FRESH, Value::Switch(on), SettingOrigin::Code)
    }

    /// Sets [`Values::pressure`]: moderate, high, critical.
    pub fn pressure(self, shares: [f64; 3]) -> Self {
        self.put(&settings::PRESSURE, Value::Shares(shares), SettingOrigin::Code)
    }

    /// Sets [`Values::strategy`].
    pub fn strategy(self, strategy: Fit) -> Self {
        self.put(&settings::STRATEGY, Value::Word(strategy as usize), SettingOrigin::Code)
    }

    /// Sets [`Values::fallback`].
    pub fn fallback(self, on: bool) -> Self {
        self.put(&settings::FALLBACK, Value::Switch(on), SettingOrigin::Code)
    }

    /// Sets a setting by its name, from text.
    ///
    /// # Errors
    /// No setting of that name; a value that the setting does not accept.
    ///
    /// # Example
    /// ```
    /// use terrace::Config;
    /// let config = Config::builder().set("memory", "2GiB")?.set("policy", "sieve")?.build()?;
    /// assert_eq!(config.text("memory").as_deref(), Some("2GiB"));
    /// let error = Config::builder().set("memroy", "2GiB").unwrap_err();
    /// assert_eq!(error.to_string(), "`memroy` is no setting; `memory` is");
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn set(self, name: &str, value: &str) -> Result<Self, ConfigError> {
        self.key(name, value, SettingOrigin::Code)
    }

    /// Chooses a preset: `usual`, `device`, `inference`, `training` or `constrained`.
    ///
    /// Its values hold where nothing else is set, before this call or after.
    ///
    /// # Errors
    /// No preset of that name.
    pub fn preset(self, name: &str) -> Result<Self, ConfigError> {
        self.key("preset", name, SettingOrigin::Code)
    }

    /// Adds a directory for files of a manager.
    pub fn directory(mut self, directory: DirectoryConfig) -> Self {
        self.directories.push(directory);
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
        for (name, text) in variables {
            let key = match name.to_str() {
                Some(PRESET) => Some(("preset", PRESET)),
                Some(DIRECTORIES) => {
                    self.directories = DirectoryConfig::list(&text);
                    continue;
                }
                _ => covered().find_map(|spec| Some((spec.name, spec.variable.filter(|variable| name == *variable)?))),
            };
            if let Some((key, variable)) = key {
                self = self.key(key, &text.to_string_lossy(), SettingOrigin::Variable(variable))?;
            }
        }
        Ok(self)
    }

    /// Takes the file that `TERRACE_CONFIG` names, if any, then the other variables over that.
    ///
    /// # Errors
    /// As [`file`](Self::file) and [`environment`](Self::environment). Without the feature `toml` a file cannot be read.
    pub fn load(self) -> Result<Self, ConfigError> {
        match std::env::var_os(FILE) {
            Some(path) => self.read(path.as_ref())?.environment(),
            None => self.environment(),
        }
    }

    #[cfg(feature = "toml")]
    fn read(self, path: &std::path::Path) -> Result<Self, ConfigError> {
        self.file(path)
    }

    #[cfg(not(feature = "toml"))]
    fn read(self, path: &std::path::Path) -> Result<Self, ConfigError> {
        let allowed = "nothing: this program was built without terrace's feature `toml`";
        Err(ConfigError::value(FILE, &path.to_string_lossy(), allowed, SettingOrigin::Variable(FILE)))
    }

    /// Sets what a key names: a setting that a configuration covers, or the preset.
    pub(super) fn key(mut self, key: &str, text: &str, origin: SettingOrigin) -> Result<Self, ConfigError> {
        if key == "preset" {
            let Some(chosen) = PRESETS.parse(text.trim()) else {
                let name = if let SettingOrigin::Variable(name) = origin { name } else { key };
                return Err(ConfigError::value(name, text, PRESETS, origin));
            };
            self.settings.set_profile(PROFILES[chosen.word()]);
            self.preset = origin;
            return Ok(self);
        }
        let Some(spec) = covered().find(|spec| spec.name == key) else {
            let elsewhere = TABLE.iter().find(|spec| spec.name == key).and_then(|spec| spec.variable);
            if let Some(variable) = elsewhere {
                let problem = ConfigProblem::Elsewhere { variable };
                return Err(ConfigError { name: key.into(), origin, problem });
            }
            let known = covered().map(|spec| spec.name).chain(["preset", "directory"]);
            return Err(ConfigError::unknown(key, known, origin));
        };
        let value = parse(spec, text, origin.clone())?;
        Ok(self.put(spec, value, origin))
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first setting that is out of bounds. See [`Values::check`].
    pub fn build(self) -> Result<Config, ConfigError> {
        for surface in SURFACES {
            self.settings.check(surface).map_err(|bad| self.refused(bad.name))?;
        }
        Ok(Config { values: Values::of(&self.settings), builder: self })
    }

    /// The error for a setting that is out of bounds; says where the setting that bounds it came from.
    fn refused(&self, bad: &str) -> ConfigError {
        let Some(spec) = TABLE.iter().find(|spec| spec.name == bad) else {
            return ConfigError::unknown(bad, [], SettingOrigin::Code);
        };
        let origin = self.origin_of(spec);
        let mut allowed = spec.allowed.to_string();
        let bounding = TABLE.iter().find(|other| Some(other.name) == spec.allowed.bounded_by());
        if let Some(other) = bounding.filter(|_| spec.allowed.holds(self.settings.of(spec))) {
            let (value, origin) = (other.text(self.settings.of(other)), self.origin_of(other));
            allowed += &format!(", which is {value} ({origin})");
        }
        ConfigError::value(&name(spec, &origin), &spec.text(self.settings.of(spec)).to_string(), allowed, origin)
    }

    /// Where the value of a setting came from.
    pub(super) fn origin_of(&self, spec: &Spec) -> SettingOrigin {
        let profile = self.settings.profile();
        let by_preset = spec.overrides.iter().any(|over| over.profile == profile);
        match self.origins.get(spec.name) {
            Some(origin) => origin.clone(),
            None if by_preset => SettingOrigin::Preset(profile),
            None => SettingOrigin::Default,
        }
    }
}

/// The settings that a configuration covers, each once.
pub(super) fn covered() -> impl Iterator<Item = &'static Spec> {
    TABLE.iter().filter(|spec| spec.surfaces.iter().any(|surface| SURFACES.contains(surface)))
}

/// What is told of a variable that has no setting's name, but nearly.
fn misspelt(name: &OsStr) -> Option<String> {
    let name = name.to_str()?;
    // Those of the allocator for programs and of PyTorch are known too: each tells of its own.
    if [Surface::Host, Surface::Torch].iter().any(|of| settings::variables(*of).any(|known| known == name)) {
        return None;
    }
    let known = covered().filter_map(|spec| spec.variable).chain([FILE, PRESET, DIRECTORIES]);
    Some(format!("{name} is no setting; {} is", terrace_core::spelling::nearest(name.as_bytes(), known)?))
}

#[cfg(test)]
mod tests {
    use super::{Config, covered, misspelt};

    #[test]
    fn each_name_is_a_setting_that_refuses_nonsense() {
        for name in
            covered().map(|spec| spec.variable.expect("each can be set by a variable")).chain(["TERRACE_PRESET"])
        {
            let read = Config::builder().variables([(name.into(), "nonsense".into())]);
            assert!(read.is_err_and(|error| error.to_string().contains(name)), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_a_setting_s_is_told() {
        for (name, meant) in [
            ("TERRACE_STRATGY", "TERRACE_STRATEGY"),
            ("TERRACE_MEMROY", "TERRACE_MEMORY"),
            ("TERRACE_CONFG", "TERRACE_CONFIG"),
        ] {
            assert_eq!(misspelt(name.as_ref()), Some(format!("{name} is no setting; {meant} is")));
        }
        for other in ["TERRACE_STRATEGY", "TERRACE_LIMIT", "TERRACE_TORCH_CAPACITY", "STRATGY"] {
            assert_eq!(misspelt(other.as_ref()), None);
        }
    }
}
