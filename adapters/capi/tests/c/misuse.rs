//! Wrong frees: the library prints one line to standard error, and the process ends or goes on. It never goes on silently.

use crate::compile::{CC, Program};
use crate::job::Job;
use crate::{have, library};
use std::os::unix::process::ExitStatusExt;

/// The beginning of every line that the library prints.
const START: &str = "terrace: ";
/// SIGABRT.
const ABORT: i32 = 6;

/// Cases of `misuse.c` that free pointers which never were blocks.
const FOREIGN: [&str; 8] =
    ["stack", "static", "mapped", "wild", "realloc-stack", "unaligned", "inside", "inside-large"];
/// Cases that free a block twice: the library finds out at once, or when the block returns to its span.
const TWICE: [&str; 4] = ["twice", "twice-small", "twice-large", "twice-elsewhere"];

fn is_noticed(kind: &str) {
    let program = Program::new("misuse.c").build();
    let run = Job::new(&program).args([kind]).preload(&library::shared()).run();
    let said = run.err().lines().filter(|line| line.starts_with(START)).count();
    let went_on = run.status.success() && run.out().ends_with("after\n");
    assert!(run.out().starts_with("before\n"), "{kind}: {}", run.report());
    assert_eq!(said, 1, "{kind}: one line that says what is wrong: {}", run.report());
    assert!(went_on || run.status.signal() == Some(ABORT), "{kind}: {}", run.report());
}

#[test]
fn no_mistake_no_line() {
    if have("misuse::no_mistake_no_line", &[CC]) {
        let program = Program::new("misuse.c").build();
        let run = Job::new(&program).args(["none"]).preload(&library::shared()).run().succeeded();
        assert!(run.stderr.is_empty() && run.out() == "before\nafter\n", "{}", run.report());
    }
}

#[test]
fn foreign_pointers() {
    if have("misuse::foreign_pointers", &[CC]) {
        FOREIGN.iter().for_each(|kind| is_noticed(kind));
    }
}

#[test]
fn double_frees() {
    if have("misuse::double_frees", &[CC]) {
        TWICE.iter().for_each(|kind| is_noticed(kind));
    }
}
