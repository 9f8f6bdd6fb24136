//! The benchmark of tiers, end to end on small numbers. Whether it works; never how fast it is.
#![cfg(target_os = "linux")]

use clap::Parser;
use std::path::Path;
use terrace_benches::tiers::options::Options;
use terrace_benches::tiers::results::Results;
use terrace_benches::tiers::{command, layers, who::Who};

#[test]
fn a_quick_run_has_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let (out, disk) = (folder.path().join("out"), folder.path().join("disk"));
    let words = ["tiers", "--quick", "--out", out.to_str().unwrap(), "--directory", disk.to_str().unwrap()];
    let options = Options::try_parse_from(words).unwrap();
    let mut printed = Vec::new();
    let json = command::run(&options, Path::new("not used"), &mut printed).unwrap().unwrap();

    let results: Results = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(results.skipped, []);
    let lines = results.lines();
    let pieces = Who::PIECES.map(Who::title);
    for what in ["64 KiB put", "64 KiB get", "4 MiB put", "4 MiB get"] {
        let found: Vec<&str> = lines.iter().filter(|line| line.what == what).map(|line| line.who).collect();
        assert_eq!(found, pieces, "{what}");
    }
    assert_eq!(lines.iter().filter(|line| line.what.ends_with("of 4 MiB in files")).count(), 2 * Who::LARGE.len());
    let passes = lines.iter().filter(|line| line.what.starts_with("pass over")).count();
    assert_eq!(passes, 1 + layers::POLICIES.len() * layers::WAYS.len());
    assert!(lines.iter().all(|line| results.ratio(*line).is_some()), "each has a raw loop");
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("promote_async") && printed.contains(&json.display().to_string()), "{printed}");
    assert_eq!(std::fs::read_dir(disk).unwrap().count(), 0, "nothing is left on the disk");
}
