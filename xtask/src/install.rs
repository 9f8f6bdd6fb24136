//! Getting what is missing, when the user said `--install`.
//!
//! Promises upward: nothing is installed without `--install`; an `Err` is the sentence printed with the skip.
//! Asks from below: apt-get, rustup, cargo; each may be absent.

use crate::command::{cargo, execute, output_of, works};
use crate::options::Options;
use std::process::Command;

/// Makes sure the cargo subcommand `name` (package `cargo-NAME`) is there.
///
/// # Errors
/// What to install by hand.
pub fn cargo_tool(options: &Options, name: &str) -> Result<(), String> {
    let package = format!("cargo-{name}");
    if works(&package, &[name, "--version"]) || works("cargo", &[name, "--version"]) {
        return Ok(());
    }
    let by_hand = format!("cargo install {package} --locked");
    if !options.install {
        return Err(by_hand);
    }
    let finished = execute(&package, &mut cargo(["install", &package, "--locked"]));
    if finished.success { Ok(()) } else { Err(format!("`{by_hand}` failed here")) }
}

/// Makes sure that a nightly toolchain is there.
///
/// # Errors
/// What to install by hand.
pub fn nightly(options: &Options) -> Result<(), String> {
    if works("cargo", &["+nightly", "--version"]) {
        return Ok(());
    }
    let words = ["toolchain", "install", "nightly", "--profile", "minimal"];
    if options.install && execute("nightly", Command::new("rustup").args(words)).success {
        return Ok(());
    }
    Err("rustup toolchain install nightly".into())
}

/// Installs Debian packages.
///
/// # Errors
/// What to install by hand.
pub fn apt(options: &Options, packages: &[&str]) -> Result<(), String> {
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !options.install {
        return Err(by_hand);
    }
    if !works("apt-get", &["--version"]) {
        return Err(format!("no apt-get here; by hand, what Debian calls {}", packages.join(" ")));
    }
    let update = execute("apt-update", &mut as_root(&["apt-get", "update"]));
    let mut words = vec!["apt-get", "install", "-y", "--no-install-recommends"];
    words.extend(packages);
    // A stale list is good enough when the packages are in it, so only the second one decides.
    if execute("apt-install", &mut as_root(&words)).success {
        return Ok(());
    }
    let why = if update.success { "" } else { " (apt-get update failed too)" };
    Err(format!("`{by_hand}` failed here{why}"))
}

/// The command, through `sudo` unless we are root.
fn as_root(words: &[&str]) -> Command {
    let root = output_of("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.args(["-n", "env"]);
    }
    command.arg("DEBIAN_FRONTEND=noninteractive").args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_unasked() {
        let options = Options::default();
        assert_eq!(apt(&options, &["a", "b"]), Err("apt-get install a b".into()));
        assert_eq!(cargo_tool(&options, "nothing-such"), Err("cargo install cargo-nothing-such --locked".into()));
        assert_eq!(cargo_tool(&options, "clippy"), Ok(()));
    }
}
