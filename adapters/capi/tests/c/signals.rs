//! Handlers of signals that allocate, which POSIX does not allow and programs do. A program that jumps
//! out of handlers is first tried out under glibc in the way that is allowed: it stays when it interrupted the allocator.

use crate::compile::{CC, Program};
use crate::job::Job;
use crate::{have, library};

#[test]
fn storm() {
    if have("signals::storm", &[CC]) {
        let program = Program::new("signals.c").build();
        Job::new(&program).args(["40000"]).preload(&library::shared()).run().passed();
    }
}

#[test]
fn handlers_that_jump_out() {
    if have("signals::handlers_that_jump_out", &[CC]) {
        let program = Program::new("jumps.c").build();
        Job::new(&program).args(["1000", "outside"]).run().passed();
        Job::new(&program).args(["5000", "outside"]).preload(&library::shared()).run().passed();
    }
}
