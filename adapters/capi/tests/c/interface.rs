//! The whole C and C++ interface against its documented results: with glibc's malloc, which shows that the checks are right,
//! and with this library.

use crate::compile::{CC, CXX, Program};
use crate::job::{Job, Run};
use crate::{have, library};

/// Runs a program under both. It must print the same lines, but for the "strict" ones of this library.
fn under_both(source: &str, arguments: &[&str]) -> [Run; 2] {
    let program = Program::new(source).build();
    let glibc = Job::new(&program).args(arguments).env("EXPECT_MALLOC", "libc.so").run().passed();
    let ours = Job::new(&program).args(arguments).preload(&library::shared()).run().passed();
    let text = ours.out();
    let common = text.lines().filter(|line| !line.starts_with("ok: strict")).map(|line| format!("{line}\n"));
    assert_eq!(common.collect::<String>(), glibc.out(), "{source}");
    [glibc, ours]
}

#[test]
fn documented_results() {
    if have("interface::documented_results", &[CC]) {
        let [glibc, _] = under_both("interface.c", &[]);
        assert!(glibc.out().lines().count() > 25, "{}", glibc.report());
    }
}

#[test]
fn sizes_beyond_what_can_be() {
    if have("interface::sizes_beyond_what_can_be", &[CC]) {
        under_both("too_large.c", &[]);
    }
}

#[test]
fn contents_of_blocks() {
    if have("interface::contents_of_blocks", &[CC]) {
        under_both("shadow.c", &["1000000"]);
    }
}

#[test]
fn what_it_tells_about_itself() {
    if have("interface::what_it_tells_about_itself", &[CC]) {
        for run in under_both("report.c", &[]) {
            let text = run.err();
            let (_, stats) = text.split_once("-- malloc_stats:\n").expect("the line before malloc_stats");
            assert!(stats.lines().count() >= 1, "malloc_stats printed nothing: {}", run.report());
        }
    }
}

#[test]
fn operator_new_and_delete() {
    if have("interface::operator_new_and_delete", &[CXX]) {
        under_both("new.cpp", &[]);
    }
}
