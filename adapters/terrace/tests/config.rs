//! Configuration: defaults, presets, variables, files; every bad value named.

use std::ffi::OsString;
use terrace::config::{Config, ConfigError, Values};
use terrace::engine::{Fit, arena};

/// What a builder makes of variables.
fn variables(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let pairs = pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::builder().variables(pairs)?.build()
}

#[test]
fn defaults_are_what_is_promised() {
    let config = Config::default();
    assert_eq!((config.device_fraction, config.min_free, config.pooled_per_bucket), (0.9, 512 << 20, 8));
    assert_eq!((config.pressure, config.strategy, config.zero_fresh), ([0.6, 0.8, 0.95], Fit::Best, false));
    assert_eq!(Config::builder().build(), Ok(config));
}

#[test]
fn presets_are_valid_and_differ() {
    let presets = [Config::inference(), Config::constrained(), Config::training(), Config::device(), Config::builder()];
    let built: Vec<_> = presets.map(|preset| preset.build().unwrap()).into();
    for (i, config) in built.iter().enumerate() {
        assert!(!built[..i].contains(config));
        assert_eq!(config.to_builder().build().as_ref(), Ok(config));
    }
}

#[test]
fn every_variable_sets_its_setting() {
    let config = variables(&[
        ("TERRACE_CAPACITY", "8GB"),
        ("TERRACE_GRANULE", "256"),
        ("TERRACE_SMALL_THRESHOLD", "64 KiB"),
        ("TERRACE_SEGMENT", "1MiB"),
        ("TERRACE_POOLED_PER_BUCKET", "3"),
        ("TERRACE_DEVICE_FRACTION", "0.5"),
        ("TERRACE_MIN_FREE", "0"),
        ("TERRACE_ZERO_FRESH", "on"),
        ("TERRACE_PRESSURE", "0.1, 0.2, 1"),
        ("TERRACE_STRATEGY", "worst"),
        ("TERRACE_FALLBACK", "on"),
        ("TERRACE_TRACES", "not a setting"),
        ("CAPACITY", "not ours"),
    ]);
    let expected = Values {
        capacity: 8 << 30,
        granule: 256,
        small_threshold: 64 << 10,
        segment: 1 << 20,
        pooled_per_bucket: 3,
        device_fraction: 0.5,
        min_free: 0,
        zero_fresh: true,
        pressure: [0.1, 0.2, 1.0],
        strategy: Fit::Worst,
        fallback: true,
    };
    assert_eq!(config, Ok(expected.check().unwrap()));
}

#[test]
fn bad_variables_name_variable_value_and_form() {
    for (name, value, allowed) in [
        ("TERRACE_CAPACITY", "8GX", "512MiB"),
        ("TERRACE_CAPACITY", "-1", "whole bytes"),
        ("TERRACE_CAPACITY", "", "whole bytes"),
        ("TERRACE_MIN_FREE", "16777216TiB", "below 2^64"),
        ("TERRACE_POOLED_PER_BUCKET", "1.5", "a whole number from 0"),
        ("TERRACE_DEVICE_FRACTION", "90%", "a number above 0, at most 1"),
        ("TERRACE_DEVICE_FRACTION", "0.5,0.6", "a number above 0, at most 1"),
        ("TERRACE_ZERO_FRESH", "yes", "on or off"),
        ("TERRACE_PRESSURE", "0.6,0.8", "three rising shares"),
        ("TERRACE_PRESSURE", "0.6,0.8,x", "three rising shares"),
        ("TERRACE_STRATEGY", "Best", "good, best, first or worst"),
    ] {
        let error = variables(&[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name} is `{value}`; allowed: ")), "{error}");
        assert!(error.contains(allowed), "{error}");
    }
}

#[test]
fn settings_out_of_bounds_are_named() {
    type Spoil = fn(&mut Values);
    let cases: [(&str, Spoil); 9] = [
        ("granule", |s| s.granule = 0),
        ("granule", |s| s.granule = 4 << 20),
        ("segment", |s| s.segment = 32),
        ("segment", |s| s.segment = u64::MAX),
        ("capacity", |s| s.capacity = 1),
        ("device_fraction", |s| s.device_fraction = f64::NAN),
        ("device_fraction", |s| s.device_fraction = 1.5),
        ("pressure", |s| s.pressure = [0.6, 0.6, 0.9]),
        ("pressure", |s| s.pressure = [0.6, 0.8, 1.1]),
    ];
    for (name, spoil) in cases {
        let mut values = Values::default();
        spoil(&mut values);
        assert_eq!(values.check().unwrap_err().name, name);
    }
}

#[cfg(feature = "serde")]
#[test]
fn files_are_checked_too_and_unknown_keys_are_refused() {
    let parse = |text| serde_json::from_str::<Config>(text).map_err(|error| error.to_string());
    assert_eq!(parse("{}"), Ok(Config::default()));
    assert_eq!(parse(r#"{"strategy": "best", "granule": 64}"#).unwrap().strategy, Fit::Best);
    assert!(parse(r#"{"granule": 100}"#).unwrap_err().starts_with("granule is `100`; allowed: a power of two"));
    assert!(parse(r#"{"granul": 64}"#).unwrap_err().contains("unknown field `granul`"));
    let config = Config::training().build().unwrap();
    assert_eq!(parse(&serde_json::to_string(&config).unwrap()), Ok(config));
}

#[test]
fn an_arena_takes_what_concerns_it() {
    let config = Config::builder().granule(256).small_threshold(8 << 10).segment(4 << 20).pooled_per_bucket(3);
    let config = config.zero_fresh(true).strategy(Fit::First).build().unwrap();
    for base in [arena::ArenaSettings::growing(), arena::ArenaSettings::segments()] {
        let settings = config.arena(base);
        let taken = (
            settings.granule,
            settings.small_threshold,
            settings.segment,
            settings.pooled_per_bucket,
            settings.zero_fresh,
        );
        assert_eq!(taken, (256, 8 << 10, 4 << 20, 3, true));
        assert_eq!((settings.slack, settings.space), (base.slack, base.space), "its kind's own");
        assert_eq!(Config::default().arena(base), base, "one set of defaults");
    }
    assert_eq!(config.strategy, Fit::First);
}
