//! Where the value of a setting came from, and what is wrong with one.
//!
//! Promises upward: every error names the place, the setting, its value and what is allowed, or the name that was probably meant.
//! Asks from below: nothing.

use std::fmt;
use std::sync::Arc;
use terrace_core::settings::{Allowed, Profile, Spec, Value};

/// Where a value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Nothing was said.
    #[default]
    Default,
    /// A preset.
    Preset(Profile),
    /// A file, and the line in it, from 1.
    File(Arc<str>, usize),
    /// A variable of the environment.
    Variable(&'static str),
    /// A call.
    Code,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset(profile) => write!(f, "preset {}", word(*profile)),
            Self::File(path, line) => write!(f, "{}, line {line}", path.escape_debug()),
            Self::Variable(name) => f.write_str(name),
            Self::Code => f.write_str("code"),
        }
    }
}

/// The words that name presets.
const PRESET_WORDS: [&str; 5] = ["usual", "device", "inference", "training", "constrained"];

/// The profiles of presets, in the order of their words.
pub(super) const PROFILES: [Profile; 5] =
    [Profile::Usual, Profile::Device, Profile::Inference, Profile::Training, Profile::Constrained];

/// What a preset may be.
pub(super) const PRESETS: Allowed = Allowed::Word(&PRESET_WORDS);

/// The word for a profile.
pub(super) fn word(profile: Profile) -> &'static str {
    PROFILES.iter().position(|known| *known == profile).map_or("torch", |at| PRESET_WORDS[at])
}

/// A configuration that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, its variable, or the file.
    pub name: String,
    /// Where the value came from.
    pub origin: SettingOrigin,
    /// What is wrong.
    pub problem: ConfigProblem,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigProblem {
    /// The value is not one of those that the setting takes.
    Value {
        /// The value.
        value: String,
        /// What would be allowed.
        allowed: String,
    },
    /// There is no setting of this name.
    Unknown {
        /// The name that was probably meant.
        meant: Option<&'static str>,
    },
    /// The setting is none of a configuration's: its variable sets it when a program starts, or code does.
    Elsewhere {
        /// The variable.
        variable: &'static str,
    },
    /// The file cannot be read, or is no TOML.
    Unreadable(String),
}

impl ConfigError {
    pub(super) fn value(name: &str, value: &str, allowed: impl fmt::Display, origin: SettingOrigin) -> Self {
        let problem = ConfigProblem::Value { value: value.into(), allowed: allowed.to_string() };
        Self { name: name.into(), origin, problem }
    }

    pub(super) fn unknown(name: &str, known: impl IntoIterator<Item = &'static str>, origin: SettingOrigin) -> Self {
        let meant = terrace_core::spelling::nearest(name.as_bytes(), known);
        Self { name: name.into(), origin, problem: ConfigProblem::Unknown { meant } }
    }

    #[cfg_attr(not(feature = "toml"), expect(dead_code, reason = "only files are unreadable"))]
    pub(super) fn unreadable(path: &str, line: usize, reason: impl Into<String>) -> Self {
        let problem = ConfigProblem::Unreadable(reason.into());
        Self { name: path.into(), origin: SettingOrigin::File(path.into(), line), problem }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_debug();
        if let (SettingOrigin::File(path, line), ConfigProblem::Unreadable(reason)) = (&self.origin, &self.problem) {
            // Line 0: of the whole file.
            return match line {
                0 => write!(f, "{}: {reason}", path.escape_debug()),
                line => write!(f, "{}, line {line}: {reason}", path.escape_debug()),
            };
        }
        if let origin @ SettingOrigin::File(..) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        match &self.problem {
            ConfigProblem::Value { value, allowed } => {
                write!(f, "{name} is `{}`; allowed: {allowed}", value.escape_debug())
            }
            ConfigProblem::Unknown { meant: Some(meant) } => write!(f, "`{name}` is no setting; `{meant}` is"),
            ConfigProblem::Unknown { meant: None } => {
                write!(f, "`{name}` is no setting; `terrace config` shows all")
            }
            ConfigProblem::Elsewhere { variable } => {
                write!(f, "`{name}` is set when a program starts, by the variable {variable}")
            }
            ConfigProblem::Unreadable(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Parses the text for a setting.
///
/// # Errors
/// A value that the setting does not accept.
pub(super) fn parse(spec: &Spec, text: &str, origin: SettingOrigin) -> Result<Value, ConfigError> {
    let value = spec.allowed.parse(text.trim());
    value.ok_or_else(|| ConfigError::value(&name(spec, &origin), text, spec.allowed, origin))
}

/// The name for a setting in an error: that of its variable where one set it.
pub(super) fn name(spec: &Spec, origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Variable(name) => (*name).into(),
        _ => spec.name.into(),
    }
}
