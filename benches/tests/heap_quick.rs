//! A whole quick run of `cargo xtask bench heap`: tables, raw data, picture.

use clap::Parser;
use std::path::Path;
use terrace_benches::heap::command;
use terrace_benches::heap::options::Options;
use terrace_benches::heap::results::Results;

fn options(words: &[&str]) -> Options {
    Options::try_parse_from(["heap"].iter().chain(words)).unwrap()
}

/// Nothing under callgrind or for Thumb here: those need an executable and a target.
const HERE: [&str; 5] = ["--quick", "--no-instructions", "--no-size", "--ops", "2000"];

#[test]
fn a_quick_run_leaves_tables_raw_data_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let only = ["--only", "fast-packed,fast-narrow,talc", "--out", out];
    let mut printed = Vec::new();
    let json = command::run(&options(&[&HERE[..], &only].concat()), Path::new(""), &mut printed).unwrap().unwrap();
    let results: Results = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    // Two heaps that fit, five lists, two rounds; Fast<Narrow> fits none of the lists.
    assert_eq!(results.samples.len(), 2 * 5 * 2);
    assert!(results.samples.iter().all(|sample| sample.ops > 0 && sample.refused == 0));
    assert_eq!(results.filled.len(), 2 * 6);
    assert!(results.filled.iter().all(|filled| (0.4..1.0).contains(&filled.share)), "{:?}", results.filled);
    // What every block costs cannot be below nothing; all three fit here.
    assert_eq!(results.costs.len(), 3 * 4);
    assert!(results.costs.iter().all(|cost| (0.0..64.0).contains(&cost.overhead)), "{:?}", results.costs);
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains("does not fit") && printed.contains("--no-size"), "{printed}");
    assert!(json.with_extension("svg").exists());
}

#[test]
fn the_counted_part_says_how_many_operations_it_did() {
    let mut printed = Vec::new();
    let counted = options(&["--ops", "1000", "--count", "talc", "lifo"]);
    assert_eq!(command::run(&counted, Path::new(""), &mut printed), Ok(None));
    let ops: u64 = String::from_utf8(printed).unwrap().trim().parse().unwrap();
    assert!((1000..1600).contains(&ops), "{ops}");
    for words in [["x", "a"], ["talc", "x"]] {
        let nonsense = options(&["--count", words[0], words[1]]);
        assert!(command::run(&nonsense, Path::new(""), &mut Vec::new()).is_err(), "{words:?}");
    }
}
