//! The benchmark of the core, end to end on tiny counts. Whether it works; never how fast it is.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_benches::core::options::Options;
use terrace_benches::core::results::Results;
use terrace_benches::core::subjects::Name;
use terrace_benches::core::{command, instructions};

fn options(folder: &Path, words: &[&str]) -> Options {
    let out = folder.display().to_string();
    let all = ["core", "--quick", "--out", &out].into_iter().chain(words.iter().copied());
    Options::try_parse_from(all).unwrap()
}

/// The example's executable: cargo builds it with the tests of the package, and it is built here when only this
/// test was asked for.
fn example() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples");
    let file = folder.join(format!("core{}", std::env::consts::EXE_SUFFIX));
    if !file.exists() {
        let words = ["build", "--package", "terrace-benches", "--example", "core"];
        assert!(Command::new(env!("CARGO")).args(words).status().unwrap().success());
    }
    file
}

#[test]
fn a_quick_run_leaves_data_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--rounds", "2", "--ops", "300", "--live", "50,200", "--no-instructions"];
    let options = options(folder.path(), &words);
    let mut printed = Vec::new();
    let json = command::run(&options, Path::new("not used"), &mut printed).unwrap().unwrap();

    let results: Results = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(results.cuts.is_empty(), "{:?}", results.cuts);
    assert_eq!(results.samples.len(), Name::all().len() * 2 * 2, "subjects, live counts, rounds");
    assert_eq!(results.lives(), [50, 200]);
    assert!(results.hits.iter().all(|hit| hit.pairs == 300) && !results.hits.is_empty());
    assert!(results.metadata.iter().any(|share| share.subject == Name::Good.title()));

    let svg = std::fs::read_to_string(json.with_extension("svg")).unwrap();
    let picture = roxmltree::Document::parse(&svg).unwrap();
    let texts: Vec<&str> = picture.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    let printed = String::from_utf8(printed).unwrap();
    for name in Name::all().iter().filter(|name| **name != Name::Loop) {
        assert!(texts.contains(&name.title()), "the picture names {}", name.title());
        assert!(printed.contains(name.title()), "the table names {}", name.title());
    }
    assert!(printed.contains(&json.display().to_string()));
}

#[test]
fn instructions_are_counted_by_callgrind() {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIP instructions_are_counted_by_callgrind: apt-get install valgrind");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), &["--live", "100"]);
    let counted = instructions::count(&example(), Name::Good, 100, &options).unwrap();
    let harness = instructions::count(&example(), Name::Loop, 100, &options).unwrap();
    let again = instructions::count(&example(), Name::Loop, 100, &options).unwrap();
    assert!(counted.per_pair() > harness.per_pair(), "an allocator costs more than none");
    assert!(harness.per_pair() >= 1.0);
    // Set-up cancels but for what differs from process to process: addresses, environment.
    assert!((harness.per_pair() - again.per_pair()).abs() < 1.0);
}

#[test]
fn the_example_explains_itself_and_refuses_nonsense() {
    let help = Command::new(example()).arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("Examples:") && text.contains("--rounds"), "{text}");
    let bad = Command::new(example()).args(["--live", "0"]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
}
