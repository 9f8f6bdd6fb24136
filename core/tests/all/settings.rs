//! The table of settings: what it says of itself, sizes as text, forms, bounds and the words for them.

use std::collections::BTreeSet;
use terrace_core::settings::{
    self, Allowed, CACHE, CHUNK, Profile, Relation, Spec, Surface, TABLE, Value, check, parse_bytes,
};

const PROFILES: [Profile; 6] =
    [Profile::Usual, Profile::Device, Profile::Torch, Profile::Inference, Profile::Training, Profile::Constrained];

fn named(name: &str) -> Spec {
    *TABLE.iter().find(|spec| spec.name == name).expect("a setting")
}

#[test]
fn each_setting_has_one_name_one_place_and_a_variable_of_that_name() {
    let names: BTreeSet<&str> = TABLE.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for spec in TABLE {
        assert!(!spec.surfaces.is_empty(), "{}", spec.name);
        let full = format!("TERRACE_{}", spec.name.to_uppercase());
        assert!(spec.variable.is_none_or(|variable| variable == full), "{}", spec.name);
        if let Some(variable) = spec.of(Profile::Torch).variable.filter(|_| spec.surfaces.contains(&Surface::Torch)) {
            let last = spec.name.rsplit('_').next().expect("a word").to_uppercase();
            assert_eq!(variable, format!("TERRACE_TORCH_{last}"));
        }
    }
}

#[test]
fn defaults_are_accepted_in_every_profile() {
    for (spec, profile) in TABLE.iter().flat_map(|spec| PROFILES.map(|profile| (spec, profile))) {
        let Spec { name, allowed, default, .. } = spec.of(profile);
        let is_part =
            matches!((allowed, default), (Allowed::Bytes(_), Value::Share(share)) if share > 0.0 && share < 1.0);
        // PyTorch's variable has no word for "no limit", which is its default.
        let is_unset = name == "capacity" && profile == Profile::Torch && default == Value::Number(0);
        assert!(allowed.holds(default) || is_part || is_unset, "{name} in {profile:?}");
    }
}

#[test]
fn related_settings_exist_on_the_same_surface() {
    for spec in TABLE.iter().flat_map(|spec| PROFILES.map(|profile| spec.of(profile))) {
        let Allowed::Bytes(bounds) = spec.allowed else { continue };
        let (Relation::AtLeast(other) | Relation::ZeroOrAtLeast(other) | Relation::AtMost(_, other)) = bounds.relation
        else {
            continue;
        };
        let other = named(other);
        let shared = |surface: &&Surface| **surface == Surface::Torch || other.surfaces.contains(surface);
        assert!(spec.surfaces.iter().all(|surface| shared(&surface)), "{}", spec.name);
    }
}

#[test]
fn each_spelling_of_a_unit_is_a_power_of_1024() {
    for (unit, shift) in [("", 0), ("b", 0), ("k", 10), ("m", 20), ("g", 30), ("t", 40)] {
        let ends: &[&str] = if shift == 0 { &[""] } else { &["", "b", "ib"] };
        for text in ends.iter().flat_map(|end| ["", " ", "  "].map(|space| format!("3{space}{unit}{end}"))) {
            for text in [text.to_uppercase(), text.replacen('m', "M", 1), text] {
                assert_eq!(parse_bytes(&text), Ok(3 << shift), "{text}");
            }
        }
    }
    assert_eq!(parse_bytes("16777215T"), Ok(16777215 << 40));
    for text in ["", "K", "1X", "1KX", "1iB", "1BB", "1KBB", "-1", "+1", "1.5G", "1 1", " 1", "16777216T", "2^64"] {
        assert!(parse_bytes(text).is_err_and(|form| form.contains("whole bytes")), "{text}");
    }
}

#[test]
fn values_are_parsed_by_their_form_and_refused_in_words() {
    for (name, text, value) in [
        ("limit", "none", Some(Value::Number(u64::MAX))),
        ("limit", "4M", Some(Value::Number(4 << 20))),
        ("limit", "4194303", None),
        ("cache", "none", None),
        ("cache", "32K", Some(Value::Number(32 << 10))),
        ("cache", "32769", None),
        ("granule", "96", None),
        ("chunk", "12K", Some(Value::Number(12 << 10))),
        ("chunk", "0", None),
        ("chunk", "1000", None),
        ("chunk", "2G", None),
        ("blocks", "0", None),
        ("device_fraction", "1", Some(Value::Share(1.0))),
        ("device_fraction", "0", None),
        ("device_fraction", "nan", None),
        ("pressure", "0.1, 0.2,1", Some(Value::Shares([0.1, 0.2, 1.0]))),
        ("pressure", "0.1,0.2", None),
        ("pressure", "0.1,0.2,0.3,0.4", None),
        ("pressure", "0.2,0.1,0.3", None),
        ("fallback", "true", Some(Value::Switch(true))),
        ("fallback", "yes", None),
        ("purge_delay", "never", Some(Value::Delay(None))),
        ("purge_delay", "2s", Some(Value::Delay(Some(2000)))),
        ("purge_delay", "4294967295", None),
        ("background", "1", Some(Value::Word(2))),
        ("background", "on", None),
        ("numa", "bind:0,63", Some(Value::Nodes(1 << 63 | 1))),
        ("numa", "interleave", Some(Value::Word(2))),
        ("numa", "bind:64", None),
        ("debug", "off", Some(Value::Words(0))),
        ("debug", "all", Some(Value::Words(15))),
        ("debug", "stats", Some(Value::Words(2))),
        ("debug", "stats, check", Some(Value::Words(3))),
        ("debug", "stats,", None),
    ] {
        let parsed = named(name).parse(text);
        assert_eq!(parsed.ok(), value, "{name}={text}");
    }
    for (allowed, words) in [
        (named("granule").allowed, "a power of two from 1 to 2MiB"),
        (
            named("capacity").allowed,
            "whole bytes below 2^64, such as 512MiB or 12G; 0 (not limited) or at least `segment`",
        ),
        (named("segment").allowed, "whole bytes from 1 to 256TiB, at least `granule`"),
        (named("limit").allowed, "whole bytes, at least 4MiB, such as 512MiB or 12G, or none"),
        (CHUNK.allowed, "a multiple of 4KiB from 4KiB to 2097148KiB"),
        (CACHE.allowed, "whole bytes from 0 to 32KiB"),
        (named("blocks").allowed, "a whole number from 1 to 16777216"),
        (named("strategy").allowed, "good, best, first or worst"),
        (named("stats").allowed, "0 or 1"),
        (named("debug").allowed, "off, all, or with commas check, stats, leaks or sites"),
        (Allowed::Variable(Surface::Torch), "TERRACE_TORCH_CAPACITY, TERRACE_TORCH_FRACTION or TERRACE_TORCH_ORIGIN"),
    ] {
        assert_eq!(allowed.to_string(), words);
    }
}

/// The setting that is refused on a surface when some of them have other values than the defaults.
fn refused(surface: Surface, changed: &[(&str, Value)]) -> Option<&'static str> {
    let value_of = |name: &str| {
        let found = changed.iter().find(|(changed, _)| *changed == name).map(|(_, value)| *value);
        Some(found.unwrap_or(named(name).of(surface.profile()).default))
    };
    check(surface, value_of).err().map(|bad| bad.name)
}

#[test]
fn settings_that_bound_each_other_are_compared() {
    let number = |name, number| (name, Value::Number(number));
    for surface in [Surface::Arena, Surface::Config, Surface::Device] {
        assert_eq!(refused(surface, &[]), None);
        assert_eq!(refused(surface, &[number("segment", 64), number("granule", 128)]), Some("segment"));
        assert_eq!(refused(surface, &[number("segment", 128), number("granule", 128)]), None);
        assert_eq!(
            refused(surface, &[number("segment", 128), number("granule", 100)]),
            Some("granule"),
            "itself first"
        );
    }
    assert_eq!(refused(Surface::Config, &[number("capacity", (16 << 20) - 1)]), Some("capacity"));
    assert_eq!(refused(Surface::Config, &[number("capacity", 16 << 20)]), None);
    assert_eq!(refused(Surface::Device, &[number("capacity", 1)]), None, "less than a segment");
    assert_eq!(refused(Surface::Device, &[number("small_threshold", 256 << 16)]), None);
    assert_eq!(refused(Surface::Device, &[number("small_threshold", (256 << 16) + 1)]), Some("small_threshold"));
    assert_eq!(refused(Surface::Device, &[number("granule", 32)]), Some("granule"));
    assert_eq!(refused(Surface::Config, &[number("granule", 32)]), None);
}

#[test]
fn names_that_are_nearly_a_variable_of_the_surface_are_found() {
    assert_eq!(settings::misspelt(Surface::Torch, b"TERRACE_TORCH_FRACTON"), Some("TERRACE_TORCH_FRACTION"));
    assert_eq!(settings::misspelt(Surface::Config, b"TERRACE_STRATGY"), Some("TERRACE_STRATEGY"));
    assert_eq!(settings::misspelt(Surface::Host, b"TERRACE_STRATGY"), None);
    assert_eq!(settings::misspelt(Surface::Manager, b"TERRACE_CHUNKS"), Some("TERRACE_CHUNK"));
}
