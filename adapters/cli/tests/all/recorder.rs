//! What the commands make of a file that a running program recorded.

use crate::common;

use common::{Sandbox, stderr};
use serde_json::Value;
use terrace::observe::track::tag;
use terrace::recording::Recorder;
use terrace::{Device, Manager};
use terrace_tests::Random;

/// Runs a command that writes JSON.
fn json(here: &Sandbox, words: &[&str]) -> Value {
    let output = here.run(&[words, &["--json", "-"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_device_that_was_recorded_replays_with_the_same_peak() {
    let here = Sandbox::new();
    let device = Device::host();
    let streams = [device.stream().expect("a stream"), device.stream().expect("a stream")];
    let recorder = Recorder::start(device.tracker(), here.path("run.terrace")).expect("a recorder");
    let (mut random, mut live, mut sums) = (Random::new(1), Vec::new(), (0, 0));
    for step in 0..20_000 {
        let most = 1 << random.below(21);
        let bytes = 1 + random.below(most);
        let block = device.allocate(&streams[step % 2], bytes).expect("memory");
        live.push((block, bytes));
        sums.0 += bytes;
        sums.1 = u64::max(sums.0, sums.1);
        if live.len() > 200 {
            let (block, bytes) = live.swap_remove(random.below(200) as usize);
            drop(block);
            sums.0 -= bytes;
        }
    }
    recorder.finish().expect("a file");
    let rows = json(&here, &["replay", "run.terrace"]);
    let rows = rows.as_array().expect("rows");
    assert!(rows.len() >= 3, "{rows:?}");
    for row in rows {
        let number = |key: &str| row[key].as_u64().expect(key);
        assert_eq!((number("events"), number("failed"), number("peak_live_bytes")), (39_800, 0, sums.1), "{row}");
    }
    // The other form has the same events.
    let output = here.run(&["record", "convert", "run.terrace", "run.csv"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(here.path("run.csv")).expect("a file").lines().count(), 39_801);
}

/// Steps that need the same memory each, and the number of calls that took it from the source.
fn steps(device: &Device, warm_up: &[(u64, u32)]) -> u64 {
    let stream = device.stream().expect("a stream");
    device.warm_up(&stream, warm_up).expect("memory");
    let begun = device.stats().pool.source_calls;
    for _ in 0..40 {
        let blocks = (0..24).map(|at| device.allocate(&stream, (at % 6 + 1) * (3 << 20)).expect("memory"));
        drop(blocks.collect::<Vec<_>>());
    }
    device.stats().pool.source_calls - begun
}

#[test]
fn what_a_report_advises_for_a_recorded_device_helps_it() {
    let here = Sandbox::new();
    let device = Device::host();
    let recorder = Recorder::start(device.tracker(), here.path("run.terrace")).expect("a recorder");
    let before = steps(&device, &[]);
    recorder.finish().expect("a file");
    let data = json(&here, &["report", "run.terrace"]);
    let advice = &data["traces"][0]["advice"][0];
    let setting = advice["setting"].as_str().expect("a setting");
    let bytes =
        setting.strip_prefix("device.warm_up(&stream, &[(").and_then(|rest| rest.split_once(',')).expect(setting).0;
    let after = steps(&Device::host(), &[(bytes.parse().expect(bytes), 1)]);
    assert!(before > 1 && after == 0, "{before}, {after}, {advice}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_manager_that_was_recorded_shows_its_tags_and_its_copies() {
    const MIB: u64 = 1 << 20;
    let here = Sandbox::new();
    std::fs::create_dir(here.path("files")).expect("a directory");
    let manager = Manager::builder().memory(8 * MIB).directory_of(here.path("files"), 64 * MIB).build();
    let manager = manager.expect("a manager");
    let recorder = Recorder::start(manager.tracker(), here.path("run.terrace")).expect("a recorder");
    let _tag = tag("weights");
    let buffers = [1, 2].map(|size| manager.allocate(size * MIB).expect("memory"));
    for buffer in &buffers {
        buffer.write(0, &[7]).expect("written");
        manager.demote(buffer, 1).expect("demoted");
    }
    manager.promote(&buffers[1], 0).expect("promoted");
    recorder.finish().expect("a file");
    let data = json(&here, &["report", "run.terrace", "--no-advice"]);
    let trace = &data["traces"][0];
    assert_eq!((&trace["events"], &trace["peak_live_bytes"]), (&2.into(), &(3 * MIB).into()));
    assert_eq!(trace["tags"][0]["tag"], "weights");
    let copies = trace["copies"].as_array().expect("copies");
    let told = copies.iter().map(|row| ["from", "to", "bytes"].map(|key| row[key].as_u64().expect(key)));
    assert_eq!(told.collect::<Vec<_>>(), [[0, 1, 3 * MIB], [1, 0, 2 * MIB]]);
}
