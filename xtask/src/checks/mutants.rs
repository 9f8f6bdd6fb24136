//! `check::mutants`: each function that `docs/mutants.toml` names stands in the file it names. The step `mutants` says so too, but
//! runs with `--all` only.
//!
//! Promises upward: every name that stands nowhere, with its row.
//! Asks from below: sources.

use super::verdict;
use crate::rules::{self, Rules};
use crate::sources::{self, Source};
use std::collections::BTreeMap;

/// What to mutate.
pub const PATH: &str = "docs/mutants.toml";

/// The check.
pub fn check(_: &Rules, files: &[Source]) -> Result<(), String> {
    verdict(findings(&rules::mutants(PATH)?.rows, files))
}

fn findings(rows: &BTreeMap<String, Vec<String>>, files: &[Source]) -> Vec<String> {
    let all = rows.iter().flat_map(|(row, functions)| functions.iter().map(move |function| (row, function)));
    let lost = all.filter(|(_, function)| !stands(function, files));
    lost.map(|(row, function)| format!("{PATH}: {row}: there is no `{function}`")).collect()
}

/// Whether `FILE: TYPE::NAME` or `FILE: <impl TRAIT for TYPE>::NAME` is a function of the file.
fn stands(function: &str, files: &[Source]) -> bool {
    let Some((path, name)) = function.split_once(": ") else { return false };
    let (owner, name) = name.rsplit_once("::").unwrap_or(("", name));
    let owner = owner.strip_prefix("<impl ").and_then(|owner| owner.strip_suffix('>')).unwrap_or(owner);
    let Some(file) = files.iter().find(|file| file.path == path) else { return false };
    let code = sources::code_of(&file.text).split_whitespace().collect::<Vec<_>>().join(" ");
    let implemented = owner.is_empty() || code.contains(&format!(" {owner} "));
    implemented && ["(", "<"].iter().any(|open| code.contains(&format!("fn {name}{open}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_and_functions_are_looked_up() {
        let file = |text: &str| Source { path: "a/b.rs".into(), text: text.into() };
        let said = |function: &str, text: &str| {
            findings(&BTreeMap::from([("A1".to_string(), vec![function.to_string()])]), &[file(text)])
        };
        assert_eq!(
            said("a/b.rs: <impl Drop for X<'_>>::drop", "impl Drop for X<'_> { fn drop(&mut self) {} }"),
            [""; 0]
        );
        assert_eq!(said("a/b.rs: X<T>::of", "impl<T> X<T> { fn of<U>() {} }"), [""; 0]);
        let gone = "docs/mutants.toml: A1: there is no ";
        assert_eq!(said("a/b.rs: of", "// fn of() {}"), [format!("{gone}`a/b.rs: of`")]);
        assert_eq!(said("a/b.rs: of", "fn often() {}"), [format!("{gone}`a/b.rs: of`")]);
        assert_eq!(said("a/c.rs: of", "fn of() {}"), [format!("{gone}`a/c.rs: of`")]);
        assert_eq!(said("a/b.rs: X::of", "impl MoreX { fn of() {} }"), [format!("{gone}`a/b.rs: X::of`")]);
    }
}
