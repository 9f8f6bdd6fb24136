//! Configuration: defaults, presets, variables, files; every bad value named.

use std::ffi::OsString;
use terrace::buffers::BufferPool;
use terrace::config::{Config, ConfigError, Values};
#[cfg(any(feature = "serde", feature = "toml"))]
use terrace::config::{DirectoryConfig, DirectoryKind};
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
    let parse = |text: &str| serde_json::from_str::<Config>(text).map_err(|error| error.to_string());
    assert_eq!(parse("{}"), Ok(Config::default()));
    assert_eq!(parse(r#"{"strategy": "best", "granule": 64}"#).unwrap().strategy, Fit::Best);
    assert!(parse(r#"{"granule": 100}"#).unwrap_err().starts_with("granule is `100`; allowed: a power of two"));
    assert!(parse(r#"{"granul": 64}"#).unwrap_err().starts_with("`granul` is no setting; `granule` is"));
    assert_eq!(parse(r#"{"min_free": "1 GiB", "memory": "2GiB"}"#).unwrap().text("memory").as_deref(), Some("2GiB"));
    let directory = DirectoryConfig { path: "/mnt/a".into(), cap: Some(1 << 30), kind: Some(DirectoryKind::Ssd) };
    for builder in [Config::builder(), Config::training().set("policy", "lru").unwrap().directory(directory)] {
        let config = builder.build().unwrap();
        assert_eq!(parse(&serde_json::to_string(&config).unwrap()), Ok(config));
    }
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

#[cfg(all(feature = "device", feature = "toml"))]
#[test]
fn a_device_takes_the_granule_that_was_chosen_and_its_own_where_none_was() {
    use terrace::device::DeviceOptions;
    let granule = |builder: terrace::config::Builder| DeviceOptions::from(&builder.build().unwrap()).granule;
    assert_eq!(granule(Config::builder()), DeviceOptions::default().granule);
    assert_eq!(granule(Config::builder().toml("granule = 64", "advice").unwrap()), 64);
    assert_eq!(granule(Config::builder().granule(4096)), 4096);
}

/// Where the value of a setting came from, and the value.
fn row(config: &Config, name: &str) -> (String, String) {
    let row = config.rows().find(|row| row.spec.name == name).expect("a setting");
    (row.value, row.origin.to_string())
}

fn pair(value: &str, origin: &str) -> (String, String) {
    (value.into(), origin.into())
}

#[test]
fn a_preset_holds_where_nothing_else_is_set_whenever_it_was_chosen() {
    let config = Config::builder().segment(8 << 20).preset("training").unwrap().build().unwrap();
    assert_eq!(row(&config, "segment"), pair("8MiB", "code"));
    assert_eq!(row(&config, "pooled_per_bucket"), pair("64", "preset training"));
    assert_eq!(row(&config, "memory"), pair("25 % of what there is", "preset training"));
    assert_eq!(row(&config, "granule"), pair("64", "default"));
    assert_eq!(config, Config::training().segment(8 << 20).build().unwrap());
    let error = Config::builder().preset("trainig").unwrap_err().to_string();
    assert_eq!(error, "preset is `trainig`; allowed: usual, device, inference, training or constrained");
}

#[test]
fn the_manager_s_variables_set_its_settings() {
    let config = variables(&[
        ("TERRACE_PRESET", "constrained"),
        ("TERRACE_MEMORY", "3GiB"),
        ("TERRACE_PINNED_CAP", "1G"),
        ("TERRACE_CHUNK", "64K"),
        ("TERRACE_STAGING", "4MiB"),
        ("TERRACE_SHARE_OF_DISK", "0.5"),
        ("TERRACE_MAINTENANCE_INTERVAL", "1s"),
        ("TERRACE_POLICY", "sieve"),
        ("TERRACE_ENGINE", "threads"),
        ("TERRACE_DEBUG", "stats, check"),
        ("TERRACE_DIRECTORIES", "/mnt/a::/mnt/b"),
    ])
    .unwrap();
    for (name, value, variable) in [
        ("memory", "3GiB", "TERRACE_MEMORY"),
        ("pinned_cap", "1GiB", "TERRACE_PINNED_CAP"),
        ("chunk", "64KiB", "TERRACE_CHUNK"),
        ("staging", "4MiB", "TERRACE_STAGING"),
        ("share_of_disk", "0.5", "TERRACE_SHARE_OF_DISK"),
        ("maintenance_interval", "1000ms", "TERRACE_MAINTENANCE_INTERVAL"),
        ("policy", "sieve", "TERRACE_POLICY"),
        ("engine", "threads", "TERRACE_ENGINE"),
        ("debug", "check,stats", "TERRACE_DEBUG"),
    ] {
        assert_eq!(row(&config, name), pair(value, variable));
    }
    assert_eq!(config.preset().0, "constrained");
    let paths: Vec<_> = config.directories().iter().map(|directory| directory.path.to_str()).collect();
    assert_eq!(paths, [Some("/mnt/a"), Some("/mnt/b")]);
}

#[test]
fn sources_that_disagree_are_told_with_where_each_value_came_from() {
    let builder = Config::training().variables([("TERRACE_CAPACITY".into(), "1MiB".into())]).unwrap();
    assert_eq!(
        builder.build().unwrap_err().to_string(),
        "TERRACE_CAPACITY is `1MiB`; allowed: whole bytes below 2^64, such as 512MiB or 12G; 0 (not limited) or at least \
         `segment`, which is 64MiB (preset training)"
    );
}

#[test]
fn a_buffer_pool_keeps_as_many_buffers_of_a_size_as_said() {
    let kept = |config: Config| {
        let pool = BufferPool::<Vec<u8>>::of(&config);
        drop([(); 12].map(|()| pool.take(64).expect("memory")));
        pool.stats().pooled / 64
    };
    assert_eq!(kept(Config::default()), 8);
    assert_eq!(kept(Config::constrained().build().unwrap()), 2);
    assert_eq!(kept(Config::builder().pooled_per_bucket(5).build().unwrap()), 5);
}
