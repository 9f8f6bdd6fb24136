//! Machines without HIP, or with a library that is broken or of the wrong kind: what a program is told.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;
use terrace_cuda::OpenErrorReason;
use terrace_hip::Hip;

/// Set in the child, which opens a device and prints what came of it.
const CHILD: &str = "TERRACE_TEST_HIP_ABSENT";

/// What a process is told that finds this file under the library's name, or no file.
fn told(test: &str, library: Option<&Path>) -> String {
    let folder = tempfile::tempdir().expect("a folder of our own");
    if let Some(library) = library {
        std::fs::copy(library, folder.path().join("libamdhip64.so")).expect("a copy");
    }
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// In the child: prints what opening told. True there.
fn is_child() -> bool {
    let child = std::env::var_os(CHILD).is_some();
    if child {
        let error = Hip::open(0).expect_err("there is no HIP");
        assert_eq!(Hip::count().expect_err("the answer holds"), error);
        println!("told: {error}");
    }
    child
}

/// Whether this machine has HIP: these tests are about those that have none.
fn has_hip(test: &str) -> bool {
    let there = !matches!(Hip::count(), Err(error) if matches!(error.reason, OpenErrorReason::NoLibrary { .. }));
    if there {
        println!("SKIP {test}: this machine has HIP");
    }
    there
}

#[test]
fn no_library_is_an_error_that_says_what_to_install() {
    const TEST: &str = "no_library_is_an_error_that_says_what_to_install";
    if is_child() || has_hip(TEST) {
        return;
    }
    let text = told(TEST, None);
    for part in ["no ROCm driver: there is no libamdhip64.so", "install AMD's ROCm", "/dev/kfd", "the host backend"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_file_that_is_no_library_is_told_with_the_loader_s_words() {
    const TEST: &str = "a_file_that_is_no_library_is_told_with_the_loader_s_words";
    if is_child() || has_hip(TEST) {
        return;
    }
    let text = told(TEST, Some(Path::new("/etc/passwd")));
    assert!(text.contains("libamdhip64.so that loads (") && text.contains("invalid ELF header"), "{text}");
}

#[test]
fn a_library_without_hip_s_functions_is_told_by_the_first_that_is_missing() {
    const TEST: &str = "a_library_without_hip_s_functions_is_told_by_the_first_that_is_missing";
    if is_child() || has_hip(TEST) {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux says what is loaded");
    let other = maps.split_whitespace().find(|path| path.contains("libgcc_s")).expect("a library that each test loads");
    let text = told(TEST, Some(Path::new(other)));
    assert!(text.contains("has no function hipInit, which came with ROCm"), "{text}");
}
