//! Output of a replay: table, JSON, pictures.

use crate::common;

use common::{HEADER, Sandbox, recorded, stderr, stdout};
use serde_json::Value;
use terrace::device::{Device, DeviceOptions, PoolOrigin};
use terrace::recording::Reader;
use terrace_models::manual::Manual;
use terrace_models::scenarios::{OnDevice, Scenario, run};

const KEYS: [&str; 19] = [
    "trace",
    "pool",
    "source",
    "events",
    "peak_live_bytes",
    "peak_reserved_bytes",
    "utilisation",
    "source_calls",
    "handles",
    "hits",
    "misses",
    "failed",
    "failure",
    "ns_mean",
    "ns_p50",
    "ns_p99",
    "ns_p999",
    "ns_max",
    "reserved_after_trim",
];

/// Replays with `--json -`; returns the rows.
fn json(here: &Sandbox, words: &[&str]) -> Vec<Value> {
    let output = here.run(&[&["replay", "--json", "-"], words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

#[test]
fn json_has_exactly_the_keys_and_nothing_else_is_written() {
    let here = Sandbox::new();
    let trace = recorded("train_resnet50.csv.zst");
    let rows = json(&here, &[trace.to_str().unwrap()]);
    assert!(rows.len() >= 3);
    for row in &rows {
        let mut keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = KEYS.to_vec();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!((row["trace"].as_str(), row["source"].as_str()), (Some("train_resnet50"), Some("growing")));
        assert_eq!((number(row, "events"), number(row, "failed")), (40_041, 0));
        assert_eq!(number(row, "peak_live_bytes"), 948_817_616);
        let utilisation = 948_817_616.0 / number(row, "peak_reserved_bytes") as f64;
        assert!((row["utilisation"].as_f64().unwrap() - utilisation).abs() < 1e-12 && utilisation <= 1.0);
        // Hits and misses count every allocation; reallocations, which tensor traces do not have, may add some.
        assert_eq!(number(row, "hits") + number(row, "misses"), 20_261);
        assert!(number(row, "ns_p50") <= number(row, "ns_p99") && number(row, "ns_p999") <= number(row, "ns_max"));
        assert!(number(row, "source_calls") > 0 && number(row, "reserved_after_trim") == 0);
    }
    assert!(here.names().is_empty());
}

#[test]
fn a_table_a_picture_and_its_path_by_default() {
    let here = Sandbox::new();
    here.file("small.csv", format!("{HEADER}0,a,0,5000000,64,0,x\n10,a,1,100,64,0,y\n2000,f,0,,,0,\n"));
    let output = here.run(&["replay", "small.csv"]);
    assert!(output.status.success() && stderr(&output).is_empty());
    let text = stdout(&output);
    for part in ["small: 3 events", "utilisation", "pytorch", "rmm", "bfc", "ns p50", "events/s", "failed"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.lines().last(), Some("replay-small.svg"));
    assert_eq!(here.names(), ["replay-small.svg", "small.csv"]);
}

#[test]
fn svg_is_well_formed_and_says_what_it_shows() {
    let here = Sandbox::new();
    let trace = recorded("malloc_rustfmt.csv.zst");
    assert!(here.run(&["replay", trace.to_str().unwrap(), "--picture", "a & b.svg"]).status.success());
    let text = std::fs::read_to_string(here.path("a & b.svg")).unwrap();
    let svg = roxmltree::Document::parse(&text).unwrap();
    let texts: Vec<_> = svg.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for part in [
        "malloc_rustfmt: memory over time",
        "73,281 events, peak live 24.07 MiB, source growing",
        "time since the first event (ms)",
        "memory (MiB)",
        "pytorch",
        "rmm",
        "bfc",
        "live, as requested",
    ] {
        assert!(texts.contains(&part), "{part} in {texts:?}");
    }
    assert!(svg.descendants().filter(|node| node.has_tag_name("polyline")).count() >= 3);
    assert!(svg.descendants().any(|node| node.has_tag_name("polygon")));
}

#[test]
fn png_holds_a_panel_for_each_trace() {
    let here = Sandbox::new();
    here.file("one.csv", format!("{HEADER}0,a,0,4096,64,0,x\n"));
    here.file("two.csv", format!("{HEADER}0,a,0,4096,64,0,x\n7,f,0,,,0,\n"));
    for (traces, height) in [(vec!["one.csv"], 520), (vec!["one.csv", "two.csv"], 1040)] {
        let output = here.run(&[&["replay", "--picture", "p.png"], &traces[..]].concat());
        assert_eq!(stdout(&output).lines().last(), Some("p.png"));
        let file = std::io::BufReader::new(std::fs::File::open(here.path("p.png")).unwrap());
        let mut reader = png::Decoder::new(file).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (1200, height));
        // Each panel has dark ink of its title in its top left corner.
        for panel in 0..height / 520 {
            let rows = panel * 520..panel * 520 + 60;
            let dark = |row: u32| pixels[row as usize * 3600..][..1200].iter().any(|&colour| colour < 80);
            assert!(rows.into_iter().any(dark));
        }
    }
}

#[test]
fn traces_of_one_name_get_a_picture_each() {
    let here = Sandbox::new();
    std::fs::create_dir(here.path("d")).unwrap();
    here.file("t.csv", format!("{HEADER}0,a,0,4096,64,0,x\n"));
    here.file("d/t.csv", format!("{HEADER}0,a,0,4096,64,0,x\n0,f,0,,,0,\n"));
    let output = here.run(&["replay", "t.csv", "d/t.csv", "--pool", "rmm", "--json", "out.json"]);
    assert!(stdout(&output).ends_with("replay-t.svg\nreplay-t-2.svg\n"));
    assert_eq!(here.names(), ["d", "out.json", "replay-t-2.svg", "replay-t.svg", "t.csv"]);
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(here.path("out.json")).unwrap()).unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (row["trace"].as_str(), number(row, "events"))).collect();
    assert_eq!(seen, [(Some("t"), 1), (Some("t-2"), 2)]);
}

#[test]
fn small_blocks_can_be_left_out() {
    let here = Sandbox::new();
    let lines = "0,a,0,16,64,0,x\n0,a,1,1KiB,64,0,x\n0,f,0,,,0,\n0,a,2,2048,64,0,x\n".replace("1KiB", "1024");
    here.file("t.csv", format!("{HEADER}{lines}"));
    for (min_size, events, peak) in [("0", 4, 3072), ("17", 2, 3072), ("1KiB", 2, 3072), ("1025", 1, 2048)] {
        for row in json(&here, &["t.csv", "--min-size", min_size]) {
            assert_eq!((number(&row, "events"), number(&row, "peak_live_bytes")), (events, peak), "{min_size}");
        }
    }
}

#[test]
fn a_small_capacity_gives_failures_and_no_error() {
    let here = Sandbox::new();
    let trace = recorded("train_resnet50.csv.zst");
    for source in ["growing", "segments"] {
        for row in json(&here, &[trace.to_str().unwrap(), "--capacity", "256MiB", "--source", source]) {
            assert!(number(&row, "failed") > 0 && number(&row, "peak_reserved_bytes") <= 256 << 20, "{row}");
            assert!(number(&row, "peak_live_bytes") <= number(&row, "peak_reserved_bytes"));
            let failure = row["failure"].as_str().expect("a line, as below the table");
            let begins = format!("{}: ", row["pool"].as_str().expect("a name"));
            assert!(failure.starts_with(&begins) && failure.contains("the first at event"), "{failure}");
            let source = if row["pool"] == "pytorch-expandable" { "growing" } else { source };
            assert_eq!((row["source"].as_str(), number(&row, "reserved_after_trim")), (Some(source), 0));
        }
    }
}

/// Expected by hand: PyTorch's expandable segments map 2 MiB for small blocks, 20 MiB for others, and blocks lie side by side.
#[test]
fn expandable_segments_map_pages_on_demand_and_unmap_them_when_memory_is_short() {
    let here = Sandbox::new();
    let allocate = |id: u64, mib: u64, stream: u32| format!("0,a,{id},{},64,{stream},x\n", mib << 20);
    let free = |id: u64, stream: u32| format!("0,f,{id},,,{stream},\n");
    // 18 blocks of 3 MiB fill 54 MiB of three pages; of those that are freed, the last joins the 6 MiB behind it.
    let holes: String = (0..18).map(|id| allocate(id, 3, 0)).chain((1..18).step_by(2).map(|id| free(id, 0))).collect();
    here.file("holes.csv", format!("{HEADER}{holes}{}", allocate(18, 7, 0)));
    // A small page, and 40 MiB that stream 1 leaves: they are unmapped for the 60 MiB of pages that stream 2 needs.
    let left: String = (1..9).map(|id| allocate(id, 5, 1)).chain((1..9).map(|id| free(id, 1))).collect();
    here.file("streams.csv", format!("{HEADER}0,a,0,100,64,1,x\n{left}{}", allocate(9, 41, 2)));
    let words =
        ["--pool", "pytorch,pytorch-expandable", "--capacity", "64MiB", "--streams", "on", "--source", "segments"];
    let rows = json(&here, &[&["holes.csv", "streams.csv"], &words[..]].concat());
    let of = |row: &Value| {
        ["failed", "source_calls", "handles"]
            .map(|key| number(row, key))
            .into_iter()
            .chain([number(row, "peak_reserved_bytes") >> 20])
            .collect::<Vec<_>>()
    };
    let expandable: Vec<&Value> = rows.iter().filter(|row| row["pool"] == "pytorch-expandable").collect();
    assert_eq!(number(&rows[0], "failed"), 1, "whole segments have no hole of 7 MiB");
    assert_eq!(of(expandable[0]), [0, 3, 3, 60], "three maps");
    assert_eq!(of(expandable[1]), [0, 5, 6, 62], "maps of 2, 20 and 20 MiB, an unmap of 40, a map of 60");
    assert!(expandable.iter().all(|row| row["source"] == "growing"), "whatever --source says");
}

/// What `--source segments` says of the pool terrace is what a device takes.
#[test]
fn on_segments_terrace_is_a_device() {
    let here = Sandbox::new();
    for name in ["train_resnet50", "train_moe_mixtral"] {
        let trace = recorded(&format!("{name}.csv.zst"));
        let words = [trace.to_str().unwrap(), "--min-size", "17", "--source", "segments", "--pool", "terrace"];
        let row = json(&here, &words).remove(0);
        let entries = Reader::open(&trace).unwrap().map(|entry| entry.map(|entry| (entry.event, entry.slot)).unwrap());
        let scenario = Scenario::recorded(name, 17, entries);
        let options = DeviceOptions { origin: PoolOrigin::Segments, capacity: 64 << 30, ..DeviceOptions::default() };
        let device = Device::open(Manual::new(64 << 30, false), options).unwrap();
        let taken = run(&scenario, &mut OnDevice::new(&device, &scenario).unwrap()).totals;
        let said = ["peak_reserved_bytes", "source_calls", "handles"].map(|key| number(&row, key));
        assert_eq!(said, [taken.peak_reserved, taken.calls, taken.handles], "{name}");
    }
}

#[test]
fn a_fence_keeps_memory_from_other_streams() {
    let here = Sandbox::new();
    // Stream 2 frees stream 1's block; PyTorch's policy does not let stream 1 reuse it until the fence of stream 2 opens.
    let lines = "0,a,0,12582912,64,1,x\n0,f,0,,,2,\n0,a,1,12582912,64,1,x\n";
    here.file("t.csv", format!("{HEADER}{lines}"));
    let reserved = |words: &[&str]| {
        let rows = json(&here, &[&["t.csv", "--pool", "pytorch"], words].concat());
        number(&rows[0], "peak_reserved_bytes") >> 20
    };
    assert_eq!(reserved(&["--streams", "on", "--fence-delay", "100"]), 24);
    assert_eq!(reserved(&["--streams", "on", "--fence-delay", "1"]), 12);
    assert_eq!(reserved(&["--streams", "off", "--fence-delay", "100"]), 12);
    // A device takes a segment for three blocks. Work of stream 2 in flight keeps it from stream 1, which takes another.
    let blocks = |ids: std::ops::Range<u64>| ids.map(|id| format!("0,a,{id},12582912,64,1,x\n")).collect::<String>();
    let frees: String = (0..3).map(|id| format!("0,f,{id},,,2,\n")).collect();
    here.file("t.csv", format!("{HEADER}{}{frees}{}", blocks(0..3), blocks(3..6)));
    let reserved = |delay: &str| {
        let words = ["t.csv", "--pool", "terrace", "--source", "segments", "--streams", "on", "--fence-delay", delay];
        number(&json(&here, &words)[0], "peak_reserved_bytes") >> 20
    };
    assert_eq!(["0", "1", "100"].map(reserved), [36, 36, 72]);
}

#[test]
fn paths_that_cannot_be_written_are_found_before_the_work() {
    let here = Sandbox::new();
    here.file("t.csv", format!("{HEADER}0,a,0,4096,64,0,x\n"));
    for words in [["--picture", "no/where.svg"], ["--json", "no/where.json"], ["--json", "."]] {
        let output = here.run(&[&["replay", "t.csv"], &words[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).starts_with(&format!("terrace: {}: cannot write", words[1])), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(here.names(), ["t.csv"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_went_away_is_no_error_and_a_full_disk_is() {
    use std::process::Stdio;
    let here = Sandbox::new();
    here.file("t.csv", format!("{HEADER}0,a,0,4096,64,0,x\n"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = here.command(&["replay", "t.csv"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = here.command(&["replay", "t.csv"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("terrace: standard output: cannot write"));
}

#[test]
fn help_has_examples() {
    let here = Sandbox::new();
    for words in [&["replay", "--help"][..], &["record", "convert", "--help"]] {
        let output = here.run(words);
        assert!(output.status.success() && stdout(&output).contains("Examples:\n  terrace"));
    }
}
