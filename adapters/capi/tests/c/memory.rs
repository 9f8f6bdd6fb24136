//! Out of memory by a limit on the address space: one that the program sets above what it has mapped, and one that is set
//! before the program starts.

use crate::compile::{CC, CXX, Program};
use crate::job::{Job, find};
use crate::{have, library};
use std::path::Path;

fn limited(program: &Path, megabytes: u32) {
    let shared = library::shared();
    Job::new(program).args([megabytes.to_string()]).env("EXPECT_MALLOC", "libc.so").run().passed();
    Job::new(program).args([megabytes.to_string()]).preload(&shared).run().passed();
}

/// Runs a program under `ulimit -v`. The library is preloaded into the program only: the shell keeps glibc's malloc.
fn limited_from_the_start(program: &Path, megabytes: u32) {
    let shell = find("bash").expect("asked for before");
    let script = r#"ulimit -v "$1"; LD_PRELOAD="$2" exec "$3""#;
    let (shared, limit) = (library::shared(), (megabytes << 10).to_string());
    let name = shared.file_name().unwrap_or_default();
    let job = Job::new(&shell).args(["-c", script, "bash", &limit]).args([&shared]).args([program]);
    job.env("EXPECT_MALLOC", name).env("STRICT", "1").run().passed();
}

#[test]
fn limits_of_200_and_64_mib() {
    if have("memory::limits_of_200_and_64_mib", &[CC]) {
        let program = Program::new("memory.c").build();
        limited(&program, 200);
        limited(&program, 64);
    }
}

#[test]
fn limits_before_the_start() {
    if have("memory::limits_before_the_start", &[CC, ("bash", "bash")]) {
        let program = Program::new("memory.c").build();
        limited_from_the_start(&program, 200);
        limited_from_the_start(&program, 64);
    }
}

#[test]
fn new_throws() {
    if have("memory::new_throws", &[CXX]) {
        let program = Program::new("throwing.cpp").build();
        limited(&program, 100);
    }
}

#[test]
fn a_spike_goes_back_by_a_thread() {
    if have("memory::a_spike_goes_back_by_a_thread", &[CC]) {
        let program = Program::new("spike.c").build();
        Job::new(&program).preload(&library::shared()).run().passed();
        Job::new(&program).args(["never"]).preload(&library::shared()).env("TERRACE_BACKGROUND", "0").run().passed();
    }
}
