//! `cargo test` on the workspace, every test by name, and once more without default features.
//!
//! Promises upward: one record per test. A workspace that does not build is `test::build`; tests that fail after
//! building are named. `test::no_default_features` holds when the library's tests pass without default features.
//! Asks from below: cargo's JSON messages, which say which package an executable belongs to.

use super::bare;
use super::lanes::side_by_side;
use crate::command::{Finished, cargo, execute, output_of, works};
use crate::install;
use crate::libtest::{self, Suites, Test};
use crate::options::Options;
use crate::report::{Outcome, Report};
use serde_json::Value;
use std::collections::BTreeSet;

/// Cases of a property test under `--all`; proptest's own default is 256.
const CASES_ALL: &str = "4096";

/// Cases of a property test whose program is run a second time.
const CASES_AGAIN: &str = "64";

/// Forks under load under `--all`; 300 otherwise.
const FORKS_ALL: &str = "3000";

/// Seconds of the threads that check the tiers against shadow models, under `--all`; 12 otherwise.
const THREADS_SECONDS_ALL: &str = "600";

/// Test programs at a time: those of devices wait three quarters of their time.
const LANES: usize = 3;

/// Test targets that take half a minute and more.
const LONG: [&str; 4] = ["c", "device_simcuda", "heap_worst_case", "simulated"];

/// Features whose tests need nothing that a host lacks; the library's own default is without them.
pub const FEATURES: &str = "terrace-embedded/spin,terrace-embedded/allocator-api2,terrace-embedded/defmt,\
    terrace-embedded/embedded-hal,terrace-host/allocator-api2,terrace/global,terrace/allocator-api2,terrace/bytes,terrace/cuda,\
    terrace/hip,terrace/live,terrace/metal,terrace/opencl,terrace/pool,terrace/recording,terrace/serde,terrace/shm,terrace/tiers,terrace/toml,terrace/track,\
    terrace/vulkan,terrace-device/track,terrace-tiers/track,terrace-track/serde";

/// Programs that tests run, and the Debian packages they are in: each test says what it lacks.
const PROGRAMS: [(&str, &[&str]); 23] = [
    ("cc", &["gcc", "libc6-dev"]),
    ("c++", &["g++"]),
    ("make", &["make"]),
    ("arm-none-eabi-gcc", &["gcc-arm-none-eabi", "libnewlib-arm-none-eabi"]),
    ("qemu-system-arm", &["qemu-system-arm"]),
    ("objcopy", &["binutils"]),
    ("python3", &["python3"]),
    ("perl", &["perl"]),
    ("git", &["git"]),
    ("sqlite3", &["sqlite3"]),
    ("lua5.4", &["lua5.4"]),
    ("php", &["php-cli"]),
    ("redis-server", &["redis-server", "redis-tools"]),
    ("z3", &["z3"]),
    ("gs", &["ghostscript"]),
    ("valgrind", &["valgrind"]),
    ("gdb", &["gdb"]),
    ("prometheus", &["prometheus"]),
    ("strace", &["strace"]),
    ("tmux", &["tmux"]),
    ("chromium", &["chromium"]),
    // The loader of OpenCL's drivers is no program, nor is the driver: a program that lists them stands for both.
    ("vulkaninfo", &["vulkan-tools", "libvulkan1", "mesa-vulkan-drivers", "vulkan-validationlayers"]),
    ("clinfo", &["clinfo", "pocl-opencl-icd", "ocl-icd-libopencl1"]),
];

/// Runs both.
pub fn run(options: &Options, report: &mut Report) {
    if options.install {
        // Not every one knows `--version`.
        let is_here = |program: &str| works("sh", &["-c", &format!("command -v {program}")]);
        for (_, packages) in PROGRAMS.iter().filter(|(program, _)| !is_here(program)) {
            // Without it the tests that need it skip by name.
            _ = install::apt(options, packages);
        }
        _ = bare::add(options, "thumbv7em-none-eabihf");
        // The sanitizers' compiler.
        _ = install::nightly(options);
    }
    workspace(options, report);
    report.verdict("test::no_default_features", no_default_features());
}

fn workspace(options: &Options, report: &mut Report) {
    let finished = execute(
        "test-build",
        &mut cargo([
            "test",
            "--workspace",
            "--features",
            FEATURES,
            "--no-run",
            "--message-format=json-render-diagnostics",
        ]),
    );
    if !finished.success {
        report.fail("test::build", &without_json(&finished.output));
        return;
    }
    report.pass("test::build");
    let names = suites(&finished.output);
    let mut jobs = jobs(test_targets(&finished.output));
    jobs.push(("test-doc".into(), vec!["--doc".into()]));
    let ran = side_by_side(LANES, jobs, |(log, words)| {
        let mut command = cargo(["test", "--workspace", "--features", FEATURES, "--no-fail-fast"]);
        command.args(words).args(["--", "--show-output"]);
        // The library once more under each sanitizer, which a plain `cargo test` leaves out.
        command.env("TERRACE_SANITIZERS", "1");
        if options.all {
            command.env("PROPTEST_CASES", CASES_ALL).env("TERRACE_FORKS", FORKS_ALL);
            command.env("TERRACE_THREADS_SECONDS", THREADS_SECONDS_ALL).env("TERRACE_ALL", "1");
        }
        execute(&log, &mut command)
    });
    for tests in ran {
        record(report, "test::workspace", &tests, &libtest::parse(&tests.output, &names));
    }
}

/// What runs side by side: a log's name and cargo's words for the targets. The many short suites are one job and begin first;
/// beside them run the long ones.
pub fn jobs(targets: BTreeSet<String>) -> Vec<(String, Vec<String>)> {
    let test = |name: &String| ["--test".to_string(), name.clone()];
    let (long, short): (Vec<_>, Vec<_>) = targets.into_iter().partition(|name| LONG.contains(&name.as_str()));
    let mut words = vec!["--lib".to_string(), "--bins".to_string()];
    words.extend(short.iter().flat_map(test));
    let long = LONG.iter().filter_map(|name| long.iter().find(|known| known == name));
    let mut jobs = vec![("test".to_string(), words)];
    jobs.extend(long.map(|name| (format!("test-{name}"), test(name).to_vec())));
    jobs
}

/// The messages of a build, which stand among its other lines.
pub fn parsed(messages: &str) -> impl Iterator<Item = Value> {
    let lines = messages.lines().filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str(line).ok())
}

/// The names of the test targets, from the messages of a build.
pub fn test_targets(messages: &str) -> BTreeSet<String> {
    let is_test = |message: &Value| message["target"]["kind"][0] == "test" && !message["executable"].is_null();
    parsed(messages)
        .filter(is_test)
        .filter_map(|message| message["target"]["name"].as_str().map(String::from))
        .collect()
}

/// Puts the tests of one `cargo test` into the report; `whole` names the command itself, for a failure that no
/// test explains.
pub fn record(report: &mut Report, whole: &str, finished: &Finished, tests: &[Test]) {
    for test in tests {
        match test.outcome {
            Outcome::Passed => report.pass_quietly(&test.name),
            Outcome::Failed => report.fail(&test.name, &test.detail),
            Outcome::Skipped => report.skip(&test.name, &test.detail),
        }
    }
    let explained = tests.iter().any(|test| test.outcome == Outcome::Failed);
    if !finished.success && !explained {
        report.fail(whole, &finished.output);
    } else if tests.is_empty() {
        report.fail(whole, "no test ran");
    }
}

/// The suites' names, from the messages of a build: executable file -> `PACKAGE/TARGET`, where the unit tests of
/// a library are `lib`; crate -> `PACKAGE/doc`.
pub fn suites(messages: &str) -> Suites {
    let mut suites = Suites::new();
    for message in parsed(messages) {
        let Some(package) = message["manifest_path"].as_str().and_then(package_of) else { continue };
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let library = message["target"]["kind"][0].as_str().is_some_and(|kind| kind.ends_with("lib"));
        if library {
            suites.insert(target.replace('-', "_"), format!("{package}/doc"));
        }
        if let Some(file) = message["executable"].as_str().and_then(|path| path.rsplit(['/', '\\']).next()) {
            suites.insert(file.into(), format!("{package}/{}", if library { "lib" } else { target }));
        }
    }
    suites
}

/// The `name` in a manifest.
fn package_of(manifest: &str) -> Option<String> {
    let table: toml::Table = std::fs::read_to_string(manifest).ok()?.parse().ok()?;
    Some(table.get("package")?.get("name")?.as_str()?.into())
}

/// What the compiler and cargo said of faults: neither the messages for programs nor the names of the crates under way.
fn without_json(output: &str) -> String {
    let said = |line: &&str| !line.starts_with('{') && !line.trim_start().starts_with("Compiling ");
    output.lines().filter(said).collect::<Vec<_>>().join("\n")
}

/// The library's own tests without default features. The workspace's run has the same tests with all cases: here the build is
/// most of the time, and unoptimized it takes a third.
fn no_default_features() -> Result<(), String> {
    let mut command = cargo(["test", "--no-default-features", "--no-fail-fast"]);
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("PROPTEST_CASES", CASES_AGAIN);
    for package in ["terrace-core", "terrace"] {
        command.args(["--package", package]);
    }
    let finished = execute("test-no-default-features", &mut command);
    let ran = libtest::parse(&finished.output, &Suites::new()).iter().any(|test| test.outcome == Outcome::Passed);
    match (finished.success, ran) {
        (true, true) => Ok(()),
        (true, false) => Err("no test ran".into()),
        (false, _) => Err(finished.output),
    }
}

/// `cargo metadata` of a workspace.
///
/// # Errors
/// A sentence.
pub fn metadata(words: &[&str]) -> Result<Value, String> {
    let words: Vec<&str> = ["metadata", "--format-version", "1"].iter().chain(words).copied().collect();
    let text = output_of("cargo", &words).ok_or_else(|| format!("`cargo {}` failed", words.join(" ")))?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_named_by_package() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let line = |kind: &str, name: &str, file: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"/t/deps/{file}"}}"#
            )
        };
        let text =
            format!("{}\n{}\nwarning: {{}}\n", line("test", "range", "range-1f"), line("lib", "x_task", "x_task-2e"));
        let suites = suites(&text);
        assert_eq!(suites["range-1f"], "xtask/range");
        assert_eq!(suites["x_task-2e"], "xtask/lib");
        assert_eq!(suites["x_task"], "xtask/doc");
        assert_eq!(suites.len(), 3);
    }

    #[test]
    fn every_test_target_is_in_one_job() {
        let line = |kind: &str, name: &str| {
            format!(r#"{{"target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"/t/deps/{name}-1"}}"#)
        };
        let text = ["lib lib", "test c", "test a", "test b", "test device_simcuda", "example d"]
            .map(|of| of.split_once(' ').map(|(kind, name)| line(kind, name)).unwrap_or_default());
        let jobs: Vec<String> =
            jobs(test_targets(&text.join("\n"))).into_iter().map(|(_, words)| words.join(" ")).collect();
        assert_eq!(jobs, ["--lib --bins --test a --test b", "--test c", "--test device_simcuda"]);
    }

    #[test]
    fn a_failure_that_no_test_explains_is_recorded() {
        let mut report = Report::quiet();
        record(&mut report, "whole", &Finished { success: false, output: "linker".into() }, &[]);
        record(&mut report, "empty", &Finished { success: true, output: String::new() }, &[]);
        assert_eq!(report.failed(), 2);
    }
}
