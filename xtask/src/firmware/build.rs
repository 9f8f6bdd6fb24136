//! Building the programs.
//!
//! Promises upward: everything that is built lies under `target/firmware`.
//! Asks from below: cargo with the target.

use super::board::Board;
use super::elf::Program;
use crate::command::{cargo, execute, root};
use crate::steps::bare::Way;
use std::path::PathBuf;
use std::process::Command;

fn command(way: Way, what: &str, package: &str, target: &str, profile: &str) -> Command {
    let mut command = way.cargo(&[what], "core,alloc");
    command.args(["--manifest-path", "firmware/Cargo.toml", "--target-dir", "target/firmware"]);
    command.args(["--package", &format!("firmware-{package}"), "--target", target, "--profile", profile]);
    command
}

/// Builds one package for a target. Returns the folder of its programs.
///
/// # Errors
/// What the compiler says.
pub fn build(package: &str, target: &str, way: Way, profile: &str, features: &[&str]) -> Result<PathBuf, String> {
    let mut command = command(way, "build", package, target, profile);
    features.iter().for_each(|feature| {
        command.args(["--features", feature]);
    });
    execute(&format!("firmware-{package}-{target}-{profile}"), &mut command).verdict()?;
    Ok(root().join("target/firmware").join(target).join(profile))
}

/// Builds the program that counts by itself. Returns where it is.
///
/// # Errors
/// What the compiler says.
pub fn counted(board: &Board, way: Way) -> Result<PathBuf, String> {
    let folder = build(board.package, board.target, way, "release", &["counted"])?;
    Ok(folder.join(format!("{}-counted", board.package)))
}

/// Bytes that a heap's three functions take, built for size.
///
/// # Errors
/// What the compiler says.
pub fn weigh(board: &Board, way: Way, heap: &str) -> Result<u64, String> {
    let features: &[&str] = if heap == "fast" { &[] } else { &[heap] };
    let folder = build("text", board.target, way, "size", features)?;
    Ok(Program::read(&folder.join("text"))?.text)
}

/// Clippy, for one package and what every program uses. Debian's compiler comes without.
///
/// # Errors
/// What it says.
pub fn clippy(package: &str, target: &str, way: Way, features: &[&str]) -> Result<(), String> {
    if way != Way::Rustup {
        return Ok(());
    }
    let mut command = command(way, "clippy", package, target, "release");
    features.iter().for_each(|feature| {
        command.args(["--package", feature, "--features", &format!("firmware-{package}/{feature}")]);
    });
    command.args(["--package", "exercise", "--package", "measure", "--", "-D", "warnings"]);
    execute(&format!("firmware-clippy-{package}-{target}"), &mut command).verdict()
}

/// The format of packages.
///
/// # Errors
/// What is to be changed.
pub fn format(packages: &[&str]) -> Result<(), String> {
    let mut command = cargo(["fmt", "--manifest-path", "firmware/Cargo.toml", "--check"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.args(["--", "--color", "never"]);
    execute("firmware-fmt", &mut command).verdict()
}
