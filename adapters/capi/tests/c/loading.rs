//! Libraries that come and go: plugins in a program with ours preloaded, and ours as a plugin of a program that keeps
//! its own malloc.

use crate::compile::{CC, Program, plugin};
use crate::job::Job;
use crate::{have, library};

#[test]
fn plugins_come_and_go() {
    if have("loading::plugins_come_and_go", &[CC]) {
        let (program, plugin) = (Program::new("loading.c").build(), plugin("plugin.so", &[]));
        Job::new(&program).args([&plugin]).args(["100"]).env("EXPECT_MALLOC", "libc.so").run().passed();
        Job::new(&program).args([&plugin]).args(["100"]).preload(&library::shared()).run().passed();
    }
}

/// After a plugin that took 1024 bytes of the 1664 that glibc keeps for thread variables of libraries loaded late.
#[test]
fn loaded_beside_another_malloc() {
    if have("loading::loaded_beside_another_malloc", &[CC]) {
        let (program, greedy) = (Program::new("by_name.c").build(), plugin("greedy.so", &["-DEATER=1024"]));
        let arguments = [library::shared(), greedy];
        Job::new(&program).args(&arguments).env("EXPECT_MALLOC", "libc.so").run().passed();
    }
}
