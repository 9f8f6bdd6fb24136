//! Which tests are to find a mutant, as cargo and nextest take them.
//!
//! Promises upward: [`Selection`] of tests in the words of `docs/features.md`, and the commands that run it.
//! Asks from below: the names of test programs, from `cargo metadata`.

use crate::command::cargo;
use crate::steps::metadata;
use crate::steps::suites::FEATURES;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Seconds for the build of one mutant.
const BUILD: u64 = 300;

/// Which tests run: packages and targets for cargo, names for nextest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    packages: BTreeSet<String>,
    features: Vec<&'static str>,
    targets: BTreeSet<String>,
    /// What nextest runs of them.
    pub names: String,
}

impl Selection {
    /// Of tests that cargo runs.
    /// `programs`: as [`programs`] returns them; what is none is a module of the program `all`.
    pub fn of(tests: &[String], programs: &BTreeSet<String>) -> Self {
        let (mut packages, mut targets, mut names) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for (package, rest) in tests.iter().filter_map(|test| test.split_once('/')) {
            packages.insert(package.to_string());
            let (target, path) = rest.split_once("::").unwrap_or((rest, "*"));
            if target == "*" {
                targets.insert("--tests".to_string());
                names.push(format!("package(={package})"));
                continue;
            }
            let has = |target: &str| programs.contains(&format!("{package}/{target}"));
            let (option, binary, path) = match target {
                "lib" => ("--lib".to_string(), package.to_string(), path.to_string()),
                _ if has(target) => (format!("--test={target}"), format!("{package}::{target}"), path.to_string()),
                _ if has(&format!("bin/{target}")) => {
                    (format!("--bin={target}"), format!("{package}::bin/{target}"), path.to_string())
                }
                _ => ("--test=all".to_string(), format!("{package}::all"), format!("{target}::{path}")),
            };
            targets.insert(option);
            let name = match path.strip_suffix('*') {
                Some("") => String::new(),
                Some(start) => format!(" & test(/^{start}/)"),
                None => format!(" & test(={path})"),
            };
            names.push(format!("(binary_id(={binary}){name})"));
        }
        let here = |feature: &&str| feature.split_once('/').is_some_and(|(package, _)| packages.contains(package));
        let features = FEATURES.split(',').filter(here).collect();
        Self { packages, features, targets, names: names.join(" | ") }
    }

    /// The tests themselves, on lines as they are.
    pub fn tests(&self, tree: &Path) -> Command {
        let mut command = cargo(["nextest", "run"]);
        command.current_dir(tree);
        command.args(self.packages.iter().map(|package| format!("--package={package}")));
        command.args(self.features.iter().map(|feature| format!("--features={feature}")));
        command.args(&self.targets).args(["-E", &self.names]);
        command
    }

    /// The same for mutants.
    pub fn mutants(&self, tree: &Path, out: &Path) -> Command {
        // cargo-mutants would run the packages' own tests on lines as they are, not these.
        let mut command = cargo(["mutants", "--no-config", "--in-place", "--baseline=skip", "--test-tool=nextest"]);
        command.arg(format!("--build-timeout={BUILD}"));
        command.arg("--dir").arg(tree).arg("--output").arg(out);
        command.args(self.packages.iter().map(|package| format!("--test-package={package}")));
        command.args(self.features.iter().map(|feature| format!("--features={feature}")));
        command.args(self.targets.iter().map(|target| format!("--cargo-arg={target}")));
        command
    }
}

/// The programs of the workspace that have tests: `PACKAGE/TARGET` for a file of tests, `PACKAGE/bin/NAME` for another.
pub(super) fn programs() -> Result<BTreeSet<String>, String> {
    let metadata = metadata(&["--no-deps"])?;
    let of = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_string();
    let mut programs = BTreeSet::new();
    for package in of(&metadata["packages"]) {
        programs.extend(of(&package["targets"]).iter().filter_map(|target| match target["kind"][0].as_str()? {
            "test" => Some(format!("{}/{}", name(&package), name(target))),
            "bin" => Some(format!("{}/bin/{}", name(&package), name(target))),
            _ => None,
        }));
    }
    Ok(programs)
}
