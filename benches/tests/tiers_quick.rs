//! The benchmark of tiers, end to end on small numbers. Whether it works; never how fast it is.
#![cfg(target_os = "linux")]

use clap::{Parser, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_benches::tiers::options::Options;
use terrace_benches::tiers::resident::Case;
use terrace_benches::tiers::results::Results;
use terrace_benches::tiers::{command, layers, who::Who};

/// The example's executable: cargo builds it with the tests of the package, and it is built here when only this
/// test was asked for.
fn example() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples");
    let file = folder.join(format!("tiers{}", std::env::consts::EXE_SUFFIX));
    if !file.exists() {
        let words = ["build", "--package", "terrace-benches", "--example", "tiers"];
        assert!(Command::new(env!("CARGO")).args(words).status().unwrap().success());
    }
    file
}

#[test]
fn a_quick_run_has_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let (out, disk) = (folder.path().join("out"), folder.path().join("disk"));
    let words =
        ["tiers", "--quick", "--no-foyer", "--out", out.to_str().unwrap(), "--directory", disk.to_str().unwrap()];
    let options = Options::try_parse_from(words).unwrap();
    let mut printed = Vec::new();
    let json = command::run(&options, &example(), &mut printed).unwrap().unwrap();

    let results: Results = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(results.skipped, []);
    let lines = results.lines();
    let ours = Who::PIECES.into_iter().filter(|who| !who.is_peer());
    let pieces: Vec<String> = ours.map(Who::title).collect();
    for what in ["64 KiB put", "64 KiB get", "4 MiB put", "4 MiB get"] {
        let found: Vec<&str> = lines.iter().filter(|line| line.what == what).map(|line| line.who).collect();
        assert_eq!(found, pieces, "{what}");
    }
    assert_eq!(lines.iter().filter(|line| line.what.ends_with("of 2 MiB in files")).count(), 2 * Who::LARGE.len());
    let passes = lines.iter().filter(|line| line.what.starts_with("pass over")).count();
    assert_eq!(passes, 1 + layers::POLICIES.len() * layers::WAYS.len());
    assert!(lines.iter().all(|line| results.ratio(*line).is_some()), "each has a raw loop");
    assert_eq!(results.resident.len(), Case::value_variants().len());
    assert!(results.resident.iter().all(|one| one.peak > one.before), "{:?}", results.resident);
    assert_eq!(results.timed.len(), 4 + 2, "phases of small buffers; named ones made and reopened");
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("promote_async") && printed.contains(&json.display().to_string()), "{printed}");
    assert_eq!(std::fs::read_dir(disk).unwrap().count(), 0, "nothing is left on the disk");
}
