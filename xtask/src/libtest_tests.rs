//! Examples of `cargo test`'s output, good and broken.

use super::*;

fn suites() -> Suites {
    let pairs = [
        ("range-0a1b", "terrace-core/range"),
        ("terrace_core-22ff", "terrace-core/lib"),
        ("terrace_core", "terrace-core/doc"),
        ("all-3c4d", "terrace-core/all"),
    ];
    pairs.iter().map(|(file, name)| (file.to_string(), name.to_string())).collect()
}

fn named<'a>(tests: &'a [Test], name: &str) -> &'a Test {
    tests.iter().find(|test| test.name == name).unwrap_or_else(|| panic!("{name} is not in {tests:?}"))
}

const GOOD: &str = "\
   Compiling terrace-core v0.1.0
     Running unittests src/lib.rs (target/debug/deps/terrace_core-22ff)

running 3 tests
test bins::tests::rounds ... ok
test replay::big ... ok
test slow ... ignored, takes an hour

successes:

---- replay::big stdout ----
SKIP big: set TERRACE_TRACES

successes:
    replay::big

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

     Running tests/range.rs (target/debug/deps/range-0a1b)

running 2 tests
test overlaps - should panic ... ok
test never_overlaps ... FAILED

successes:

---- overlaps stdout ----
SKIP large_traces: set TERRACE_TRACES

failures:

---- never_overlaps stdout ----
thread 'never_overlaps' panicked at core/tests/range.rs:9:5:
0 and 8 overlap

failures:
    never_overlaps

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests terrace_core

running 2 tests
test core/src/error.rs - error::AllocError (line 58) ... ok
test core/src/lib.rs - (line 3) - compile ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

#[test]
fn names_and_outcomes() {
    let tests = parse(GOOD, &suites());
    assert_eq!(named(&tests, "terrace-core/lib::bins::tests::rounds").outcome, Outcome::Passed);
    assert_eq!(named(&tests, "terrace-core/lib::slow").outcome, Outcome::Skipped);
    assert_eq!(named(&tests, "terrace-core/lib::slow").detail, "ignored, takes an hour");
    assert_eq!(named(&tests, "terrace-core/range::overlaps").outcome, Outcome::Passed);
    assert_eq!(named(&tests, "terrace-core/doc::error::AllocError").outcome, Outcome::Passed);
    assert_eq!(named(&tests, "terrace-core/doc::core/src/lib.rs").outcome, Outcome::Passed);
}

#[test]
fn a_failed_test_keeps_its_output() {
    let tests = parse(GOOD, &suites());
    let test = named(&tests, "terrace-core/range::never_overlaps");
    assert_eq!(test.outcome, Outcome::Failed);
    assert!(test.detail.contains("0 and 8 overlap"));
}

#[test]
fn a_test_that_says_skip_is_not_passed() {
    let tests = parse(GOOD, &suites());
    let whole = named(&tests, "terrace-core/lib::replay::big");
    assert_eq!((whole.outcome, whole.detail.as_str()), (Outcome::Skipped, "set TERRACE_TRACES"));
    // A part that a test skips is a skip of its own, beside the test.
    assert_eq!(named(&tests, "terrace-core/range::large_traces").outcome, Outcome::Skipped);
    assert_eq!(tests.len(), 8);
}

#[test]
fn a_suite_that_dies_is_a_failure() {
    let text = "     Running tests/range.rs (target/debug/deps/range-0a1b)\n\nrunning 2 tests\ntest a ... ok\n\
                error: test failed, to rerun pass `-p terrace-core --test range`\n";
    let tests = parse(text, &suites());
    assert_eq!(named(&tests, "terrace-core/range::a").outcome, Outcome::Passed);
    assert_eq!(named(&tests, "terrace-core/range::(crashed)").outcome, Outcome::Failed);
}

#[test]
fn a_result_that_cannot_be_read_is_a_failure() {
    let text = "     Running tests/range.rs (target/debug/deps/range-0a1b)\n\nrunning 2 tests\ntest a ... ok\n\
                test b ... noise ok\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
    assert_eq!(named(&parse(text, &suites()), "terrace-core/range::(unread)").outcome, Outcome::Failed);
}

#[test]
fn skip_lines() {
    assert_eq!(skip_of("SKIP a::b: set X"), Some(("a::b", "set X")));
    for line in ["SKIP a", "SKIP : b", "skip a: b", "we SKIP a: b", "SKIP two words: b"] {
        assert_eq!(skip_of(line), None, "{line}");
    }
}

#[test]
fn modules_of_the_shared_program_are_named_like_programs() {
    let text = "     Running tests/all/main.rs (target/debug/deps/all-3c4d)\n\nrunning 2 tests\ntest slab::a ... ok\n\
                test ring::b ... ok\n\nsuccesses:\n\n---- ring::b stdout ----\nSKIP b: no ring\n\n\
                successes:\n    ring::b\n\ntest result: ok. 2 passed; 0 failed\n";
    let tests = parse(text, &suites());
    assert_eq!(named(&tests, "terrace-core/slab::a").outcome, Outcome::Passed);
    assert_eq!(named(&tests, "terrace-core/ring::b").outcome, Outcome::Skipped);
}
