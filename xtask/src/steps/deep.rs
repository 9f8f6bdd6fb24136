//! Coverage, which takes too long for every run: only with `--all`, or by name.
//!
//! Promises upward: `coverage::lines` holds at 90 % of the library's lines (row Q2).
//! Asks from below: cargo-llvm-cov with LLVM's tools; each may be absent.

use crate::command::{cargo, execute, output_of};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use std::path::PathBuf;

/// Percent of the library's lines that tests must reach.
const COVERAGE_PERCENT: &str = "90";

/// Line coverage of the packages a user links: everything but commands, tests and models of peers.
pub fn coverage(options: &Options, report: &mut Report) {
    let name = "coverage::lines";
    let tools = match install::cargo_tool(options, "llvm-cov").and_then(|()| llvm_tools(options)) {
        Ok(tools) => tools,
        Err(missing) => return report.skip(name, &missing),
    };
    let mut command = cargo(["llvm-cov", "test", "--workspace", "--exclude", "xtask", "--exclude", "terrace-benches"]);
    command.args([
        "--ignore-filename-regex",
        "(^|/)(xtask|tests|benches|cli)/",
        "--fail-under-lines",
        COVERAGE_PERCENT,
    ]);
    for (variable, path) in tools {
        command.env(variable, path);
    }
    report.verdict(name, execute("coverage", &mut command).verdict());
}

/// LLVM's tools of the compiler's own version: the toolchain's component, or Debian's packages. The environment
/// that leads cargo-llvm-cov to them.
pub fn llvm_tools(options: &Options) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let component = "rustup component add llvm-tools";
    if options.install {
        execute("llvm-tools", std::process::Command::new("rustup").args(["component", "add", "llvm-tools"]));
    }
    let sysroot = output_of("rustc", &["--print", "target-libdir"]).ok_or("rustc is not here")?;
    if PathBuf::from(sysroot.trim()).join("../bin/llvm-profdata").exists() {
        return Ok(Vec::new());
    }
    let version = output_of("rustc", &["-vV"]).unwrap_or_default();
    let major = llvm_major(&version).ok_or("rustc does not say its LLVM version")?;
    let folder = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
    if !folder.join("llvm-profdata").exists() {
        install::apt(options, &[&format!("llvm-{major}")]).map_err(|by_hand| format!("{component}; or {by_hand}"))?;
    }
    Ok(vec![("LLVM_COV", folder.join("llvm-cov")), ("LLVM_PROFDATA", folder.join("llvm-profdata"))])
}

/// The `21` of `LLVM version: 21.1.2`.
fn llvm_major(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvm_version_is_read() {
        assert_eq!(llvm_major("rustc 1.95.0\nhost: x\nLLVM version: 21.1.2\n"), Some("21"));
        assert_eq!(llvm_major("rustc 1.95.0\n"), None);
    }
}
