//! Configurations in TOML.
//!
//! Promises upward: an unknown key, a value of the wrong form and a file cut short are errors that name the line; a file that has
//! an error changes nothing.
//! Asks from below: the crate `toml`, which says where each key and value stands.

use super::{Builder, ConfigError, DirectoryConfig, DirectoryKind, SettingOrigin};
use std::path::Path;
use terrace_core::settings::parse_bytes;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file is read whole: one that is larger is no configuration.
const MOST_BYTES: u64 = 1 << 20;

/// The keys of a directory.
const DIRECTORY_KEYS: [&str; 3] = ["path", "cap", "kind"];

/// A text, and what it is called in errors.
struct SourceText<'a> {
    name: &'a str,
    text: &'a str,
}

impl Builder {
    /// Takes what a TOML file says over what was set. See [`config`](super) for an example.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or has an unknown key or a value that its setting does not accept.
    pub fn file(self, path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let (path, name) = (path.as_ref(), path.as_ref().to_string_lossy());
        let unreadable = |reason: String| ConfigError::unreadable(&name, 0, reason);
        let about = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !about.is_file() || about.len() > MOST_BYTES {
            return Err(unreadable(format!("a configuration is a file of at most {MOST_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        self.toml(&text, &name)
    }

    /// The same for a text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    ///
    /// # Example
    /// ```
    /// use terrace::Config;
    /// let config = Config::builder().toml("granule = 256\nmin_free = \"1GiB\"", "example")?.build()?;
    /// assert_eq!((config.granule, config.min_free), (256, 1 << 30));
    /// let error = Config::builder().toml("preset = \"training\"\ngranul = 256", "example").unwrap_err();
    /// assert_eq!(error.to_string(), "example, line 2: `granul` is no setting; `granule` is");
    /// # Ok::<(), terrace::ConfigError>(())
    /// ```
    pub fn toml(mut self, text: &str, name: &str) -> Result<Self, ConfigError> {
        let source = SourceText { name, text };
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| source.line(span.start));
            ConfigError::unreadable(name, line, error.message())
        })?;
        let mut directories = Vec::new();
        for (key, value) in table.get_ref() {
            let origin = source.origin(key);
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("directory", DeValue::Array(all)) => {
                    for one in all {
                        let origin = source.origin(one);
                        let DeValue::Table(table) = one.get_ref() else {
                            return Err(no_directory(one.get_ref(), origin));
                        };
                        directories.push(source.directory(table, origin)?);
                    }
                }
                ("directory", value) => return Err(no_directory(value, origin)),
                (key, value) => self = self.key(key, &scalar(key, value, &origin)?, origin)?,
            }
        }
        if !directories.is_empty() {
            self.directories = directories;
        }
        Ok(self)
    }
}

fn no_directory(value: &DeValue<'_>, origin: SettingOrigin) -> ConfigError {
    ConfigError::value("directory", value.type_str(), "tables: [[directory]], then path = \"...\" below", origin)
}

/// A value as text, as it would stand in a variable.
fn scalar(key: &str, value: &DeValue<'_>, origin: &SettingOrigin) -> Result<String, ConfigError> {
    Ok(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_string(),
        DeValue::Float(number) => number.as_str().to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Array(all) => {
            let texts = all.iter().map(|one| scalar(key, one.get_ref(), origin));
            texts.collect::<Result<Vec<_>, _>>()?.join(",")
        }
        DeValue::Table(_) => {
            let allowed = "keys at the top of the file: settings stand in no table, but for [[directory]]";
            return Err(ConfigError::value(key, "a table", allowed, origin.clone()));
        }
        other => {
            let allowed = "a text, a decimal number, true or false, or a list of numbers";
            return Err(ConfigError::value(key, other.type_str(), allowed, origin.clone()));
        }
    })
}

impl SourceText<'_> {
    /// The number of the line, from 1, that has a byte of the text.
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count()
    }

    fn origin<T>(&self, what: &Spanned<T>) -> SettingOrigin {
        SettingOrigin::File(self.name.into(), self.line(what.span().start))
    }

    fn directory(&self, table: &DeTable<'_>, origin: SettingOrigin) -> Result<DirectoryConfig, ConfigError> {
        let mut made = DirectoryConfig::new("");
        for (key, value) in table {
            let (origin, name) = (self.origin(key), key.get_ref().as_ref());
            let text = scalar(name, value.get_ref(), &origin)?;
            let refused = |allowed: &str| ConfigError::value(name, &text, allowed, origin.clone());
            match name {
                "path" => made.path = text.into(),
                "cap" => made.cap = Some(parse_bytes(&text).map_err(refused)?),
                "kind" => {
                    let kind = DirectoryKind::ALL.iter().find(|(word, _)| *word == text);
                    made.kind = Some(kind.ok_or_else(|| refused("nvme, ssd or hdd"))?.1);
                }
                _ => return Err(ConfigError::unknown(name, DIRECTORY_KEYS, origin)),
            }
        }
        match made.path.as_os_str().is_empty() {
            true => Err(ConfigError::value("path", "", "the path of a directory", origin)),
            false => Ok(made),
        }
    }
}
