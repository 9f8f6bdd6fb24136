//! Builds the Python package as a wheel, installs it with pip, and uses it over the simulated driver.
//!
//! PyTorch itself is not needed: `tests/python/torch` makes the calls that it makes.

use crate::common::{driver, folder, library, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

fn python() -> Command {
    let mut command = Command::new("python3");
    command.arg("-B");
    for name in [
        "PYTHONPATH",
        "TERRACE_TORCH_LIBRARY",
        "TERRACE_TORCH_CAPACITY",
        "TERRACE_TORCH_FRACTION",
        "TERRACE_TORCH_ORIGIN",
    ] {
        command.env_remove(name);
    }
    command
}

/// Whether this machine has a Python that can install wheels.
fn can_run(test: &str) -> bool {
    let can = python().args(["-m", "pip", "--version"]).output().is_ok_and(|output| output.status.success());
    if !can {
        println!("SKIP {test}: needs python3 with pip");
    }
    can
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the wheel; returns its path.
fn build(to: &Path) -> PathBuf {
    let mut command = python();
    command.arg(here().join("python/build_wheel.py")).arg("--library").arg(library()).arg("--out").arg(to);
    let output = succeed(&mut command);
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}

#[test]
fn the_wheel_installs_and_works() {
    if !can_run("the_wheel_installs_and_works") {
        return;
    }
    let wheel = build(&folder().join("wheel"));
    let installed = folder().join("installed");
    let mut pip = python();
    // No registry is queried: the wheel has no dependencies.
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", "--target"]);
    succeed(pip.arg(&installed).arg(&wheel));
    assert!(installed.join("terrace_torch-0.1.0.dist-info/METADATA").is_file(), "a package with a name and a version");
    for torch in [None, Some(here().join("tests/python"))] {
        let mut check = python();
        check.arg(here().join("tests/python/check.py")).arg(driver()).arg(folder()).arg(&installed);
        // Not in the folder of `check.py`, which has the stand-in for `torch`.
        succeed(check.args(torch).env("PYTHONSAFEPATH", "1").current_dir(folder()));
    }
}

#[test]
fn the_same_files_give_the_same_wheel() {
    if !can_run("the_same_files_give_the_same_wheel") {
        return;
    }
    let wheels = ["first", "second"].map(|name| build(&folder().join(name)));
    let bytes =
        wheels.each_ref().map(|wheel| std::fs::read(wheel).unwrap_or_else(|error| panic!("{wheel:?}: {error}")));
    assert_eq!(wheels[0].file_name(), wheels[1].file_name());
    assert!(bytes[0] == bytes[1], "{wheels:?} differ");
}

#[test]
fn what_is_no_library_makes_no_wheel() {
    if !can_run("what_is_no_library_makes_no_wheel") {
        return;
    }
    let mut command = python();
    command.arg(here().join("python/build_wheel.py")).arg("--library").arg(here().join("Cargo.toml"));
    let output = command.output().unwrap_or_else(|error| panic!("python3: {error}"));
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("no 64-bit ELF file"));
}
