//! Every setting of the table in `terrace::config` does what it says to a device.

use std::process::Command;
use std::time::{Duration, Instant};
use terrace::config::{Builder, Config};
use terrace::device::{Device, DeviceError, DeviceOptions, PoolOrigin};
use terrace::engine::Fit;
use terrace::engine::pressure::Level;
use terrace_core::settings::{self, Surface};
use terrace_tests::manual::Manual;

const MIB: u64 = 1 << 20;

/// A device of 1 GiB that is made of numbers, with what a builder says.
fn device(builder: Builder) -> Device {
    let options = DeviceOptions::from(&builder.build().expect("a valid configuration"));
    Device::open(Manual::new(1 << 30, true), options).expect("valid options")
}

#[test]
fn a_device_s_own_values_are_its_options() {
    assert_eq!(DeviceOptions::from(&Config::device().build().expect("valid")), DeviceOptions::default());
}

/// A device's setting that its options do not take from a configuration fails here.
#[test]
fn each_setting_of_devices_reaches_their_options() {
    let texts = ["64MiB", "4KiB", "0.5", "3", "0.1,0.2,0.3", "on", "off", "worst", "segments", "leaks"];
    for spec in settings::of(Surface::Device) {
        let changes = |text: &&&str| spec.parse(text).is_ok_and(|value| value != spec.default);
        let set = |text: &&str| Config::device().set(spec.name, text).and_then(Builder::build).ok();
        let config = texts.iter().filter(changes).find_map(set).unwrap_or_else(|| panic!("a value for {}", spec.name));
        assert_ne!(DeviceOptions::from(&config), DeviceOptions::default(), "{}", spec.name);
    }
}

#[test]
fn what_is_kept_and_what_goes_back_when_idle_is_as_said() {
    let start = Instant::now();
    // After an idle second or two, MiB reserved; and what the streams' caches hold.
    let kept = |settings: &[(&str, &str)]| {
        let set = |builder: Builder, (name, value): &(&str, &str)| builder.set(name, value).expect("a value");
        let device = device(settings.iter().fold(Config::device(), set));
        let stream = device.stream().expect("a stream");
        device.maintain_at(start);
        drop([8192; 8].map(|bytes| device.allocate(&stream, bytes).expect("a block")));
        let pooled = device.stats().pool.pooled;
        drop([
            device.allocate(&stream, 8 * MIB).expect("a block"),
            device.allocate(&stream, 60 * MIB).expect("a block"),
        ]);
        for seconds in [1, 2] {
            device.maintain_at(start + Duration::from_secs(seconds));
        }
        (device.stats().pool.reserved / MIB, pooled)
    };
    let (all, cached) = kept(&[]);
    assert!(all >= 68 && cached == 8 * 8192, "{all} MiB, {cached} bytes");
    assert_eq!(kept(&[("idle", "1000")]).0, 0);
    // Handles go back whole.
    let kept_mib = kept(&[("idle", "1000"), ("keep", "10MiB"), ("largest_handle", "2MiB")]).0;
    assert_eq!(kept_mib, 10);
    assert_eq!(kept(&[("stream_cache", "16KiB")]).1, 16 << 10);
    assert_eq!(kept(&[("coalesce", "0")]).1, 0);
}

#[test]
fn the_caches_follow_the_pressure_where_that_is_on() {
    let cached = |adapt: &str| {
        let device = device(Config::device().capacity(64 * MIB).set("adapt", adapt).expect("a switch"));
        let stream = device.stream().expect("a stream");
        let _full = device.allocate(&stream, 62 * MIB).expect("a block");
        drop([8192; 8].map(|bytes| device.allocate(&stream, bytes).expect("a block")));
        device.stats().pool.pooled
    };
    assert_eq!((cached("off"), cached("on") < 48 << 10), (64 << 10, true));
}

#[test]
fn capacity_fraction_and_what_is_left_to_others_bound_the_pool() {
    let capacity = |builder: Builder| device(builder).stats().pool.capacity;
    assert_eq!(capacity(Config::device().capacity(8 * MIB)), 8 * MIB);
    assert_eq!(capacity(Config::device().device_fraction(0.5)), 512 * MIB);
    assert_eq!(capacity(Config::device().device_fraction(1.0).min_free(100 * MIB)), 924 * MIB);
    assert_eq!(capacity(Config::device().device_fraction(1.0)), 896 * MIB, "at most an eighth is left");
}

#[test]
fn blocks_are_whole_granules() {
    let device = device(Config::device().granule(4096));
    let stream = device.stream().expect("a stream");
    assert_eq!(device.allocate(&stream, 1).expect("a block").bytes(), 4096);
}

/// MiB that a small request takes, when so much is in use that a segment more is less than a fifth.
fn taken(builder: Builder) -> u64 {
    let options =
        DeviceOptions { origin: PoolOrigin::Segments, ..DeviceOptions::from(&builder.build().expect("valid")) };
    let device = Device::open(Manual::new(1 << 34, false), options).expect("valid options");
    let stream = device.stream().expect("a stream");
    let _all = [(); 3].map(|()| device.allocate(&stream, 320 * MIB).expect("a block"));
    let before = device.stats().pool;
    assert_eq!(before.reserved, before.in_use);
    let _small = device.allocate(&stream, 1000).expect("a block");
    (device.stats().pool.reserved - before.reserved) / MIB
}

#[test]
fn segments_are_as_large_as_said() {
    assert_eq!([8, 32].map(|mib| taken(Config::device().segment(mib * MIB))), [8, 32]);
    assert_eq!([Config::inference(), Config::constrained(), Config::training()].map(taken), [16, 2, 64]);
}

#[test]
fn sizes_up_to_the_threshold_and_so_many_of_each_stay_with_their_stream() {
    let cached = |builder: Builder, bytes: u64| {
        let device = device(builder);
        let stream = device.stream().expect("a stream");
        drop([(); 5].map(|()| device.allocate(&stream, bytes).expect("a block")));
        // Whoever asks the device for more takes out what is kept for a moment only.
        let _more = device.allocate(&stream, 3 * MIB).expect("a block");
        device.stats().pool.pooled
    };
    assert_eq!(cached(Config::device(), 8192), 5 * 8192);
    assert_eq!(cached(Config::device().small_threshold(4096), 8192), 0);
    assert_eq!(cached(Config::device().pooled_per_bucket(3), 8192), 3 * 8192);
}

#[test]
fn presets_keep_and_take_what_they_say() {
    let kept = |preset: Builder| {
        let device = device(preset);
        let stream = device.stream().expect("a stream");
        drop([(); 200].map(|()| device.allocate(&stream, 256).expect("a block")));
        (device.stats().pool.pooled / 256, device.stats().pool.capacity / MIB)
    };
    assert_eq!(kept(Config::device()), (64, 896));
    assert_eq!(kept(Config::inference()), (128, 896));
    assert_eq!(kept(Config::constrained()), (2, 512));
    assert_eq!(kept(Config::training()), (64, 896));
}

#[test]
fn pressure_begins_where_it_is_said_to() {
    let level = |builder: Builder| {
        let device = device(builder.capacity(100 * MIB));
        let stream = device.stream().expect("a stream");
        let _block = device.allocate(&stream, 25 * MIB).expect("a block");
        device.pressure()
    };
    assert_eq!(level(Config::device()), Level::Normal);
    assert_eq!(level(Config::device().pressure([0.1, 0.3, 0.4])), Level::Elevated);
    assert_eq!(level(Config::device().pressure([0.1, 0.25, 0.4])), Level::High);
    assert_eq!(level(Config::device().pressure([0.1, 0.2, 0.25])), Level::Critical);
    let options = DeviceOptions { pressure: [0.5, 0.4, 0.9], ..DeviceOptions::default() };
    let refused = Device::open(Manual::new(1 << 30, true), options);
    assert!(matches!(&refused, Err(DeviceError::BadOption(rule)) if rule.contains("rising")), "{refused:?}");
}

/// Gaps of 6, 4 and 8 MiB, in this order of addresses: which of them has a block of 3 MiB.
fn chosen(strategy: Fit) -> usize {
    let device = device(Config::device().strategy(strategy));
    let stream = device.stream().expect("a stream");
    let all = [6, 2, 4, 2, 8, 2].map(|mib| device.allocate(&stream, mib * MIB).expect("a block"));
    let mut starts = [all[0].address(), all[2].address(), all[4].address()];
    assert!(starts.is_sorted(), "{starts:x?}");
    let [first, wall, second, fence, third, end] = all;
    drop((first, second, third));
    let block = device.allocate(&stream, 3 * MIB).expect("a block");
    starts.reverse();
    drop((wall, fence, end));
    2 - starts.iter().position(|&start| start <= block.address()).expect("in one of them")
}

#[test]
fn the_strategy_chooses_among_gaps() {
    assert_eq!([Fit::First, Fit::Best, Fit::Worst].map(chosen), [0, 1, 2]);
}

#[test]
fn fresh_memory_is_filled_with_zeros_if_asked() {
    let manual = Manual::new(1 << 30, true);
    let calls = |on: bool| {
        let options = DeviceOptions::from(&Config::device().zero_fresh(on).build().expect("valid"));
        let device = Device::open(manual.clone(), options).expect("valid options");
        let stream = device.stream().expect("a stream");
        let before = manual.calls();
        drop(device.allocate(&stream, MIB).expect("a block"));
        manual.calls() - before
    };
    assert!(calls(true) > calls(false), "a stream, a fill and a wait");
}

#[test]
fn the_host_serves_what_a_full_device_cannot_if_asked() {
    for on in [false, true] {
        let config = Config::device().capacity(4 * MIB).fallback(on).build().expect("valid");
        let device = Device::first_with(DeviceOptions::from(&config)).expect("valid options");
        let stream = device.stream().expect("a stream");
        let block = device.allocate(&stream, 8 * MIB).map(|block| block.is_fallback()).ok();
        assert_eq!(block, on.then_some(true));
    }
}

/// What `the_first_device_reads_the_variables` asks a process of its own.
#[test]
fn as_a_process_of_its_own() {
    if std::env::var_os("TERRACE_TEST_OF_FIRST").is_none() {
        return;
    }
    let device = Device::first();
    let stream = device.stream().expect("a stream");
    drop([(); 5].map(|()| device.allocate(&stream, 256).expect("a block")));
    drop(Device::first());
    println!("capacity {}, kept {}", device.stats().pool.capacity, device.stats().pool.pooled);
    std::mem::forget(device.allocate(&stream, 4096));
}

/// What a process of its own says with these variables, and what it tells on standard error.
fn run(variables: &[(&str, &str)]) -> [String; 2] {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "as_a_process_of_its_own", "--nocapture"]).env("TERRACE_TEST_OF_FIRST", "1");
    let output = command.envs(variables.iter().copied()).output().expect("it runs");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn blocks_live_at_the_end_are_listed_where_that_is_asked_for() {
    let told = |debug: &str| run(&[("TERRACE_DEBUG", debug)])[1].clone();
    assert_eq!([told("off"), told("check,stats")], ["", ""]);
    for word in ["leaks", "sites"] {
        let told = told(word);
        if cfg!(feature = "track") {
            assert!(told.starts_with("terrace: still live at the end: device 0 "), "{told}");
            assert!(told.contains("1 live block, 4096 bytes"), "{told}");
            assert_eq!(told.lines().any(|line| line.trim_start().starts_with("at ")), word == "sites", "{told}");
        } else {
            let needs = "live blocks of devices need the feature `track`";
            assert_eq!(told, format!("terrace: debug={word}: {needs}\n"), "once, of two devices");
        }
    }
}

#[test]
fn the_first_device_reads_the_variables() {
    let [said, told] = run(&[("TERRACE_CAPACITY", "64MiB"), ("TERRACE_POOLED_PER_BUCKET", "3")]);
    assert!(said.contains("capacity 67108864, kept 768") && !told.contains("terrace"), "{said}{told}");
    let [said, told] = run(&[("TERRACE_CAPCITY", "64MiB")]);
    assert!(!said.contains("capacity 67108864"), "{said}");
    assert_eq!(told, "terrace: TERRACE_CAPCITY is no setting; TERRACE_CAPACITY is\n", "once, of two devices");
    // By another rule of the device's than of the configuration's.
    for (name, value) in [("TERRACE_STRATEGY", "Best"), ("TERRACE_SMALL_THRESHOLD", "1GiB")] {
        let [said, told] = run(&[("TERRACE_CAPACITY", "64MiB"), (name, value)]);
        assert!(said.contains("kept 1280") && !said.contains("capacity 67108864"), "{said}");
        assert_eq!(told.matches("terrace: ").count(), 1, "once, by name: {told}");
    }
}

#[test]
fn settings_of_an_open_device_change_or_say_that_they_cannot() {
    let options = DeviceOptions::from(&Config::device().capacity(64 * MIB).build().expect("valid"));
    let device = terrace::Device::open(Manual::new(1 << 30, true), options).expect("valid options");
    let stream = device.stream().expect("a stream");
    device.set("capacity", "8 MiB").expect("it can change");
    assert!(device.allocate(&stream, 16 * MIB).is_err());
    device.set("capacity", "32MiB").expect("it can change");
    assert!(device.allocate(&stream, 16 * MIB).is_ok());
    let refused = |name: &str, value: &str| device.set(name, value).expect_err("refused").to_string();
    assert_eq!(refused("capcity", "1MiB"), "`capcity` is no setting; `capacity` is");
    assert!(refused("capacity", "lots").starts_with("capacity is `lots`; allowed: whole bytes"));
    assert!(refused("strategy", "best").starts_with("strategy is `best`; allowed: no change while a device is open"));
}
