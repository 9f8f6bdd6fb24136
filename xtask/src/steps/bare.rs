//! The core for targets without an operating system.
//!
//! Promises upward: `bare::TARGET` for each target. With rustup's own target where it is there or can be added;
//! otherwise with Debian's compiler, which brings the library's source.
//! Asks from below: rustup; or the Debian packages below, linked as the toolchain `debian`.

use crate::command::{cargo, execute, output_of, works};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use std::process::Command;
use std::sync::OnceLock;

/// Target, and the features it needs: Cortex-M0 has no compare-and-swap, so it takes a critical section.
const TARGETS: [(&str, &str); 5] = [
    ("thumbv6m-none-eabi", "critical-section"),
    ("thumbv7em-none-eabihf", ""),
    ("riscv32imac-unknown-none-elf", ""),
    ("aarch64-unknown-none", ""),
    ("x86_64-unknown-none", ""),
];

const DEBIAN: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// How a target is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The active toolchain has the target.
    Rustup,
    /// Debian's compiler builds the target's library from source.
    Debian,
}

/// Builds each target.
pub fn run(options: &Options, report: &mut Report) {
    for (target, features) in TARGETS {
        let name = format!("bare::{target}");
        match way(options, target) {
            Ok(way) => report.verdict(&name, build(target, features, way)),
            Err(missing) => report.skip(&name, &missing),
        }
    }
}

/// How a target can be built here.
///
/// # Errors
/// What to install by hand.
pub fn way(options: &Options, target: &str) -> Result<Way, String> {
    static DEBIAN_TRIED: OnceLock<Result<Way, String>> = OnceLock::new();
    let installed = output_of("rustup", &["target", "list", "--installed"]).unwrap_or_default();
    if installed.lines().any(|line| line == target) || add(options, target) {
        return Ok(Way::Rustup);
    }
    let way = DEBIAN_TRIED.get_or_init(|| debian_toolchain(options)).clone();
    way.map_err(|missing| format!("rustup target add {target}; or {missing}"))
}

impl Way {
    /// `cargo WORDS..`. `library`: the parts of the standard library that a toolchain without the target builds itself.
    pub fn cargo(self, words: &[&str], library: &str) -> Command {
        if self == Self::Rustup {
            return cargo(words);
        }
        let mut command = cargo(["+debian"]);
        command.args(words).args(["-Z", &format!("build-std={library}")]).env("RUSTC_BOOTSTRAP", "1");
        command
    }
}

/// Asks rustup for the target, where installing was asked for. Some machines cannot get any; that is no failure yet.
pub fn add(options: &Options, target: &str) -> bool {
    options.install
        && execute(&format!("bare-add-{target}"), Command::new("rustup").args(["target", "add", target])).success
}

/// Makes sure that `cargo +debian` works and has the library's source.
fn debian_toolchain(options: &Options) -> Result<Way, String> {
    let linked = || works("cargo", &["+debian", "--version"]);
    if linked() {
        return Ok(Way::Debian);
    }
    let link = "rustup toolchain link debian /usr";
    install::apt(options, &DEBIAN).map_err(|by_hand| format!("{by_hand} && {link}"))?;
    execute("bare-link", Command::new("rustup").args(["toolchain", "link", "debian", "/usr"]));
    if linked() { Ok(Way::Debian) } else { Err(format!("`{link}` failed here")) }
}

fn build(target: &str, features: &str, way: Way) -> Result<(), String> {
    execute(&format!("bare-{target}"), &mut build_command(target, features, way)).verdict()
}

fn build_command(target: &str, features: &str, way: Way) -> Command {
    let mut command = way.cargo(&["build"], "core");
    command.args(["--package", "terrace-core", "--release", "--target-dir", "target/bare", "--target", target]);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debian_builds_the_library_itself() {
        let has = |way| build_command("a", "f", way).get_args().any(|word| word == "build-std=core");
        assert!(has(Way::Debian));
        assert!(!has(Way::Rustup));
        assert!(build_command("a", "f", Way::Rustup).get_args().any(|word| word == "f"));
        assert!(!build_command("a", "", Way::Rustup).get_args().any(|word| word == "--features"));
    }
}
