//! `libterrace_malloc.a` linked into programs: with a shared libc, and with everything static. Whose malloc it is shows in
//! what `malloc_stats` prints.

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

fn whose(run: Option<Run>) {
    let Some(run) = run else { return };
    assert!(run.err().to_lowercase().contains(library::STATS_WORD), "another malloc: {}", run.report());
}

#[test]
fn with_a_shared_libc() {
    let test = "linking::with_a_shared_libc";
    whose(linked(test, "report.c", &[]));
    linked(test, "interface.c", &[]);
    linked(test, "threads.c", &[]);
}

#[test]
fn with_everything_static() {
    let test = "linking::with_everything_static";
    whose(linked(test, "report.c", &STATIC));
    linked(test, "interface.c", &STATIC);
    linked(test, "threads.c", &STATIC);
    linked(test, "fork.c", &STATIC);
}

#[test]
fn cplusplus_with_a_shared_libc() {
    linked("linking::cplusplus_with_a_shared_libc", "new.cpp", &[]);
}

/// What `new` throws by is in an archive too: nothing may be looked up by name while the program runs.
#[test]
fn cplusplus_with_everything_static() {
    linked("linking::cplusplus_with_everything_static", "new.cpp", &STATIC);
}
