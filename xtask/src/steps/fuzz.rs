//! Fuzz targets: the manifests in `fuzz` list them.
//!
//! Promises upward: `fuzz::TARGET` holds when the target runs for a moment without a finding;
//! `fuzz::TARGET::seeded::BUG` holds when it finds BUG, from nothing, within a minute; `fuzz::TARGET::long`, with
//! `--all`, for ten minutes.
//! Asks from below: cargo-fuzz on a nightly toolchain; the marker lines (see `seeds`).

use super::lanes::side_by_side;
use crate::command::{Finished, cargo, execute, root};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use crate::seeds::{self, Seeds};
use std::fs;
use std::process::Command;

/// The packages of the targets: what needs the core alone, and the rest, which takes minutes to build. The second is the root of their
/// workspace and the first a default member, so cargo-fuzz finds the targets of both in its folder.
pub const MANIFESTS: [&str; 2] = ["fuzz/core/Cargo.toml", "fuzz/Cargo.toml"];
/// Seconds of a smoke run, in which a target takes thousands of inputs beside the kept ones; what needs longer is for the long run.
const SMOKE_SECONDS: u32 = 5;
/// Seconds in which a seeded bug must be found.
const SEEDED_SECONDS: u32 = 60;
/// Seconds of a long run.
const LONG_SECONDS: u32 = 600;
/// Seconds after which one input counts as a hang.
const INPUT_SECONDS: u32 = 10;

/// Targets at a time: each keeps one core busy.
const LANES: usize = 2;

/// The smoke runs and the seeded bugs.
pub fn run(options: &Options, report: &mut Report) {
    let targets = ready(options, report);
    // Cargo lets one command build at a time, and a lane that waits for it is lost to the others: build all targets first.
    for target in &targets {
        let mut build = cargo(["+nightly", "fuzz", "build"]);
        build.current_dir(root().join("fuzz"));
        build.args(sanitizer(&seeds_of(target))).arg(target);
        let build = execute(&format!("fuzz-{target}-build"), &mut build);
        if !build.success {
            report.fail(&format!("fuzz::{target}::build"), &build.output);
        }
    }
    let jobs =
        targets.iter().flat_map(|target| seeds::variants(seeds_of(target).environment).map(move |bug| (target, bug)));
    let verdicts = side_by_side(LANES, jobs.collect(), |(target, bug): (&String, Option<String>)| {
        let seeds = seeds_of(target);
        let name = seeds::full_name(&format!("fuzz::{target}"), bug.as_deref());
        let verdict = match bug {
            None => execute(&name, &mut command(target, &seeds, "smoke", SMOKE_SECONDS)).verdict(),
            Some(bug) => seeded(target, &seeds, &bug),
        };
        (name, verdict)
    });
    for (name, verdict) in verdicts {
        report.verdict(&name, verdict);
    }
}

/// The long runs.
pub fn run_long(options: &Options, report: &mut Report) {
    for target in ready(options, report) {
        let name = format!("fuzz::{target}::long");
        let finished = execute(&name, &mut command(&target, &seeds_of(&target), "long", LONG_SECONDS));
        report.verdict(&name, finished.verdict());
    }
}

/// The targets, when they can be run here; otherwise each is skipped.
fn ready(options: &Options, report: &mut Report) -> Vec<String> {
    let mut all = Vec::new();
    for manifest in MANIFESTS {
        let targets = targets(&fs::read_to_string(root().join(manifest)).unwrap_or_default());
        if targets.is_empty() {
            report.fail("fuzz::targets", &format!("{manifest} lists no target"));
        }
        all.extend(targets);
    }
    match install::nightly(options).and_then(|()| install::cargo_tool(options, "fuzz")) {
        Ok(()) => all,
        Err(missing) => {
            all.iter().for_each(|target| report.skip(&format!("fuzz::{target}"), &missing));
            Vec::new()
        }
    }
}

/// Names of the `[[bin]]` tables.
fn targets(manifest: &str) -> Vec<String> {
    let table: toml::Table = manifest.parse().unwrap_or_default();
    let bins = table.get("bin").and_then(|bins| bins.as_array()).cloned().unwrap_or_default();
    bins.iter().filter_map(|bin| Some(bin.get("name")?.as_str()?.to_string())).collect()
}

fn seeds_of(target: &str) -> Seeds {
    let path = root().join("fuzz/fuzz_targets").join(format!("{target}.rs"));
    seeds::parse(&fs::read_to_string(path).unwrap_or_default())
}

/// The sanitizer that a target asks for, in cargo-fuzz's words.
fn sanitizer(seeds: &Seeds) -> impl Iterator<Item = &str> {
    seeds.sanitizer.iter().flat_map(|sanitizer| ["--sanitizer", sanitizer])
}

/// `cargo fuzz run` for so many seconds, on a corpus of its own under `target` and, when there are any, the
/// inputs kept in `fuzz/seeds/TARGET`.
fn command(target: &str, seeds: &Seeds, corpus: &str, limit: u32) -> Command {
    let corpus = root().join("target/fuzz-corpus").join(target).join(corpus);
    let mut command = cargo(["+nightly", "fuzz", "run"]);
    command.current_dir(root().join("fuzz"));
    command.args(sanitizer(seeds));
    // An error here shows as libFuzzer's own: it names the folder it cannot read.
    let _ = fs::create_dir_all(&corpus);
    command.arg(target).arg(corpus);
    let kept = root().join("fuzz/seeds").join(target);
    if kept.is_dir() {
        command.arg(kept);
    }
    command.args([
        "--",
        &format!("-max_total_time={limit}"),
        &format!("-timeout={INPUT_SECONDS}"),
        "-rss_limit_mb=2048",
    ]);
    command
}

/// Passes when the fuzzer finds the bug in time, starting from an empty corpus and a fixed seed.
fn seeded(target: &str, seeds: &Seeds, bug: &str) -> Result<(), String> {
    let corpus = format!("seeded-{bug}");
    let _ = fs::remove_dir_all(root().join("target/fuzz-corpus").join(target).join(&corpus));
    let mut command = command(target, seeds, &corpus, SEEDED_SECONDS);
    let artifacts = root().join("target/fuzz-artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    command.arg("-seed=1").arg(format!("-artifact_prefix={}/{bug}-", artifacts.display()));
    found(&execute(&format!("fuzz-{target}-{bug}"), command.env(seeds::VARIABLE, bug)))
}

/// Whether libFuzzer ran and kept an input that fails.
fn found(finished: &Finished) -> Result<(), String> {
    if finished.success {
        Err(format!("not found within {SEEDED_SECONDS} s"))
    } else if finished.output.contains("Test unit written to") {
        Ok(())
    } else {
        Err(format!("the fuzzer did not run, or found no input:\n{}", finished.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins() {
        let text = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"range\"\npath = \"a\"\n[[bin]]\nname = \"pool\"\n";
        assert_eq!(targets(text), ["range", "pool"]);
        assert!(targets("[package]\nname = \"fuzz\"\n").is_empty());
        assert!(targets("not toml").is_empty());
    }

    #[test]
    fn targets_of_all_packages_are_found() {
        let of = |manifest: &str| targets(&fs::read_to_string(root().join(manifest)).expect("a manifest"));
        assert_eq!(of(MANIFESTS[0]), ["range", "cache", "heap"]);
        let mut found: Vec<_> = MANIFESTS.into_iter().flat_map(of).map(|target| format!("{target}.rs")).collect();
        let files = fs::read_dir(root().join("fuzz/fuzz_targets")).expect("a folder");
        let mut files: Vec<_> =
            files.map(|file| file.expect("an entry").file_name().into_string().expect("text")).collect();
        found.sort();
        files.sort();
        assert_eq!(found, files, "each file is a target of one package");
    }

    #[test]
    fn only_a_kept_input_finds_a_bug() {
        let finished = |success, output: &str| Finished { success, output: output.into() };
        assert!(
            found(&finished(false, "panicked at ..\nartifact_prefix='x/'; Test unit written to x/crash-1\n")).is_ok()
        );
        assert!(found(&finished(false, "error: could not compile\n")).is_err());
        assert!(found(&finished(true, "Done 100 runs in 61 second(s)\n")).is_err());
    }
}
