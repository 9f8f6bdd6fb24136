//! The most instructions that one call to a heap takes on x86-64: an adversary looks for them, a bound holds them.
//!
//! Counted are single steps of optimised code in another process (`tests/counted`, built here with a profile of its own, so
//! that the profile of the tests does not matter: the heap is generic, and would be compiled with theirs). A count
//! includes a call through a pointer with five arguments, as a foreign caller would make it.
//!
//! The search starts from `tests/data/heap_worst.txt`, what longer searches found, and goes on from there:
//! `TERRACE_WORST_BUDGET=100000 cargo test -p terrace-tests --test heap_worst_case -- --nocapture` looks longer.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use terrace_tests::steps::{Counter, Found, Kind, Outcome, Program, search};

/// Programs for each heap; with those of the file some ten seconds on two cores.
const BUDGET: usize = 2000;

/// The most instructions of (allocate, aligned, failing, free, resize). What was found, rounded up to the next ten:
/// another version of the compiler orders a few instructions otherwise.
type Bounds = [u64; 5];

/// The longest ways where blocks are merged at once: *allocate*, a search in vain, a block out of the list of its size, the
/// rest into another; *aligned*, two searches, and a rest in front too; *failing*, the searches and nothing else; *free*, both neighbours out of the
/// front of their lists, and one block into a third; *resize*, a shrink, which is a free of what is cut off.
const BOUNDED_PACKED: Bounds = [130, 220, 130, 120, 120];
const BOUNDED_WIDE: Bounds = [130, 220, 130, 120, 110];
const BOUNDED_NARROW: Bounds = [120, 210, 130, 110, 110];
const SMALL_PACKED: Bounds = [310, 360, 180, 230, 200];
/// Of a heap that defers, *free* and *resize* also merge two of the blocks that wait. What hands out merges up to 128 of
/// them where it would otherwise be refused: the adversary finds that, and the bound is that sum.
const FAST_WIDE: Bounds = [20_000, 20_000, 20_000, 400, 400];
const FAST_NARROW: Bounds = FAST_WIDE;

#[test]
fn bounded_packed() {
    bounded("bounded_packed", "bounded-packed", BOUNDED_PACKED);
}

#[test]
fn bounded_wide() {
    bounded("bounded_wide", "bounded-wide", BOUNDED_WIDE);
}

#[test]
fn bounded_narrow() {
    bounded("bounded_narrow", "bounded-narrow", BOUNDED_NARROW);
}

#[test]
fn small_packed() {
    bounded("small_packed", "small-packed", SMALL_PACKED);
}

#[test]
fn fast_wide() {
    bounded("fast_wide", "fast-wide", FAST_WIDE);
}

#[test]
fn fast_narrow() {
    bounded("fast_narrow", "fast-narrow", FAST_NARROW);
}

/// A block of 64 KiB has 8192 granules, whose bits are 128 words in each of two tables: some twenty instructions a word. Bit by
/// bit it took 162,105.
#[test]
fn a_checked_free_looks_at_words() {
    let Some(mut counter) = Counter::start(counted_process(), &["checked"]).expect("it starts") else {
        return println!("SKIP a_checked_free_looks_at_words: no process may trace another here");
    };
    let program: Program = "1048576 B: #0=65536 #1=64 free#0".parse().expect("a program");
    let (count, outcome) = counter.count(&program).expect("it runs");
    println!("a checked free of 64 KiB: {count} instructions");
    assert_eq!(outcome, Outcome::Done);
    assert!((500..=6000).contains(&count), "{count} instructions");
}

/// For comparison: what the same adversary finds against rlsf, whose bounds are not ours to hold. It must find about what
/// is known of it, 118 and 110: an adversary that finds less would hold no bound.
#[test]
fn rlsf_for_comparison() {
    if let Some(found) = adversary("rlsf_for_comparison", "rlsf") {
        assert!(most(&found, &MALLOC) >= 110 && most(&found, &[Kind::Free]) >= 100, "{found:?}");
    }
}

/// All that hands out.
const MALLOC: [Kind; 3] = [Kind::Allocate, Kind::Aligned, Kind::Failing];

fn most(found: &[Option<Found>], kinds: &[Kind]) -> u64 {
    let found = kinds.iter().filter_map(|&kind| found[kind as usize].as_ref());
    found.map(|found| found.count).max().unwrap_or(0)
}

/// Fails when a call exceeds its bound.
fn bounded(test: &str, heap: &str, bounds: Bounds) {
    let Some(found) = adversary(test, heap) else { return };
    for ((kind, bound), found) in Kind::ALL.iter().zip(bounds).zip(found) {
        let found = found.unwrap_or_else(|| panic!("{heap}: no {kind:?} was counted"));
        let Found { count, program } = found;
        assert!(count <= bound, "{heap}: {kind:?} takes {count} instructions, the bound is {bound}: {program}");
    }
}

/// The worst of each kind, printed; `None` where nothing can be counted.
fn adversary(test: &str, heap: &str) -> Option<Vec<Option<Found>>> {
    let Some(mut counter) =
        Counter::start(counted_process(), &[heap]).unwrap_or_else(|error| panic!("{heap}: {error}"))
    else {
        println!("SKIP {test}: no process may trace another here");
        return None;
    };
    let budget = std::env::var("TERRACE_WORST_BUDGET").ok().and_then(|budget| budget.parse().ok()).unwrap_or(BUDGET);
    // A call that merges all is a hundred times as long as others, and so is counting it.
    let budget = if heap.starts_with("fast") { budget / 5 } else { budget };
    let found =
        search(1, budget, &known(), &mut |program| counter.count(program)).unwrap_or_else(|e| panic!("{heap}: {e}"));
    let (malloc, free) = (most(&found, &MALLOC), most(&found, &[Kind::Free]));
    let mut text = format!("{heap}: worst malloc {malloc} / free {free}\n");
    for (kind, found) in Kind::ALL.iter().zip(&found) {
        if let Some(Found { count, program }) = found {
            text += &format!("  {kind:?} {count} by {program}\n");
        }
    }
    println!("{text}");
    Some(found)
}

/// What earlier, longer searches found, for any heap.
fn known() -> Vec<Program> {
    let text = include_str!("../data/heap_worst.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.parse().expect(line)).collect()
}

/// Builds the counted process, once.
fn counted_process() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("counted/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counted");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--quiet"])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target);
    // The flags of the tests' own build (sanitizers, another target) are not those of what is counted.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "the counted process: {}", String::from_utf8_lossy(&output.stderr));
    target.join("release/terrace-counted")
}
