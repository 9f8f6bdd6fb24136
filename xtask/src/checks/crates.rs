//! `check::crates`: which package of the project may depend on which.
//!
//! Promises upward: every dependency (also of tests and build scripts) that the table does not name.
//! Asks from below: the manifests, `[crates]` in `docs/rules.toml`.

use super::verdict;
use crate::rules::{PATH, Rules};
use crate::sources::Source;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Tables of dependencies in a manifest.
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// The check.
pub fn check(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let manifests = files.iter().filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"));
    let mut packages = BTreeMap::new();
    for file in manifests {
        let table: Table = file.text.parse().map_err(|error| format!("{}: {error}", file.path))?;
        if let Some(name) = table.get("package").and_then(|package| package.get("name")?.as_str()) {
            packages.insert(name.to_string(), dependencies(&table));
        }
    }
    verdict(findings(&rules.crates, &packages))
}

fn findings(table: &BTreeMap<String, Vec<String>>, packages: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut findings = Vec::new();
    for (package, dependencies) in packages {
        let Some(allowed) = table.get(package) else {
            findings.push(format!("{PATH}: [crates] does not name `{package}`"));
            continue;
        };
        for dependency in dependencies.iter().filter(|name| packages.contains_key(*name) && !allowed.contains(name)) {
            findings.push(format!("`{package}` depends on `{dependency}`, which {PATH} does not allow"));
        }
    }
    let gone = table.keys().filter(|name| !packages.contains_key(*name));
    findings.extend(gone.map(|name| format!("{PATH}: there is no package `{name}`")));
    findings
}

/// Names of the packages a manifest depends on, in any way.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|table| table.values());
    for table in std::iter::once(manifest).chain(targets.filter_map(Value::as_table)) {
        for (key, value) in KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()).flatten() {
            let renamed = value.get("package").and_then(Value::as_str);
            names.insert(renamed.unwrap_or(key).to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(manifests: &[&str]) -> Result<(), String> {
        let mut rules = Rules::default();
        rules.crates.insert("low".into(), vec![]);
        rules.crates.insert("high".into(), vec!["low".into()]);
        let file = |(at, text): (usize, &&str)| Source { path: format!("p{at}/Cargo.toml"), text: text.to_string() };
        check(&rules, &manifests.iter().enumerate().map(file).collect::<Vec<_>>())
    }

    const LOW: &str = "[package]\nname = \"low\"\n[dependencies]\nserde = \"1\"\n";

    #[test]
    fn named_dependencies_are_fine() {
        assert_eq!(run(&[LOW, "[package]\nname = \"high\"\n[dependencies]\nlow = {}\n"]), Ok(()));
    }

    #[test]
    fn others_are_found_wherever_they_stand() {
        let high = "[package]\nname = \"high\"\n";
        for extra in ["[dev-dependencies]\nhigh = {}", "[target.'cfg(x)'.dependencies]\nh = { package = \"high\" }"] {
            let found = run(&[&LOW.replace("[dependencies]\nserde = \"1\"", extra), high]).expect_err(extra);
            assert!(found.contains("`low` depends on `high`"), "{found}");
        }
    }

    #[test]
    fn the_table_names_every_package_and_no_other() {
        assert!(run(&[LOW]).is_err_and(|found| found.contains("`high`")));
        assert!(run(&[LOW, "[package]\nname = \"high\"", "[package]\nname = \"new\""]).is_err());
    }
}
