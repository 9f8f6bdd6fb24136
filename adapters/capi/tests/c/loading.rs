//! Libraries that are loaded and unloaded: plugins of a program with this library preloaded, and this library as a plugin of
//! a program that keeps its own malloc.

use crate::compile::{CC, Program, plugin};
use crate::job::{Job, fresh_folder};
use crate::{have, library};

#[test]
fn plugins_come_and_go() {
    if have("loading::plugins_come_and_go", &[CC]) {
        let (program, plugin) = (Program::new("loading.c").build(), plugin("plugin.so", &[]));
        Job::new(&program).args([&plugin]).args(["100"]).env("EXPECT_MALLOC", "libc.so").run().passed();
        Job::new(&program).args([&plugin]).args(["100"]).preload(&library::shared()).run().passed();
    }
}

/// Behind a plugin that takes 1024 of the 1664 bytes that glibc reserves for thread-local variables of libraries loaded late.
#[test]
fn loaded_beside_another_malloc() {
    if have("loading::loaded_beside_another_malloc", &[CC]) {
        let (program, greedy) = (Program::new("by_name.c").build(), plugin("greedy.so", &["-DEATER=1024"]));
        let arguments = [library::shared(), greedy];
        Job::new(&program).args(&arguments).env("EXPECT_MALLOC", "libc.so").run().passed();
    }
}

/// With `RTLD_DEEPBIND` the opened library would call the C library's malloc, and its blocks would reach this library's `free`.
/// Only the opener's RUNPATH leads to the opened library: the C library finds the opener by the return address of `dlopen`.
#[test]
fn bound_past_the_program() {
    if !have("loading::bound_past_the_program", &[CC]) {
        return;
    }
    let folder = fresh_folder("bound-past");
    std::fs::rename(plugin("bound-past.so", &[]), folder.join("inner.so")).expect("the test's own file");
    let flags = ["-shared", "-fPIC", "-DOPENER", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/bound-past"];
    let opener = Program::new("deepbind.c").named("opener.so").flags(&flags).build();
    let program = Program::new("deepbind.c").build();
    let job = || Job::new(&program).args([&opener]);
    job().env("EXPECT_MALLOC", "libc.so").run().passed();
    job().preload(&library::shared()).run().passed();
    let run = job().preload(&library::shared()).env("TERRACE_DEEPBIND", "1").run();
    assert!(!run.status.success() && run.err().contains("terrace: "), "the flag had no effect: {}", run.report());
}
