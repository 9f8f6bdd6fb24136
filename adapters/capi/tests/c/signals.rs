//! Signal handlers that allocate, which POSIX does not allow and programs do. The program that jumps out of handlers first runs
//! under glibc, where its handler returns without a jump if it interrupted the allocator, as POSIX requires.

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
