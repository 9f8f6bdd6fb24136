//! `libterrace_malloc.a` linked into programs: with a shared libc, and with everything static. The output of `malloc_stats`
//! shows which malloc a program has.

use crate::compile::{CC, CXX, Program};
use crate::job::{Job, Run};
use crate::{have, library};

const STATIC: [&str; 2] = ["-static", "-DSTATIC_PROGRAM"];

/// Builds a source with the archive and runs it.
fn linked(test: &str, source: &str, flags: &[&str]) -> Option<Run> {
    if !have(test, &[CC, CXX]) {
        return None;
    }
    let archive = library::archive(test)?.display().to_string();
    let name = format!("linked-{}-{source}.out", if flags.is_empty() { "shared" } else { "static" });
    let program = Program::new(source).named(&name).flags(flags).libraries(&[archive]).build();
    Some(Job::new(&program).env("STRICT", "1").run().passed())
}

/// Checks that the program has this library's malloc.
fn is_ours(run: Option<Run>) {
    let Some(run) = run else { return };
    assert!(run.err().to_lowercase().contains(library::STATS_WORD), "another malloc: {}", run.report());
}

#[test]
fn with_a_shared_libc() {
    let test = "linking::with_a_shared_libc";
    is_ours(linked(test, "report.c", &[]));
    linked(test, "interface.c", &[]);
    linked(test, "threads.c", &[]);
}

#[test]
fn with_everything_static() {
    let test = "linking::with_everything_static";
    is_ours(linked(test, "report.c", &STATIC));
    linked(test, "interface.c", &STATIC);
    linked(test, "threads.c", &STATIC);
    linked(test, "fork.c", &STATIC);
}

#[test]
fn cplusplus_with_a_shared_libc() {
    linked("linking::cplusplus_with_a_shared_libc", "new.cpp", &[]);
}

/// A static program has no dynamic linker: `new` must find the C++ library's functions by their weak references.
#[test]
fn cplusplus_with_everything_static() {
    linked("linking::cplusplus_with_everything_static", "new.cpp", &STATIC);
}
