//! `check::builds`: what a program builds that asks for one feature, and no more.
//!
//! Promises upward: each package that a feature brings and `[builds]` does not name, and each name that nothing brings.
//! Asks from below: `cargo tree`, `[builds]` in `docs/rules.toml`.

use super::verdict;
use crate::command::cargo;
use crate::rules::{PATH, Rules};
use crate::sources::Source;
use std::collections::BTreeSet;

/// The check.
pub fn check(rules: &Rules, _files: &[Source]) -> Result<(), String> {
    let mut findings = Vec::new();
    for (feature, wanted) in &rules.builds {
        let built = built(feature)?;
        let wanted: BTreeSet<_> = wanted.iter().cloned().collect();
        let brought =
            built.difference(&wanted).map(|name| format!("`{feature}` builds `{name}`, which {PATH} does not name"));
        let gone = wanted.difference(&built).map(|name| format!("{PATH}: `{feature}` does not build `{name}`"));
        findings.extend(brought.chain(gone));
    }
    verdict(findings)
}

/// Names of the packages that `PACKAGE/FEATURE` builds on this machine, its own and its build scripts' included.
fn built(feature: &str) -> Result<BTreeSet<String>, String> {
    let (package, name) =
        feature.split_once('/').ok_or_else(|| format!("{PATH}: `{feature}` is no PACKAGE/FEATURE"))?;
    let mut tree = cargo(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let output =
        tree.args(["--package", package, "--features", name]).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect())
}
