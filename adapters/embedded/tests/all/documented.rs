//! Each public method has an example, which the documentation's tests run.

use std::fs;
use std::path::Path;

/// Files whose public functions are out of a program's reach: their types are private, or hidden.
const INSIDE: [&str; 2] = ["regions.rs", "state.rs"];

/// The public methods of a file without an example: lines that begin a method, below a comment without a fence.
fn lacking(source: &str) -> Vec<String> {
    let (mut comment, mut found) = (String::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if line.starts_with("///") || line.starts_with("#[") {
            comment.push_str(line);
        } else {
            let words: Vec<&str> = line.split_whitespace().take(4).collect();
            let method = words.first() == Some(&"pub") && words.contains(&"fn");
            // One of two versions of a method: the other has the example.
            let hidden = ["#[doc(hidden)]", "#[cfg(loom)]"].iter().any(|mark| comment.contains(mark));
            if method && !hidden && !comment.contains("```") {
                found.push(line.to_owned());
            }
            comment.clear();
        }
    }
    found
}

#[test]
fn every_public_method_has_an_example() {
    let (mut methods, mut without) = (0, Vec::new());
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).expect("sources") {
        let path = file.expect("a file").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "rs") && !INSIDE.contains(&name.as_str()) {
            let source = fs::read_to_string(&path).expect("a source");
            methods += source.lines().filter(|line| line.contains("pub ") && line.contains("fn ")).count();
            without.extend(lacking(&source).into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    assert!(methods > 25, "{methods} methods were found");
    assert_eq!(without, [""; 0], "give each of them an example");
}

#[test]
fn the_search_finds_what_lacks_an_example() {
    assert_eq!(lacking("/// Does.\npub fn a() {}\n/// ```\n/// ```\npub const unsafe fn b() {}"), ["pub fn a() {}"]);
    assert_eq!(
        lacking("    /// ```\n    /// ```\n    #[inline]\n    pub fn a() {}\n\n    pub unsafe fn b() {}").len(),
        1
    );
    assert!(lacking("#[doc(hidden)]\npub fn a() {}\npub(crate) fn b() {}\nfn c() {}\npub struct D;").is_empty());
}

/// A file of this repository, by its path from there.
fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).expect(path)
}

#[test]
fn the_readmes_program_is_the_one_that_runs_in_qemu() {
    let readme = file("adapters/embedded/README.md");
    let (_, rest) = readme.split_once("```rs\n#![no_std]").expect("a program");
    let (program, _) = rest.split_once("```").expect("its end");
    assert!(file("firmware/cortex-m/src/readme.rs").ends_with(&format!("#![no_std]{program}")));
    let boards = file("xtask/src/firmware/board.rs");
    let (_, line) = boards.split_once("const README: &[&str] = &[\"").expect("what it prints");
    assert!(readme.contains(line.split_once('"').expect("its end").0), "the README says what it prints");
}
