//! `check::licences`: every dependency may be used under a licence of the list.
//!
//! Promises upward: each package whose licence expression the list does not satisfy.
//! Asks from below: `cargo metadata`, `[licences]` in `docs/rules.toml`.

use super::verdict;
use crate::command::root;
use crate::rules::Rules;
use crate::sources::Source;
use crate::steps::metadata;
use spdx::{Expression, LicenseReq, ParseMode};

/// The check: the workspace and the fuzz targets, with all features.
pub fn check(rules: &Rules, _files: &[Source]) -> Result<(), String> {
    let allowed = |name: &str| rules.licences.contains_key(name);
    let mut findings = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        if !root().join(manifest).exists() {
            continue;
        }
        let metadata = metadata(&["--all-features", "--manifest-path", manifest])?;
        for package in
            metadata["packages"].as_array().into_iter().flatten().filter(|package| !package["source"].is_null())
        {
            let licence = package["license"].as_str().unwrap_or("none stated");
            if !satisfied(licence, &allowed) {
                findings.push(format!("{} {}: {licence}", package["name"], package["version"]));
            }
        }
    }
    findings.sort();
    findings.dedup();
    verdict(findings)
}

/// Whether an SPDX expression is satisfied by licences that are `allowed`. `/` is the old way to write `OR`; an
/// exception (`WITH`) only grants more, so the licence before it decides.
fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let one = |licence: &LicenseReq| licence.license.id().is_some_and(|id| allowed(id.name));
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|parsed| parsed.evaluate(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(expression: &str) -> bool {
        satisfied(expression, &|name| matches!(name, "MIT" | "Zlib" | "Apache-2.0"))
    }

    #[test]
    fn expressions_that_the_list_satisfies() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-2.0",
            "(MIT OR GPL-3.0) AND Zlib",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(holds(good), "{good}");
        }
    }

    #[test]
    fn expressions_that_it_does_not() {
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", "", "none stated", "(MIT", "MIT Zlib"] {
            assert!(!holds(bad), "{bad}");
        }
    }
}
