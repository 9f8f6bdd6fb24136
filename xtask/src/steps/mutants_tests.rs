//! Draws, selections, and what cargo-mutants is told.

use super::*;

fn mutant(name: &str) -> Mutant {
    let key = name.to_string();
    let line = (key.len(), format!("  {key};"));
    Mutant { package: "p".into(), file: "f.rs".into(), function: "f".into(), name: name.into(), line, key }
}

#[test]
fn a_draw_depends_on_its_seed_and_not_on_the_order() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let drawn =
        |mutants: Vec<Mutant>, seed| draw(mutants, 3, seed).into_iter().map(|mutant| mutant.name).collect::<Vec<_>>();
    let (forth, back): (Vec<_>, Vec<_>) =
        (names.iter().map(|n| mutant(n)).collect(), names.iter().rev().map(|n| mutant(n)).collect());
    assert_eq!(drawn(forth.clone(), 1), drawn(back, 1));
    assert!((2..9).any(|seed| drawn(forth.clone(), seed) != drawn(forth.clone(), 1)));
}

#[test]
fn tests_are_chosen_by_package_target_and_name() {
    let programs = BTreeSet::from(["terrace-core/heap", "terrace-core/bin/replay"].map(String::from));
    let of = |tests: &[&str]| Selection::of(&tests.iter().map(|test| test.to_string()).collect::<Vec<_>>(), &programs);
    let selection = of(&[
        "terrace-core/lib::bins::*",
        "terrace-core/heap::best",
        "terrace-core/slab::*",
        "terrace-core/replay::table::tests::*",
    ]);
    let words: Vec<_> = selection.tests(Path::new(".")).get_args().map(|w| w.to_string_lossy().into_owned()).collect();
    let names = "(binary_id(=terrace-core) & test(/^bins::/)) | (binary_id(=terrace-core::heap) & test(=best)) \
                 | (binary_id(=terrace-core::all) & test(/^slab::/)) \
                 | (binary_id(=terrace-core::bin/replay) & test(/^table::tests::/))";
    let targets = ["--bin=replay", "--lib", "--test=all", "--test=heap"];
    assert_eq!(words, [&["nextest", "run", "--package=terrace-core"], &targets[..], &["-E", names]].concat());
}

#[test]
fn packages_follow_each_other_as_they_are_named() {
    let tests = ["b/x::one", "a/*", "loom::y", "b/lib::two", "b/*", "c/doc::z"].map(String::from);
    let stages = stages(&tests);
    let words: Vec<(&str, Vec<&str>)> =
        stages.iter().map(|(package, tests)| (*package, tests.iter().map(String::as_str).collect())).collect();
    assert_eq!(words, [("b", vec!["b/x::one", "b/lib::two"]), ("a", vec!["a/*"]), ("b", vec!["b/*"])]);
}

#[test]
fn the_time_of_tests_is_read() {
    assert_eq!(seconds("x\n     Summary [   1.408s] 7 tests run: 7 passed\n"), 2);
    assert_eq!(seconds("     Summary [  61.000s] 7 tests run\n"), 61);
}

#[test]
fn programs_are_known_by_their_package() {
    let programs = programs().expect("metadata");
    assert!(
        ["terrace-core/heap", "terrace-core/all", "terrace-cli/bin/terrace"].iter().all(|one| programs.contains(*one))
    );
}

#[test]
fn lines_are_told_as_new() {
    let diff = diff(&[&mutant("bbb"), &mutant("a"), &mutant("a")]);
    assert_eq!(diff, "--- a/f.rs\n+++ b/f.rs\n@@ -0,0 +1,1 @@\n+  a;\n@@ -1,0 +3,1 @@\n+  bbb;\n");
}

#[test]
fn names_are_taken_letter_by_letter() {
    assert_eq!(escaped("a.rs:1:2: replace + with -"), "a\\.rs:1:2: replace \\+ with \\-");
}

#[test]
fn what_names_no_mutant_is_forgotten() {
    let group = Group { name: "A1".into(), mutants: vec![mutant("one"), mutant("two")], tests: vec![] };
    let known = Known::parse("CaughtMutant A1: one\nMissedMutant A1: three\nCaughtMutant B1: two\n", &[group]);
    assert_eq!(known.0, BTreeMap::from([("A1: one".into(), "CaughtMutant".into())]));
}

#[test]
fn outcomes_are_read() {
    let text = r#"{"outcomes": [{"scenario": "Baseline", "summary": "Success"},
        {"scenario": {"Mutant": {"name": "n"}}, "summary": "MissedMutant"}]}"#;
    assert_eq!(outcomes_of(text), Ok(BTreeMap::from([("n".into(), "MissedMutant".into())])));
}
