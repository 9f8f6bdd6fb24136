//! What runs under Miri, AddressSanitizer and ThreadSanitizer: every file that may say `unsafe`.
//!
//! Promises upward: a run's name (`miri::heap`) is what `docs/unsafe.md` calls it; a run in which no test passed has failed.
//! Asks from below: a nightly toolchain; Miri and the standard library's sources, which rustup has.

use crate::command::{Finished, cargo};
use crate::libtest::{self, Suites};
use crate::options::chosen;
use crate::report::Outcome;
use std::process::Command;

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Interprets the program: every rule of the language, some hundred times slower, few system calls.
    Miri,
    /// Out of bounds, after free: at nearly full speed, with all system calls and libraries.
    Address,
    /// Data races, likewise; the standard library is built with it, whose locks it must see.
    Thread,
}

/// Tests of one package.
pub struct Run {
    /// Who looks at them.
    pub tool: Tool,
    /// Their name, behind the tool's.
    name: &'static str,
    /// Package, features and test targets, as cargo's words.
    targets: &'static str,
    /// Which tests of them, as libtest's words.
    tests: &'static str,
    /// Flags for Miri.
    flags: &'static str,
    /// Cases of a property test.
    cases: u32,
    /// Only with `--all`.
    pub long: bool,
    /// The file that names the bugs this run must find.
    pub seeds: Option<&'static str>,
}

/// What every run has, but for what it says of itself.
const RUN: Run =
    Run { tool: Tool::Miri, name: "", targets: "", tests: "", flags: STRICT, cases: 4, long: false, seeds: None };

const ASAN: Run = Run { tool: Tool::Address, cases: 64, ..RUN };
const TSAN: Run = Run { tool: Tool::Thread, cases: 64, ..RUN };

/// Without the machine around it: files are not there, clocks are the interpreter's, chance is the same every time. What
/// tests leave behind is no undefined behaviour.
const ALONE: &str = "-Zmiri-isolation-error=hide -Zmiri-env-forward=PROPTEST_CASES -Zmiri-ignore-leaks";
/// Pointers come from pointers, never from numbers.
const STRICT: &str = "-Zmiri-strict-provenance";
/// The same, with the other rules of aliasing.
const TREE: &str = "-Zmiri-strict-provenance -Zmiri-tree-borrows";
/// Devices name memory by numbers: those are pointers that were exposed.
const EXPOSED: &str = "-Zmiri-permissive-provenance";
/// The same, with the other rules of aliasing.
const EXPOSED_TREE: &str = "-Zmiri-permissive-provenance -Zmiri-tree-borrows";
/// Four schedules, each with its own weak memory.
const SEEDS: &str = "-Zmiri-strict-provenance -Zmiri-many-seeds=0..4";
/// Sixteen, over memory that is named by numbers.
const EXPOSED_SEEDS: &str = "-Zmiri-permissive-provenance -Zmiri-many-seeds=0..16";
/// Sixteen.
const MANY_SEEDS: &str = "-Zmiri-strict-provenance -Zmiri-many-seeds=0..16";

/// The core's tests that share a program.
const CORE: &str = "-p terrace-core --test all";
/// Without what needs a processor's peripherals, which Miri cannot link.
const EMBEDDED: &str = "-p terrace-embedded --features spin,allocator-api2 --test all";
const DEVICE: &str = "-p terrace-tests --test device_host";
const WAITING: &str = "-p terrace --test all";
const WAITING_TESTS: &str = "waiting:: buffers::";
const CALLS: &str = "-p terrace-device --test late";
/// Also what Miri cannot link.
const EMBEDDED_ALL: &str = "-p terrace-embedded --features spin,allocator-api2,defmt,embedded-hal --lib --tests";
/// Tests of several packages together.
const SHARED: &str = "-p terrace-tests --test device_host --test device_objects --test device_ring --test device_pinned --test device_streams --test heap_traces --test heap_nested --test first_fit";
/// The whole stack over the simulated driver, and over numbers without memory.
const SIMULATED: &str = "-p terrace-tests --test device_simcuda --test device_numbers --test device_streams";
const TIERS: &str = "-p terrace-tiers --lib --test all --test forked";
/// Without what says `unsafe` nowhere, in the library and in its tests.
const TIERS_TESTS: &str = "--skip detect:: --skip extremes:: --skip ledger --skip locals:: --skip policy:: \
    --skip restart:: --skip runtimes:: --skip turns:: --skip wakers::";
const FILE: &str = "-p terrace-file --lib";

/// Heaps of less than a mebibyte: to look at a larger one takes Miri minutes.
const SMALL: &str = "--skip large:: --skip reach";
/// What threads share in the core: first what they do at once, then everything.
const WORDS: &str = "inbox::threads inbox::counters_of_many ring::threads pool::threads pool::of_two pool::a_stale \
    pool::a_pool_guard pool::a_bucket_guard";
const WORDS_ALL: &str = "ring:: ring_bridge:: lease:: inbox:: exchange:: pool:: cache::";
/// Locks that tests bring along.
const LOCKS: &str = "local:: layer::";
/// The same without what says `unsafe` nowhere and takes longest: the long programs of tenants, and their shares.
const LOCK_TESTS: &str = "local:: layer:: --skip no_tenant --skip shares_that";
const DEVICE_TESTS: &str = "wrapped what_was copies_within unified pinned_memory_is_the registration buffers_hold user_s \
    transfers_m transfers_a threads_share managed";
/// Without an engine's lanes, whose threads look for work all the time.
const LATE: &str = "calls:: memory_that nothing_is turns:: owned::a_copy owned::a_pinned";
const FILE_TESTS: &str = "frame:: executor:: extent:: a_whole_block";

/// All. What takes more than two minutes of one core is long.
pub const RUNS: &[Run] = &[
    Run {
        name: "heap",
        targets: "-p terrace-core --test heap",
        tests: "programs::every programs::a_tiny header::a_ header::an_ broken:: regions::what --skip absurd",
        seeds: Some("core/tests/heap/main.rs"),
        ..RUN
    },
    Run { name: "heap-tree", targets: "-p terrace-core --test heap", tests: "programs::every", flags: TREE, ..RUN },
    Run { name: "heap-long", targets: "-p terrace-core --test heap", tests: SMALL, long: true, ..RUN },
    Run {
        name: "heap-tree-long",
        targets: "-p terrace-core --test heap",
        tests: SMALL,
        flags: TREE,
        long: true,
        ..RUN
    },
    Run { name: "words", targets: CORE, tests: WORDS, flags: SEEDS, cases: 1, ..RUN },
    Run { name: "words-long", targets: CORE, tests: WORDS_ALL, flags: MANY_SEEDS, cases: 4, long: true, ..RUN },
    Run { name: "locks", targets: CORE, tests: LOCK_TESTS, cases: 1, ..RUN },
    Run { name: "locks-all", targets: CORE, tests: LOCKS, cases: 1, long: true, ..RUN },
    Run { name: "locks-long", targets: CORE, tests: "layer::threads", flags: MANY_SEEDS, cases: 1, long: true, ..RUN },
    Run { name: "embedded", targets: EMBEDDED, ..RUN },
    Run { name: "embedded-tree", targets: EMBEDDED, flags: TREE, long: true, ..RUN },
    Run { name: "embedded-long", targets: EMBEDDED, flags: MANY_SEEDS, long: true, ..RUN },
    Run { name: "device", targets: DEVICE, tests: DEVICE_TESTS, flags: EXPOSED, ..RUN },
    Run { name: "late", targets: CALLS, tests: LATE, flags: EXPOSED, ..RUN },
    Run { name: "late-tree", targets: CALLS, tests: LATE, flags: EXPOSED_TREE, long: true, ..RUN },
    Run { name: "late-long", targets: CALLS, tests: LATE, flags: EXPOSED_SEEDS, long: true, ..RUN },
    Run { name: "waiting", targets: WAITING, tests: WAITING_TESTS, ..RUN },
    Run { name: "track", targets: "-p terrace-track --test all", ..RUN },
    Run { name: "pool", targets: "-p terrace-pool --test all", ..RUN },
    Run { name: "bytes", targets: "-p terrace-bytes --test all", long: true, ..RUN },
    Run { name: "pool-tree", targets: "-p terrace-pool --test all", flags: TREE, long: true, ..RUN },
    Run { name: "pool-long", targets: "-p terrace-pool --test all", flags: SEEDS, long: true, ..RUN },
    Run { name: "waiting-long", targets: WAITING, tests: WAITING_TESTS, flags: MANY_SEEDS, long: true, ..RUN },
    Run { name: "device-tree", targets: DEVICE, flags: EXPOSED_TREE, long: true, ..RUN },
    Run { name: "device-long", targets: DEVICE, flags: EXPOSED, long: true, ..RUN },
    Run { name: "file", targets: FILE, tests: FILE_TESTS, ..RUN },
    Run { name: "file-tree", targets: FILE, tests: FILE_TESTS, flags: TREE, long: true, ..RUN },
    Run { name: "host", targets: "-p terrace-host --features allocator-api2,track --lib --tests", long: true, ..ASAN },
    Run { name: "track", targets: "-p terrace-track --test all --test forked", ..ASAN },
    Run { name: "tracked", targets: "-p terrace-device --features track --test tracked", long: true, ..ASAN },
    Run { name: "file", targets: "-p terrace-file --lib --tests", long: true, ..ASAN },
    Run { name: "shm", targets: "-p terrace-shm --lib --test all", tests: "--skip kills::", ..ASAN },
    Run { name: "embedded", targets: EMBEDDED_ALL, ..ASAN },
    Run { name: "bytes", targets: "-p terrace-bytes --test all", ..ASAN },
    Run { name: "tests", targets: SHARED, long: true, ..ASAN },
    Run { name: "tiers", targets: TIERS, tests: TIERS_TESTS, long: true, ..ASAN },
    Run { name: "cuda", targets: "-p terrace-cuda --lib --test simulated", long: true, ..ASAN },
    Run { name: "hip", targets: "-p terrace-hip --lib --test simulated", long: true, ..ASAN },
    Run { name: "guard", targets: "-p terrace-guard --lib", ..ASAN },
    Run { name: "simcuda", targets: "-p terrace-simcuda --lib --tests", long: true, ..ASAN },
    Run { name: "devices", targets: SIMULATED, long: true, ..ASAN },
    Run { name: "benches", targets: "-p terrace-benches --lib", long: true, ..ASAN },
    Run { name: "shared", targets: "-p terrace-device --test shared", long: true, ..TSAN },
    // Not `resident`: the sanitizer's own memory is counted too.
    Run { name: "host", targets: "-p terrace-host --lib --test heaps --test global", long: true, ..TSAN },
    Run { name: "file", targets: "-p terrace-file --lib --test all", long: true, ..TSAN },
    Run { name: "device", targets: DEVICE, long: true, ..TSAN },
    Run { name: "track", targets: "-p terrace-track --test all", long: true, ..TSAN },
    Run { name: "pool", targets: "-p terrace-pool --test all", long: true, ..TSAN },
    Run { name: "tiers", targets: TIERS, tests: TIERS_TESTS, long: true, ..TSAN },
];

/// All, or those that `TERRACE_RUNS` names.
pub fn wanted() -> impl Iterator<Item = &'static Run> {
    let wanted = chosen("TERRACE_RUNS");
    RUNS.iter().filter(move |run| wanted(&run.full_name()))
}

impl Run {
    /// `miri::heap`.
    pub fn full_name(&self) -> String {
        let tool = match self.tool {
            Tool::Miri => "miri",
            Tool::Address => "asan",
            Tool::Thread => "tsan",
        };
        format!("{tool}::{}", self.name)
    }

    /// The command. Each tool builds in a folder of its own.
    pub fn command(&self) -> Command {
        let mut command = match self.tool {
            Tool::Miri => cargo(["+nightly", "miri", "test", "--target-dir", "target/miri"]),
            Tool::Address => sanitized("address", &["--target-dir", "target/asan"]),
            Tool::Thread => sanitized("thread", &["-Zbuild-std", "--target-dir", "target/tsan"]),
        };
        command.args(self.words()).env("PROPTEST_CASES", self.cases.to_string());
        if self.tool == Tool::Miri {
            command.env("MIRIFLAGS", format!("{ALONE} {}", self.flags));
        }
        command
    }

    /// Its targets and tests, as words of `cargo test`.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.targets.split_whitespace().chain(["--"]).chain(self.tests.split_whitespace())
    }
}

/// `cargo test` under a sanitizer.
fn sanitized(name: &str, words: &[&str]) -> Command {
    let mut command = cargo(["+nightly", "test", "--target", HOST]);
    let flags = format!("-Zsanitizer={name} -Cunsafe-allow-abi-mismatch=sanitizer --cfg terrace_sanitizer");
    command.args(words).env("RUSTFLAGS", flags);
    // What tests leave to the end of their process is no mistake; what cannot be had is refused, not the end; frames lie on
    // the stack, where signal handlers compare their addresses; forked children start threads of their own.
    command.env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0");
    command.env("TSAN_OPTIONS", "halt_on_error=1:allocator_may_return_null=1:die_after_fork=0");
    command
}

/// Sanitizers run here.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Whether tests ran, and all passed.
pub fn judge(finished: &Finished) -> Result<(), String> {
    let tests = libtest::parse(&finished.output, &Suites::new());
    match finished.success {
        true if tests.iter().any(|test| test.outcome == Outcome::Passed) => Ok(()),
        true => Err(format!("no test ran:\n{}", finished.output)),
        false => Err(finished.output.clone()),
    }
}

/// Whether Miri found the bug: it said so, not a test.
pub fn found(finished: &Finished) -> Result<(), String> {
    match (finished.success, finished.output.contains("Undefined Behavior")) {
        (true, _) => Err("every test passed with the bug in: it was not found".into()),
        (false, true) => Ok(()),
        (false, false) => Err(format!("something else failed than Miri:\n{}", finished.output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(success: bool, output: &str) -> Finished {
        Finished { success, output: output.into() }
    }

    #[test]
    fn a_run_needs_a_test_that_passed() {
        assert_eq!(judge(&finished(true, "running 1 test\ntest a ... ok\ntest result: ok. 1 passed\n")), Ok(()));
        assert!(judge(&finished(true, "running 0 tests\ntest result: ok. 0 passed\n")).is_err());
        assert!(judge(&finished(false, "running 1 test\ntest a ... ok\n")).is_err());
    }

    #[test]
    fn only_miri_finds_a_bug() {
        assert_eq!(found(&finished(false, "error: Undefined Behavior: reading memory\n")), Ok(()));
        assert!(found(&finished(false, "test a ... FAILED\n")).is_err());
        assert!(found(&finished(true, "test a ... ok\n")).is_err());
    }

    #[test]
    fn names_are_different() {
        let mut names: Vec<String> = RUNS.iter().map(Run::full_name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), RUNS.len());
    }
}
