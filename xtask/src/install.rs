//! Getting what is missing, when the user said `--install`.
//!
//! Promises upward: nothing is installed without `--install`; an `Err` is the sentence printed with the skip.
//! Asks from below: apt-get, rustup, cargo; each may be absent.

use crate::command::{cargo, execute, output_of, works};
use crate::options::Options;
use std::path::PathBuf;
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

/// The folder of LLVM's tools of the compiler's own version: the toolchain's component, or Debian's packages.
///
/// # Errors
/// What to install by hand.
pub fn llvm_tools(options: &Options) -> Result<PathBuf, String> {
    let component = "rustup component add llvm-tools";
    if options.install {
        execute("llvm-tools", Command::new("rustup").args(["component", "add", "llvm-tools"]));
    }
    let libraries = output_of("rustc", &["--print", "target-libdir"]).ok_or("rustc is not here")?;
    let folder = PathBuf::from(libraries.trim()).join("../bin");
    if folder.join("llvm-profdata").exists() {
        return Ok(folder);
    }
    let version = output_of("rustc", &["-vV"]).unwrap_or_default();
    let major = llvm_major(&version).ok_or("rustc does not say its LLVM version")?;
    let folder = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
    if !folder.join("llvm-profdata").exists() {
        apt(options, &[&format!("llvm-{major}")]).map_err(|by_hand| format!("{component}; or {by_hand}"))?;
    }
    Ok(folder)
}

/// The `21` of `LLVM version: 21.1.2`.
fn llvm_major(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
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

    #[test]
    fn llvm_version_is_read() {
        assert_eq!(llvm_major("rustc 1.95.0\nhost: x\nLLVM version: 21.1.2\n"), Some("21"));
        assert_eq!(llvm_major("rustc 1.95.0\n"), None);
    }
}
