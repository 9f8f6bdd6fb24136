//! Configurations as serde values: a map from the names of settings to values.
//!
//! Promises upward: what was written reads back equal; sizes may be texts or numbers; an unknown name is an error.
//! Asks from below: [`Builder`], which parses and checks.

use super::{Builder, Config, DirectoryConfig, SettingOrigin, Value, covered};
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use terrace_core::settings::Surface;

/// A value of any form that a setting may have.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Switch(bool),
    Number(u64),
    Share(f64),
    Shares([f64; 3]),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => on.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Share(share) => share.fmt(f),
            Self::Shares([first, second, third]) => write!(f, "{first},{second},{third}"),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// The settings of devices always, those of managers where they were set.
impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("preset", self.preset().0)?;
        for spec in covered() {
            let set = self.builder.settings.get(spec);
            if set.is_none() && !spec.surfaces.contains(&Surface::Config) {
                continue;
            }
            match self.builder.settings.of(spec) {
                Value::Number(number) => map.serialize_entry(spec.name, &number)?,
                Value::Share(share) => map.serialize_entry(spec.name, &share)?,
                Value::Shares(shares) => map.serialize_entry(spec.name, &shares)?,
                Value::Switch(on) => map.serialize_entry(spec.name, &on)?,
                other => map.serialize_entry(spec.name, &spec.text(other).to_string())?,
            }
        }
        if !self.directories().is_empty() {
            map.serialize_entry("directory", self.directories())?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConfigVisitor;

        impl<'de> Visitor<'de> for ConfigVisitor {
            type Value = Config;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from the names of settings to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
                let mut builder = Builder::default();
                while let Some(key) = map.next_key::<String>()? {
                    builder = match key.as_str() {
                        "directory" => {
                            map.next_value::<Vec<DirectoryConfig>>()?.into_iter().fold(builder, Builder::directory)
                        }
                        key => {
                            let text = map.next_value::<Scalar>()?.to_string();
                            builder.key(key, &text, SettingOrigin::Code).map_err(Error::custom)?
                        }
                    };
                }
                builder.build().map_err(Error::custom)
            }
        }

        deserializer.deserialize_map(ConfigVisitor)
    }
}
