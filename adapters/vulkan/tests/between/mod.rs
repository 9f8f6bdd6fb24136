//! A Vulkan library between a test and the machine's own, in C: it lacks or refuses what variables say, and tells some calls.
//!
//! Promises upward: the test runs once more, in a process that loads it; `None` where the machine lacks what that needs.
//! Asks from below: a C compiler; the machine's Vulkan library, which does all the rest.

use std::path::PathBuf;
use std::process::Command;

/// Set in the process that runs the test once more.
pub const CHILD: &str = "TERRACE_TEST_VULKAN_BETWEEN";

/// The path of the machine's library, as the system's loader finds it.
fn real() -> Option<PathBuf> {
    // SAFETY: loads the system's Vulkan library.
    let _loaded = unsafe { ash::Entry::load() }.ok()?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .find_map(|line| line.contains("/libvulkan.so").then(|| line.split_whitespace().last())?)
        .map(PathBuf::from)
}

/// Builds the library in a folder of this process's; returns the folder and the machine's library.
///
/// One that stays is not unloaded: else the machine's own, which it has loaded under the same name, would take its place as soon as
/// no test has a device.
fn build(test: &str, stays: bool) -> Option<(PathBuf, PathBuf)> {
    if cfg!(not(all(target_os = "linux", target_pointer_width = "64"))) {
        return None;
    }
    let real = real()?;
    let folder = std::env::temp_dir().join(format!("terrace-between-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).ok()?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/between/between.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-O1"]).args(stays.then_some("-Wl,-z,nodelete")).arg("-o");
    cc.arg(folder.join("libvulkan.so.1")).arg(source);
    match cc.output() {
        Ok(built) => assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr)),
        Err(_) => return None,
    }
    Some((folder, real))
}

/// The standard output of this test program, run with `arguments` in a process whose Vulkan library differs by `variables`.
///
/// `None`, and a line that says so, where that cannot be done.
pub fn run(test: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let stays = variables.iter().any(|(name, _)| *name == "BETWEEN_ROLE");
    let Some((folder, real)) = build(test, stays) else {
        println!("SKIP {test}: no Vulkan library or no C compiler");
        return None;
    };
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child.args(arguments).arg("--nocapture").env_remove("VK_INSTANCE_LAYERS");
    child.env(CHILD, "1").env("LD_LIBRARY_PATH", &folder).env("BETWEEN_REAL", real).envs(variables.iter().copied());
    let output = child.output().expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = std::fs::remove_dir_all(folder);
    assert!(output.status.success(), "{variables:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}
