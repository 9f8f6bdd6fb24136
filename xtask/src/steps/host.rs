//! The host allocator where this machine is not: other systems are type-checked, AArch64 runs under qemu-user, and the
//! thread's word is found the other way.
//!
//! Promises upward: `host::TARGET` for each system, `host::aarch64` and `host::dynamic-tls` for the allocator's tests,
//! `host::bench` for those of its benchmark's programs, `host::cuda-TARGET` and `host::metal-TARGET` for devices on systems
//! that have CUDA and Metal, `host::all-TARGET` for what lists the devices of all drivers there.
//! Asks from below: the targets (see `bare`); a cross compiler and qemu-user for AArch64.

use super::bare::{self, Way};
use crate::command::{execute, works};
use crate::install;
use crate::options::Options;
use crate::report::Report;

/// Systems that no machine here has: their files must at least be correct Rust against the real declarations.
const CHECKED: [&str; 3] = ["x86_64-apple-darwin", "aarch64-apple-darwin", "x86_64-pc-windows-gnu"];
const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// Devices on other systems, Jetson's among them. What of Metal runs nowhere here is checked with its example and tests, and with the
/// list of all devices.
const DEVICES: [(&str, &str, &str); 4] = [
    ("cuda", AARCH64, "--package terrace-cuda"),
    ("cuda", "x86_64-pc-windows-gnu", "--package terrace-cuda"),
    ("metal", "aarch64-apple-darwin", "--package terrace-metal --lib --examples --tests"),
    ("all", "aarch64-apple-darwin", "--package terrace --features cuda,metal,opencl,vulkan"),
];
/// Debian's cross compiler, its C library, and the emulator.
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];
/// The tests that need nothing but the allocator.
const TESTS: [&str; 7] =
    ["test", "--package", "terrace-host", "--features", "allocator-api2,track", "--lib", "--tests"];

/// Runs all.
pub fn run(options: &Options, report: &mut Report) {
    for target in CHECKED {
        let name = format!("host::{target}");
        match bare::way(options, target) {
            Ok(way) => report.verdict(&name, check(target, way)),
            Err(missing) => report.skip(&name, &missing),
        }
    }
    match emulator(options).and_then(|()| bare::way(options, AARCH64)) {
        Ok(way) => report.verdict("host::aarch64", aarch64(way)),
        Err(missing) => report.skip("host::aarch64", &missing),
    }
    for (driver, target, words) in DEVICES {
        let name = format!("host::{driver}-{target}");
        match bare::way(options, target) {
            Ok(way) => report.verdict(&name, devices(driver, target, words, way)),
            Err(missing) => report.skip(&name, &missing),
        }
    }
    report.verdict("host::dynamic-tls", dynamic_tls());
    report.verdict("host::bench", bench());
}

fn check(target: &str, way: Way) -> Result<(), String> {
    let words = ["check", "--package", "terrace-host", "--features", "allocator-api2,track"];
    let mut command = way.cargo(&words, "core,alloc");
    command.args(["--target-dir", "target/bare", "--target", target]);
    execute(&format!("host-{target}"), &mut command).verdict()
}

/// A driver's devices on a system that has them; nothing of the driver is needed.
fn devices(driver: &str, target: &str, words: &str, way: Way) -> Result<(), String> {
    let mut command = way.cargo(&["check"], "std,panic_abort");
    command.args(words.split(' ')).args(["--target-dir", "target/bare", "--target", target]);
    execute(&format!("host-{driver}-{target}"), &mut command).verdict()
}

/// What runs a program for AArch64: tests that run themselves once more are told.
const EMULATOR: &str = "qemu-aarch64 -L /usr/aarch64-linux-gnu";

/// Makes sure that programs for AArch64 can be linked and run.
fn emulator(options: &Options) -> Result<(), String> {
    let there = works("qemu-aarch64", &["--version"]) && works("aarch64-linux-gnu-gcc", &["--version"]);
    if there { Ok(()) } else { install::apt(options, &PACKAGES) }
}

/// The allocator's tests on an emulated processor with weaker atomics and another way to thread-local words.
fn aarch64(way: Way) -> Result<(), String> {
    let mut command = way.cargo(&TESTS, "std,panic_abort");
    command
        .args(["--target-dir", "target/aarch64", "--target", AARCH64])
        .env("TERRACE_EMULATED", EMULATOR)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR);
    execute("host-aarch64", &mut command).verdict()
}

/// The tests of the programs that `cargo xtask bench host` runs, which are a workspace of their own.
fn bench() -> Result<(), String> {
    let mut command = crate::command::cargo(["test", "--manifest-path", "benches/host/Cargo.toml"]);
    command.args(["--package", "terrace-host-programs", "--package", "terrace-host-steps"]);
    // One at a time: some look at what the whole process holds.
    command.args(["--target-dir", "target/bench-host", "--", "--test-threads", "1"]);
    execute("host-bench", &mut command).verdict()
}

/// The same tests with the thread's word under a pthread key.
fn dynamic_tls() -> Result<(), String> {
    let mut command = crate::command::cargo(TESTS);
    command.args(["--features", "dynamic-tls", "--target-dir", "target/dynamic-tls"]);
    execute("host-dynamic-tls", &mut command).verdict()
}
