//! Line coverage of the libraries: only with `--all`, by name, or in CI.
//!
//! The workspace's own crates are built once more, with counters; what they depend on is what the step `test` built. Each test
//! program runs once, with few cases of what is drawn by chance. The step `test` judges tests: here one may fail because of the
//! counters, as long as nine of ten pass.
//!
//! A line counts when the compiler gives it a counter in a library's file: [`library`] says which files are. Tests in the same
//! file do not count; nor do lines for other systems, which the compiler does not see here.
//!
//! Promises upward: `coverage::lines` holds when tests reach [`PERCENT`] of the lines. The files with most missed lines are
//! printed; `target/coverage/missed.txt` has all of them with their numbers.
//! Asks from below: cargo; LLVM's tools of the compiler's version.

use super::lanes::side_by_side;
use super::suites;
use crate::command::{cargo, execute, root};
use crate::install;
use crate::libtest::{self, Suites};
use crate::options::Options;
use crate::report::{Outcome, Report};
use crate::seeds;
use crate::sources::{code_of, is_tests, without_tests};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Percent of the libraries' lines that tests must reach.
const PERCENT: usize = 90;

/// Percent of the tests that must pass for the figure to count.
const PASSED: usize = 90;

/// Files printed.
const WORST: usize = 10;

/// Test programs at a time, as in the step `test`.
const LANES: usize = 3;

/// Where the figures are made.
const FOLDER: &str = "target/coverage";

/// Packages without a library's lines or a library's tests.
const OTHERS: [&str; 2] = ["xtask", "terrace-benches"];

/// Folders of library files that do not count, and why.
const EXCLUDED: [(&str, &str); 2] = [
    ("adapters/cli/", "a program, not a library"),
    (
        "adapters/embedded/c/",
        "cargo builds it for C programs, without counters; the step `firmware` runs it on a board",
    ),
];

/// Test programs that take long and reach few lines that others do not: searches, waits, and builds of other projects.
const UNRUN: [&str; 5] = ["global", "heap_worst_case", "idle", "out_of_tree", "range_false_oom"];

/// Tests that do so, by what their names have in common: calls of a driver refused once each.
const SLOW: [&str; 2] = ["every_call", "the_refusal_of_each_call"];

/// Numbers of cases: which lines are reached does not depend on them.
const FEW: [(&str, &str); 5] = [
    ("PROPTEST_CASES", "16"),
    ("TERRACE_FORKS", "10"),
    ("TERRACE_SEEDS", "60"),
    ("TERRACE_THREADS_SECONDS", "2"),
    ("TERRACE_TRANSFERS", "128"),
];

/// The lines of each file that have a counter, and whether they were reached.
pub type Lines = BTreeMap<String, BTreeMap<usize, bool>>;

/// The step.
pub fn run(options: &Options, report: &mut Report) {
    let name = "coverage::lines";
    match install::llvm_tools(options) {
        Ok(tools) => report.verdict(name, lines(&tools).and_then(|lines| judged(&lines))),
        Err(missing) => report.skip(name, &missing),
    }
}

/// Writes down which lines were missed, and judges how many.
fn judged(lines: &Lines) -> Result<(), String> {
    let files = counts(lines, text_of);
    let text: String = files.iter().map(|file| format!("{}: {:?}\n", file.path, file.missed)).collect();
    let path = root().join(FOLDER).join("missed.txt");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    verdict(&files)
}

/// Builds, runs and reads the counters.
fn lines(tools: &Path) -> Result<Lines, String> {
    let profiles = root().join(FOLDER).join("profiles");
    _ = fs::remove_dir_all(&profiles);
    // As /tmp: children of any user write here.
    let made = fs::create_dir_all(&profiles).and_then(|()| seeds::set_mode(&profiles, 0o1777));
    made.map_err(|error| format!("{}: {error}", profiles.display()))?;
    let wrapper = seeds::script("coverage", "#!/bin/sh\nexec \"$@\" -Cinstrument-coverage\n")?;
    let tests = |task: &str| {
        let mut command = cargo([task, "--workspace", "--features", suites::FEATURES]);
        OTHERS.iter().for_each(|package| _ = command.args(["--exclude", package]));
        // A file for each process: children of other users may not write ours, and some are killed while they write.
        command.env("RUSTC_WORKSPACE_WRAPPER", &wrapper).env("LLVM_PROFILE_FILE", profiles.join("%p-%m.profraw"));
        command
    };
    // Libraries too that no test is linked with.
    let build = ["--lib", "--tests", "--message-format=json-render-diagnostics"];
    let built = execute("coverage-build", tests("build").args(build));
    if !built.success {
        return Err(built.output);
    }
    let objects = objects(&built.output);
    let malloc = objects.iter().find(|path| path.ends_with("libterrace_malloc.so"));
    let mut targets = suites::test_targets(&built.output);
    targets.retain(|name| !UNRUN.contains(&name.as_str()));
    let ran = side_by_side(LANES, suites::jobs(targets), |(log, words)| {
        let mut command = tests("test");
        // Recorded programs do more of the same.
        command
            .arg("--no-fail-fast")
            .args(words)
            .envs(FEW)
            .env_remove("TERRACE_TRACES")
            .arg("--")
            .args(SLOW.iter().flat_map(|name| ["--skip", name]));
        // Its tests would build the library themselves, without counters.
        command.envs(malloc.map(|path| ("TERRACE_MALLOC_LIBRARY", path)));
        execute(&format!("coverage-{log}"), &mut command).output
    });
    judge(&ran.join("\n"), &suites::suites(&built.output))?;
    export(tools, &profiles, &objects)
}

/// What has counters: programs, and libraries that other programs load.
fn objects(messages: &str) -> Vec<PathBuf> {
    let files = |message: Value| {
        let program = message["executable"].as_str().map(PathBuf::from);
        let library = message["filenames"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
        let library = library.filter(|name| name.ends_with(".so")).map(PathBuf::from);
        let ours = message["package_id"].as_str().is_some_and(|id| id.starts_with("path+"));
        program.into_iter().chain(library).filter(move |_| ours).collect::<Vec<_>>()
    };
    suites::parsed(messages).flat_map(files).collect()
}

/// A file's text, by its path from the root; nothing where it is not.
pub fn text_of(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// Whether enough tests passed; names those that did not.
fn judge(output: &str, names: &Suites) -> Result<(), String> {
    let tests = libtest::parse(output, names);
    let failed: Vec<&str> =
        tests.iter().filter(|test| test.outcome == Outcome::Failed).map(|test| test.name.as_str()).collect();
    let passed = tests.iter().filter(|test| test.outcome == Outcome::Passed).count();
    let told = format!("with counters {passed} tests passed and {} failed", failed.len());
    println!("{told}");
    failed.iter().for_each(|name| println!("     {name}"));
    if passed * 100 >= (passed + failed.len()).max(1) * PASSED { Ok(()) } else { Err(told) }
}

/// Joins the counters of all processes and holds them against the programs, one at a time: of a function that several have,
/// LLVM's tools take the first, which may be one that never runs it.
fn export(tools: &Path, profiles: &Path, objects: &[PathBuf]) -> Result<Lines, String> {
    let (joined, list) = (profiles.with_file_name("profile"), profiles.with_file_name("profiles.txt"));
    let io = |error: std::io::Error| format!("{}: {error}", profiles.display());
    let files = fs::read_dir(profiles).map_err(io)?.flatten().map(|entry| entry.path().display().to_string());
    fs::write(&list, files.collect::<Vec<_>>().join("\n")).map_err(io)?;
    let mut merge = Command::new(tools.join("llvm-profdata"));
    // A file that a killed process left unfinished costs its own counts only.
    merge.args(["merge", "--sparse", "--failure-mode=all", "--output"]).arg(&joined).arg("--input-files").arg(&list);
    execute("coverage-merge", &mut merge).verdict()?;
    _ = fs::remove_dir_all(profiles);
    let mut lines = Lines::new();
    for object in objects {
        let mut export = Command::new(tools.join("llvm-cov"));
        export.args(["export", "--format=lcov", "--skip-functions"]).arg(object).arg("--instr-profile").arg(&joined);
        // Of a library for build time there is none.
        let text = export.output().map_err(io)?.stdout;
        parse(&String::from_utf8_lossy(&text), &root(), &mut lines);
    }
    Ok(lines)
}

/// Adds the lines of a text in lcov's form, files by their path from the project's root.
pub fn parse(text: &str, root: &Path, files: &mut Lines) {
    let mut lines = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
            lines = Some(files.entry(path.display().to_string()).or_default());
        } else if let (Some(lines), Some((number, count))) =
            (lines.as_mut(), line.strip_prefix("DA:").and_then(|rest| rest.split_once(',')))
            && let Ok(number) = number.parse()
        {
            *lines.entry(number).or_default() |= count != "0";
        }
    }
}

/// Whether a file's lines count.
fn library(path: &str) -> bool {
    let source = path.starts_with("core/src/") || (path.starts_with("adapters/") && path.contains("/src/"));
    source && !is_tests(path) && !EXCLUDED.iter().any(|(folder, _)| path.starts_with(folder))
}

/// A library's file: its lines that count, and the numbers of those that were missed.
struct Count<'a> {
    path: &'a str,
    lines: usize,
    missed: Vec<usize>,
}

/// The libraries' files, those with most missed lines first.
fn counts(lines: &Lines, text_of: impl Fn(&str) -> String) -> Vec<Count<'_>> {
    let mut files = Vec::new();
    for (path, lines) in lines.iter().filter(|(path, _)| library(path)) {
        let end = without_tests(&code_of(&text_of(path))).lines().count();
        let missed = lines.range(..=end).filter(|(_, reached)| !**reached).map(|(line, _)| *line).collect();
        files.push(Count { path, lines: lines.range(..=end).count(), missed });
    }
    files.sort_by_key(|file| Reverse(file.missed.len()));
    files
}

/// Holds when enough lines were reached; says how many, and where most were not.
fn verdict(files: &[Count<'_>]) -> Result<(), String> {
    let all: usize = files.iter().map(|file| file.lines).sum();
    let reached = all - files.iter().map(|file| file.missed.len()).sum::<usize>();
    let hundredths = 10_000 * reached / all.max(1);
    let told = format!("{}.{:02} % of {all} lines in {} files", hundredths / 100, hundredths % 100, files.len());
    println!("{told}; most are missed in");
    files.iter().take(WORST).for_each(|file| println!("{:>6} of {:>4}  {}", file.missed.len(), file.lines, file.path));
    if all > 0 && reached * 100 >= all * PERCENT { Ok(()) } else { Err(format!("{told}, below {PERCENT} %")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_reached_once_is_reached() {
        let text = "TN:\nSF:/p/a.rs\nFN:1,f\nDA:1,3\nDA:2,0\nend_of_record\nSF:/q/b.rs\nDA:1,0\nSF:/p/a.rs\nDA:1,0\n";
        let mut files = Lines::new();
        parse(text, Path::new("/p"), &mut files);
        assert_eq!(files["a.rs"], BTreeMap::from([(1, true), (2, false)]));
        assert_eq!(files["/q/b.rs"], BTreeMap::from([(1, false)]));
    }

    #[test]
    fn lines_of_libraries_count_without_their_tests() {
        let count = |path: &str, reached: usize, text: &str| {
            let lines = (1..=10).map(|line| (line, line <= reached)).collect();
            verdict(&counts(&Lines::from([(path.into(), lines)]), |_| text.into()))
        };
        let text = "fn f() {\n}\n".repeat(5);
        assert_eq!(count("core/src/a.rs", 9, &text), Ok(()));
        assert!(count("core/src/a.rs", 8, &text).is_err());
        // Of ten lines the last eight are tests.
        let text = format!("fn f() {{\n}}\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert!(count("adapters/file/src/a.rs", 1, &text).is_err());
        assert_eq!(count("adapters/file/src/a.rs", 2, &text), Ok(()));
        for other in ["adapters/file/src/tests.rs", "adapters/cli/src/a.rs", "core/tests/a.rs", "xtask/src/a.rs"] {
            assert!(count(other, 10, &text).is_err(), "{other}: no line counts");
        }
    }

    #[test]
    fn a_run_in_which_tests_fail_has_no_figure() {
        let tests = |passed: usize, failed: usize| {
            let line = |result: &'static str| move |at| format!("test {result}{at} ... {result}\n");
            let lines: String = (0..passed).map(line("ok")).chain((0..failed).map(line("FAILED"))).collect();
            format!("running {} tests\n{lines}test result: FAILED. {passed} passed; {failed} failed\n", passed + failed)
        };
        assert_eq!(judge(&tests(9, 1), &Suites::new()), Ok(()));
        assert!(judge(&tests(8, 1), &Suites::new()).is_err());
    }
}
