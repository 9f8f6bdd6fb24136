//! A small run of `cargo xtask bench host`: tables and raw data, of programs that any system has.

use clap::Parser;
use std::path::Path;
use terrace_benches::host::command;
use terrace_benches::host::options::Options;
use terrace_benches::host::results::{Cost, Results};

fn run(words: &[&str]) -> (Results, String) {
    let options = Options::try_parse_from(["host"].iter().chain(words)).unwrap();
    let mut printed = Vec::new();
    let json = command::run(&options, Path::new(""), &mut printed).unwrap().unwrap();
    let results = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    (results, String::from_utf8(printed).unwrap())
}

#[test]
fn a_small_run_leaves_tables_and_raw_data() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let missing = folder.path().join("none.so");
    let library = format!("mine={}", missing.display());
    let fixed = ["--quick", "--rounds", "2", "--peers", "none", "--only", "bash,larson", "--out", out];
    let (results, printed) =
        run(&[&fixed[..], &["--part", "programs,small,fork,resident", "--library", &library]].concat());
    assert_eq!(results.samples.len(), 2 * 2);
    for (name, _) in results.programs() {
        let (cpu, peak) = (results.costs(name, "glibc", Cost::Cpu), results.costs(name, "glibc", Cost::Peak));
        assert!(cpu.len() == 2 && cpu.iter().all(|&us| us > 0.0), "{name} {cpu:?}");
        // A process of this size; not that of this test, which is larger.
        assert!(peak.iter().all(|&kib| (1000.0..100_000.0).contains(&kib)), "{name} {peak:?}");
        assert_eq!(results.failure(name, "glibc"), None);
    }
    let behaviour = &results.behaviour;
    assert!(behaviour.failed.is_empty(), "{:?}", behaviour.failed);
    assert_eq!(behaviour.forked[0].numbers, [20, 0, 0]);
    // 100,000 blocks of 258 bytes on average.
    assert!(behaviour.freed.iter().all(|freed| (25 << 20..40 << 20).contains(&freed.bytes[0])), "{behaviour:?}");
    assert!(printed.contains("SKIP mine: ") && printed.contains("geometric mean"), "{printed}");
}
