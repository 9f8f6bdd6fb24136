//! `terrace config`: which settings hold here, and where each value came from.
//!
//! Promises upward: every setting of the table, once; what cannot be taken is an error that names its place, and nothing is
//! printed then. Nothing is opened but the file.
//! Asks from below: [`terrace::config`], the table of settings.

use crate::args::ConfigArgs;
use crate::failure::Failure;
use crate::output::{escape, json, print};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::path::{Path, PathBuf};
use terrace::Config;
use terrace::config::{ConfigError, DirectoryConfig};
use terrace_core::settings::{self, Spec, Surface};

/// What holds. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct ConfigReport {
    /// Version of this command.
    terrace: &'static str,
    preset: &'static str,
    preset_from: String,
    /// The file that was read.
    file: Option<PathBuf>,
    directories: Vec<DirectoryConfig>,
    settings: Vec<Row>,
}

/// One setting.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    value: String,
    /// Where the value came from.
    from: String,
    variable: Option<&'static str>,
    /// What it may be.
    allowed: String,
    /// What it acts on.
    acts_on: Vec<&'static str>,
}

/// Prints the settings that hold.
pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let report = report(args).map_err(|error| Failure::Usage(error.to_string()))?;
    if args.json { print(&json(&report)?) } else { print(&text(&report)) }
}

fn report(args: &ConfigArgs) -> Result<ConfigReport, ConfigError> {
    let builder = match &args.preset {
        Some(preset) => Config::builder().preset(preset)?,
        None => Config::builder(),
    };
    // A file that is named here stands in place of the variable's.
    let (builder, file) = match &args.file {
        Some(file) => (builder.file(file)?.environment()?, Some(file.clone())),
        None => (builder.load()?, std::env::var_os("TERRACE_CONFIG").map(PathBuf::from)),
    };
    let config = builder.build()?;
    let own = config.rows().map(|row| Row {
        name: row.spec.name,
        value: row.value,
        from: row.origin.to_string(),
        variable: row.spec.variable,
        allowed: row.spec.allowed.to_string(),
        acts_on: acts_on(row.spec),
    });
    let mut rows: Vec<Row> = own.collect();
    for surface in [Surface::Host, Surface::Torch] {
        for spec in settings::of(surface) {
            let spec = spec.of(surface.profile());
            rows.push(by_variable(&spec, surface)?);
        }
    }
    let (preset, from) = config.preset();
    let directories = config.directories().to_vec();
    let preset_from = from.to_string();
    Ok(ConfigReport { terrace: env!("CARGO_PKG_VERSION"), preset, preset_from, file, directories, settings: rows })
}

/// A setting that only its variable sets.
fn by_variable(spec: &Spec, surface: Surface) -> Result<Row, ConfigError> {
    let text = spec.variable.and_then(|name| Some((name, std::env::var_os(name)?)));
    let (value, from) = match &text {
        Some((name, text)) => {
            let text = text.to_string_lossy();
            (Config::parse(spec, name, &text)?, (*name).to_string())
        }
        None => (spec.default, "default".into()),
    };
    let acts_on = if surface == Surface::Host { "programs" } else { "pytorch" };
    Ok(Row {
        name: spec.name,
        value: spec.text(value).to_string(),
        from,
        variable: spec.variable,
        allowed: spec.allowed.to_string(),
        acts_on: vec![acts_on],
    })
}

/// What a setting of a configuration acts on.
fn acts_on(spec: &Spec) -> Vec<&'static str> {
    let named = [(Surface::Device, "devices"), (Surface::Manager, "managers"), (Surface::Arena, "arenas")];
    let mut on: Vec<_> =
        named.iter().filter(|(surface, _)| spec.surfaces.contains(surface)).map(|(_, name)| *name).collect();
    if spec.name == settings::POOLED_PER_BUCKET.name {
        on.push("buffer pools");
    }
    on
}

fn text(report: &ConfigReport) -> String {
    let file = report.file.as_deref().map_or("none; TERRACE_CONFIG names one".into(), shown);
    let mut text = format!(
        "Later sources win: defaults, preset, file, variables; a program may set what nobody else does, or insist.\n\
         preset  {} ({})\nfile    {file}\n\n",
        report.preset, report.preset_from
    );
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["setting", "value", "from", "variable", "acts on"]);
    for row in &report.settings {
        let (from, variable) = (escape(&row.from), row.variable.unwrap_or("-"));
        table.add_row([row.name, &row.value, &from, variable, &row.acts_on.join(", ")]);
    }
    text += &format!("{table}\n");
    for DirectoryConfig { path, cap, kind } in &report.directories {
        let cap = cap.map_or("share_of_disk".into(), |cap| format!("{cap} bytes"));
        let kind = kind.map_or("as the system says".into(), |kind| format!("{kind:?}").to_lowercase());
        text += &format!("directory {}: cap {cap}, kind {kind}\n", shown(path));
    }
    text + "\nWhat each may be: terrace config --json, and `terrace::config` in the documentation.\n"
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}
