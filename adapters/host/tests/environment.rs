//! Settings of a Rust program by environment variables.
#![cfg(target_os = "linux")]

use std::process::Command;
use terrace_host::Global;

#[global_allocator]
static A: Global = Global::new();

/// What this very program prints on standard error when it runs no test, under a variable.
fn said(name: &str, value: &str) -> String {
    said_by("no such test", name, value)
}

/// As [`said`], when it runs one test.
fn said_by(test: &str, name: &str, value: &str) -> String {
    // A test on an emulated processor starts the program on the emulator too.
    let emulator = std::env::var("TERRACE_EMULATED").unwrap_or_default();
    let program = std::env::current_exe().expect("a path").into_os_string();
    let mut words = emulator.split_whitespace().map(Into::into).chain([program]);
    let mut command = Command::new(words.next().expect("the program, at least"));
    let output = command.args(words).args(["--exact", test]).env(name, value).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn statistics_are_printed_at_the_end() {
    let text = said("TERRACE_STATS", "1");
    assert!(text.starts_with("terrace: ") && text.lines().count() == 1 && text.contains(" KiB cached by "), "{text}");
    assert_eq!(said("TERRACE_STATS", "0"), "");
    assert!(said("TERRACE_DEBUG", "check,stats").contains(" KiB cached by "));
    assert_eq!(said("TERRACE_DEBUG", "check"), "");
    assert_eq!(
        said("TERRACE_DEBUG", "stat"),
        "terrace: TERRACE_DEBUG=stat: TERRACE_DEBUG takes off, all, or with commas check, stats, leaks or sites; it stays as it was\n"
    );
}

/// What the test after this one looks for.
#[test]
fn a_block_is_lost() {
    (0..std::hint::black_box(3)).for_each(|_| std::mem::forget(std::hint::black_box(vec![1u8; 4096])));
}

#[test]
fn what_is_live_is_listed_at_the_end() {
    if !cfg!(feature = "track") {
        let why = "terrace: TERRACE_DEBUG: leaks and sites need the feature `track` of terrace-host\n";
        return assert_eq!([said("TERRACE_DEBUG", "leaks"), said("TERRACE_DEBUG", "sites")], [why, why]);
    }
    let [leaks, sites] = ["leaks", "sites"].map(|word| said_by("a_block_is_lost", "TERRACE_DEBUG", word));
    for text in [&leaks, &sites] {
        let mut lines = text.lines();
        assert!(
            lines.next().is_some_and(|first| first.starts_with("terrace: still live at the end: the process's heap: "))
        );
        assert!(lines.next().is_some_and(|titles| titles.contains("blocks")), "{text}");
        let lost = |line: &str| line.split_whitespace().take(2).eq(["12288", "3"]) && line.ends_with("host memory");
        assert!(lines.any(lost), "{text}");
    }
    // Where this runs on an emulated processor, or without frame pointers, the first frame is all there is.
    assert!(!leaks.contains("   at ") && sites.contains("   at "), "{leaks}{sites}");
}

/// A program whose structures agree prints nothing; the unit test of `check` breaks some.
#[test]
fn every_structure_is_checked_at_the_end() {
    assert_eq!(said("TERRACE_CHECK", "1"), "");
    assert_eq!(
        said("TERRACE_CHECK", "yes"),
        "terrace: TERRACE_CHECK=yes: TERRACE_CHECK takes 0 or 1; it stays as it was\n"
    );
}

#[test]
fn a_misspelt_name_is_told_once_and_names_of_others_are_left_alone() {
    assert_eq!(said("TERRACE_LIMT", "2G"), "terrace: TERRACE_LIMT is no setting; TERRACE_LIMIT is\n");
    assert_eq!(
        said("TERRACE_PURGE_DELAYS", "1"),
        "terrace: TERRACE_PURGE_DELAYS is no setting; TERRACE_PURGE_DELAY is\n"
    );
    assert_eq!(said("TERRACE_TRACES", "/"), "");
    assert_eq!(said("TERRACE_STRATEGY", "pool"), "");
}
