//! The core's table of settings against what is set by it: structures, variables, and the tables that users read.
//!
//! A row that its surface does not have fails, and so does a setting of a surface without a row.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use terrace::Config;
use terrace::config::{Builder, Values};
use terrace::device::{DeviceOptions, PoolOrigin};
use terrace::engine::Fit;
use terrace::engine::arena::ArenaSettings;
use terrace_core::settings::{self, Allowed, Profile, Spec, Surface, TABLE, Value};
use terrace_file::EngineKind;
use terrace_host::Setting;
use terrace_tiers::policy::PolicyKind;

/// A file of the project.
pub fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the project");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names and values of a structure's fields.
fn fields(of: &dyn Debug) -> Vec<(String, String)> {
    let text = format!("{of:#?}").replace("[\n        ", "[").replace(",\n        ", ", ").replace(",\n    ]", "]");
    let lines = text.lines().filter_map(|line| line.strip_prefix("    ")?.trim_end_matches(',').split_once(": "));
    lines.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// A default as `Debug` writes the field.
fn written(spec: &Spec) -> String {
    match (spec.default, spec.allowed) {
        (Value::Number(number), _) => number.to_string(),
        (Value::Share(share), _) => format!("{share:?}"),
        (Value::Shares(shares), _) => format!("{shares:?}"),
        (Value::Switch(on), _) => on.to_string(),
        (Value::Word(at), Allowed::Word(words)) => words[at].replace('-', ""),
        (words @ Value::Words(_), _) => spec.text(words).to_string(),
        other => panic!("{other:?} is no field"),
    }
}

/// Whether a structure has the rows of its surface, no others, and their defaults.
fn agrees(surface: Surface, profile: Profile, structure: &dyn Debug, others: &[&str]) {
    let mut found = fields(structure);
    found.retain(|(name, _)| !others.contains(&name.as_str()));
    let row = |spec: &Spec| (spec.name.to_string(), written(&spec.of(profile)));
    let [found, rows]: [BTreeSet<_>; 2] = [
        found.into_iter().map(|(name, value)| (name, value.to_lowercase())).collect(),
        settings::of(surface).map(row).collect(),
    ];
    assert_eq!(found, rows, "{surface:?}, {profile:?}");
}

#[test]
fn arenas_and_devices_have_the_rows_and_their_defaults() {
    // What follows from the kind of source.
    let by_source = [
        "coalesce",
        "slack",
        "max_slack",
        "move_above",
        "ample",
        "ample_multiple",
        "segment_multiple",
        "largest_multiple",
        "spare_multiple",
        "grain",
        "map_multiple",
        "space",
    ];
    for settings in [ArenaSettings::growing(), ArenaSettings::segments()] {
        agrees(Surface::Arena, Profile::Usual, &settings, &by_source);
    }
    agrees(Surface::Device, Profile::Device, &DeviceOptions::default(), &[]);
}

#[test]
fn configurations_have_the_rows_and_each_preset_its_profile() {
    let presets: [(Profile, Builder); 5] = [
        (Profile::Usual, Config::builder()),
        (Profile::Device, Config::device()),
        (Profile::Inference, Config::inference()),
        (Profile::Training, Config::training()),
        (Profile::Constrained, Config::constrained()),
    ];
    for (profile, builder) in presets {
        agrees(Surface::Config, profile, &Values::from(builder.build().expect("a preset is valid")), &[]);
    }
}

#[test]
fn each_variable_of_a_configuration_changes_it() {
    for spec in Config::default().rows().map(|row| row.spec) {
        let texts =
            ["4KiB", "0.5", "3", "0.1,0.2,0.3", "on", "off", "worst", "never", "lru", "threads", "stats", "pages"];
        let changes = |text: &&&str| spec.parse(text).is_ok_and(|value| value != spec.default);
        let text = texts.iter().find(changes).unwrap_or_else(|| panic!("a value for {}", spec.name));
        let variable = spec.variable.expect("a variable").into();
        let changed = Config::builder().variables([(variable, text.into())]).expect("its row accepts the value");
        assert_ne!(changed, Config::builder(), "{}", spec.name);
    }
}

#[test]
fn words_stand_in_the_order_of_what_they_choose() {
    let same = |words: Allowed, all: &[&dyn Debug]| {
        let names: Vec<String> = all.iter().map(|one| format!("{one:?}").to_lowercase()).collect();
        let Allowed::Word(words) = words else { panic!("no words") };
        assert_eq!(words.iter().map(|word| word.replace('-', "")).collect::<Vec<_>>(), names);
    };
    same(settings::STRATEGY.allowed, &Fit::ALL.each_ref().map(|one| one as &dyn Debug));
    same(settings::ORIGIN.allowed, &PoolOrigin::ALL.each_ref().map(|one| one as &dyn Debug));
    same(settings::POLICY.allowed, &PolicyKind::ALL.each_ref().map(|one| one as &dyn Debug));
    same(settings::ENGINE.allowed, &EngineKind::ALL.each_ref().map(|one| one as &dyn Debug));
}

#[test]
fn programs_allocator_has_the_rows() {
    let source = file("adapters/host/src/settings.rs");
    let variants =
        source.split_once("pub enum Setting {").and_then(|(_, rest)| rest.split_once("\n}")).expect("the enum").0;
    let snake = |name: &str| {
        let words = name
            .char_indices()
            .flat_map(|(at, c)| (at > 0 && c.is_uppercase()).then_some('_').into_iter().chain(c.to_lowercase()));
        words.collect::<String>()
    };
    let variants =
        variants.lines().filter_map(|line| Some(line.trim().split_once('(')?.0)).filter(|name| !name.contains('/'));
    assert_eq!(
        variants.map(snake).collect::<Vec<_>>(),
        settings::of(Surface::Host).map(|spec| spec.name).collect::<Vec<_>>()
    );
}

#[test]
fn the_manager_has_the_rows() {
    let [source, build] = ["builder", "build"].map(|name| file(&format!("adapters/tiers/src/manager/{name}.rs")));
    for spec in settings::of(Surface::Manager) {
        let name = spec.name.to_uppercase();
        assert!(source.contains(&format!("settings.set(&{name}, ")), "{name} is set");
        assert!(build.contains(&format!("settings.of(&{name})")), "{name} is read");
    }
    let numbers = ["u32", "u64", "usize", "f64", "bool", "Duration"];
    for line in source.lines() {
        let Some((name, rest)) = line.trim().strip_prefix("pub fn ").and_then(|line| line.split_once("(mut self, "))
        else {
            continue;
        };
        let is_number =
            numbers.iter().any(|number| rest.ends_with(&format!(": {number}) -> Self {{")) && !rest.contains(", "));
        assert!(!is_number || settings::of(Surface::Manager).any(|spec| spec.name == name), "{name} has no row");
    }
}

/// Rows of the table in a file for users: variable, values, default.
fn documented(path: &str) -> Vec<[String; 3]> {
    let text = file(path);
    let cells = |line: &str| {
        let cells: Vec<&str> = line.trim_start_matches("//! ").strip_prefix("| ")?.split(" | ").collect();
        let at = cells.iter().position(|cell| cell.starts_with("`TERRACE_"))?;
        let [variable, values, default] = cells.get(at..)?.first_chunk()?;
        Some([variable.trim_matches('`').into(), values.to_string(), default.to_string()])
    };
    text.lines().filter_map(cells).collect()
}

#[test]
fn tables_for_users_say_what_the_table_says() {
    for (path, surface) in [
        ("adapters/host/README.md", Surface::Host),
        ("adapters/terrace/src/config.rs", Surface::Config),
        ("adapters/torch/README.md", Surface::Torch),
    ] {
        // A configuration covers devices and managers too.
        let rows = match surface {
            Surface::Config => Config::default().rows().map(|row| row.spec).collect(),
            surface => settings::of(surface).collect::<Vec<_>>(),
        };
        let rows: Vec<Spec> = rows.iter().map(|spec| spec.of(surface.profile())).collect();
        let found = documented(path);
        let [names, known] = [
            found.iter().map(|[name, ..]| name.as_str()).collect(),
            rows.iter().filter_map(|spec| spec.variable).collect::<Vec<_>>(),
        ];
        assert_eq!(names, known, "{path}");
        for (spec, [name, values, default]) in rows.iter().zip(found) {
            assert_eq!(values, spec.allowed.to_string(), "{path}: {name}");
            // A default that no value of the variable stands for is described.
            let text = default.strip_prefix('`').and_then(|rest| rest.split('`').next());
            let said = text.map(|text| spec.allowed.parse(text).unwrap_or_else(|| panic!("{path}: {name}: {text}")));
            assert_eq!(said, Some(spec.default).filter(|default| spec.allowed.holds(*default)), "{path}: {name}");
        }
    }
}

#[test]
fn variables_that_readmes_mention_exist_and_accept_the_value() {
    for path in ["README.md", "adapters/capi/README.md", "adapters/host/README.md", "adapters/torch/README.md"] {
        assert!(check_variables(path, &file(path)) > 0, "{path} mentions none");
    }
}

/// Checks that each variable in a text for users exists, and accepts the value that stands behind `=`; returns how many.
pub fn check_variables(path: &str, text: &str) -> usize {
    let mentioned = text.match_indices("TERRACE_").map(|(at, _)| &text[at..]);
    let check = |rest: &str| {
        let end = |text: &str, of: fn(char) -> bool| text.find(|c| !of(c)).unwrap_or(text.len());
        let (name, rest) = rest.split_at(end(rest, |c| c.is_ascii_uppercase() || c == '_'));
        let profiles = [Profile::Usual, Profile::Torch].iter();
        let known = profiles.flat_map(|&profile| TABLE.iter().map(move |spec| spec.of(profile)));
        let spec = known.clone().find(|spec| spec.variable == Some(name));
        let spec = spec.unwrap_or_else(|| panic!("{path}: {name} is no variable"));
        if let Some(value) = rest.strip_prefix('=') {
            let value = &value[..end(value, |c| c.is_ascii_alphanumeric() || c == '-' || c == '.')];
            assert!(spec.parse(value.trim_end_matches('.')).is_ok(), "{path}: {name}={value}");
        }
    };
    mentioned.map(check).count()
}

#[test]
fn the_allocator_for_programs_parses_each_default() {
    for [name, _, default] in documented("adapters/host/README.md") {
        let text = default.split('`').nth(1).expect("a value");
        assert!(Setting::parse(&name, text).is_ok(), "{name}={text}");
    }
}

/// A preset's value that is dropped from the table, or that what a configuration makes does not take, fails here.
#[test]
fn each_preset_has_the_values_that_its_name_promises() {
    let expected: [(&str, &[(&str, &str)]); 3] = [
        ("inference", &[("pooled_per_bucket", "128")]),
        ("training", &[("segment", "64MiB"), ("pooled_per_bucket", "64"), ("memory", "25 % of what there is")]),
        (
            "constrained",
            &[
                ("segment", "2MiB"),
                ("pooled_per_bucket", "2"),
                ("device_fraction", "0.5"),
                ("memory", "12.5 % of what there is"),
                ("staging", "2MiB"),
                ("share_of_disk", "0.1"),
            ],
        ),
    ];
    for (preset, values) in expected {
        let config = Config::builder().preset(preset).and_then(Builder::build).expect("a preset");
        let rows = config.rows().filter(|row| row.origin.to_string() == format!("preset {preset}"));
        let found: Vec<_> = rows.map(|row| (row.spec.name, row.value)).collect();
        assert_eq!(found, values.iter().map(|(name, value)| (*name, value.to_string())).collect::<Vec<_>>());
    }
}

#[test]
fn each_default_is_read_as_it_is_written() {
    for spec in TABLE.iter().flat_map(|spec| [Profile::Usual, Profile::Device, Profile::Torch].map(|of| spec.of(of))) {
        if spec.allowed.holds(spec.default) {
            assert_eq!(spec.allowed.parse(&spec.text(spec.default).to_string()), Some(spec.default), "{}", spec.name);
        }
    }
    assert_eq!(settings::NUMA.text(settings::NUMA.parse("bind:0,5").expect("nodes")).to_string(), "bind:0,5");
    assert_eq!(settings::LIMIT.text(settings::LIMIT.default).to_string(), "none");
}
