//! What is live at the end: `TERRACE_DEBUG=leaks` lists it, and with `sites` says which code allocated it.

use crate::compile::{CC, Program};
use crate::job::Job;
use crate::{have, library};
use std::path::Path;
use std::process::Command;

/// What the program prints on standard error.
fn said(program: &Path, words: &str) -> String {
    Job::new(program).preload(&library::shared()).env("TERRACE_DEBUG", words).run().passed().err()
}

/// Bytes and blocks of each group.
fn groups(text: &str) -> Vec<(u64, u64)> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    text.lines().filter(|line| line.ends_with("host memory")).filter_map(row).collect()
}

#[test]
fn groups_of_lost_blocks_are_listed() {
    if !have("leaks::groups_of_lost_blocks_are_listed", &[CC]) {
        return;
    }
    let program = Program::new("leaks.c").libraries(&["-lpthread"]).build();
    let text = said(&program, "leaks");
    assert!(text.starts_with("terrace: still live at the end: the process's heap: "), "{text}");
    // 200 of two threads, of a size class of 112 bytes; and one of 3 MiB.
    assert!(groups(&text).contains(&(400 * 112, 400)) && groups(&text).contains(&(3 << 20, 1)), "{text}");
}

#[test]
fn call_stacks_name_the_functions_that_lost_them() {
    if !have("leaks::call_stacks_name_the_functions_that_lost_them", &[CC, ("addr2line", "binutils")]) {
        return;
    }
    let program = Program::new("leaks.c")
        .named("leaks-frames")
        .flags(&["-g", "-fno-omit-frame-pointer"])
        .libraries(&["-lpthread"])
        .build();
    let text = said(&program, "sites");
    let mut named = Vec::new();
    for group in text.split("host memory").skip(1) {
        let frames =
            group.lines().filter_map(|line| line.trim().strip_prefix("at ")?.split_once('+')?.1.split_once(" ("));
        let own = frames.filter(|(_, file)| file.trim_end_matches(')') == program.to_string_lossy());
        let names = own.map(|(offset, _)| function(&program, offset)).collect::<Vec<_>>();
        named.push(names.join(" "));
    }
    for stack in ["loses_small other main", "loses_large main"] {
        assert!(named.iter().any(|names| names == stack), "{stack}: {named:?}\n{text}");
    }
    // The other thread's have no `main`.
    assert!(named.iter().any(|names| names == "loses_small other"), "{named:?}\n{text}");
}

/// The function that has an address of the program.
fn function(program: &Path, offset: &str) -> String {
    let output = Command::new("addr2line").arg("-f").arg("-e").arg(program).arg(offset).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
