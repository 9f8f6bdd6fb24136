//! Threads and processes: short-lived threads, frees by other threads, destructors of ending threads, forks under load.

use crate::compile::{CC, CXX, Program};
use crate::job::Job;
use crate::{have, library, number};

#[test]
fn churn_rings_and_key_destructors() {
    if have("threads::churn_rings_and_key_destructors", &[CC]) {
        let program = Program::new("threads.c").build();
        Job::new(&program).args(["10000"]).preload(&library::shared()).run().passed();
    }
}

#[test]
fn thread_local_destructors_free() {
    if have("threads::thread_local_destructors_free", &[CXX]) {
        let program = Program::new("thread_local.cpp").build();
        Job::new(&program).preload(&library::shared()).run().passed();
    }
}

/// An alarm kills a child that hangs after 20 s; the program counts those, and stops after five.
#[test]
fn forks_under_load() {
    if have("threads::forks_under_load", &[CC]) {
        let forks = number("TERRACE_FORKS", 300);
        let program = Program::new("fork.c").build();
        let seconds = 300 + u64::from(forks);
        Job::new(&program).args([forks.to_string()]).preload(&library::shared()).seconds(seconds).run().passed();
    }
}
