//! A machine without a driver: what a program is told. Skipped by name where there is one.

use std::process::Command;
use terrace_cuda::{Cuda, OpenError, OpenErrorReason};

#[allow(dead_code, reason = "its `main` is the example's")]
#[path = "../examples/kernel.rs"]
mod kernel;

/// Set in the child, which opens a device and prints what came of it.
const CHILD: &str = "TERRACE_TEST_CUDA_ABSENT";

fn opened() -> Result<Cuda, OpenError> {
    Cuda::open(0)
}

/// Whether this machine has a driver: these tests are about those that have none.
fn has_driver(test: &str) -> bool {
    let there = !matches!(Cuda::count(), Err(OpenError { reason: OpenErrorReason::NoLibrary { .. }, .. }));
    if there {
        println!("SKIP {test}: this machine has a CUDA driver");
    }
    there
}

#[test]
fn no_library_is_an_error_that_says_what_to_install() {
    if has_driver("no_library_is_an_error_that_says_what_to_install") {
        return;
    }
    let error = opened().expect_err("there is no driver");
    let OpenErrorReason::NoLibrary { searched } = &error.reason else { panic!("{error:?}") };
    assert!(searched.iter().any(|name| name.contains("cuda")), "{searched:?}");
    let text = error.to_string();
    for name in &searched[..3] {
        assert!(text.contains(name), "{name} in {text}");
    }
    assert!(text.contains("install NVIDIA's driver"), "{text}");
    // The answer holds: asked again, it is the same.
    assert_eq!(opened().expect_err("there is no driver"), error);
    assert_eq!(Cuda::count().expect_err("there is no driver"), error);
}

#[test]
fn the_kernel_example_says_so_in_a_sentence() {
    if has_driver("the_kernel_example_says_so_in_a_sentence") {
        return;
    }
    let mut said = Vec::new();
    kernel::run(&mut said).expect("it ends well");
    let said = String::from_utf8(said).expect("text");
    assert!(said.starts_with("No kernel was launched: no CUDA driver: there is no libcuda.so"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_process_with_an_empty_library_path_ends_well() {
    const TEST: &str = "a_process_with_an_empty_library_path_ends_well";
    if std::env::var_os(CHILD).is_some() {
        println!("told: {}", opened().expect_err("there is no driver"));
        return;
    }
    if has_driver(TEST) {
        return;
    }
    let empty = std::env::temp_dir().join(format!("terrace-no-cuda-{}", std::process::id()));
    std::fs::create_dir_all(&empty).expect("a folder of our own");
    let output = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", TEST, "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", &empty)
        .output()
        .expect("our own program runs");
    std::fs::remove_dir_all(&empty).expect("it is empty");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("told: no CUDA driver: there is no libcuda.so"), "{text}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
