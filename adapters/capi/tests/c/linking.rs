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
    whose(linked("linking::with_a_shared_libc", "report.c", &[]));
    linked("linking::with_a_shared_libc", "interface.c", &[]);
    linked("linking::with_a_shared_libc", "new.cpp", &[]);
    linked("linking::with_a_shared_libc", "threads.c", &[]);
}

#[test]
fn with_everything_static() {
    whose(linked("linking::with_everything_static", "report.c", &STATIC));
    linked("linking::with_everything_static", "interface.c", &STATIC);
    linked("linking::with_everything_static", "new.cpp", &STATIC);
    linked("linking::with_everything_static", "threads.c", &STATIC);
    linked("linking::with_everything_static", "fork.c", &STATIC);
}
