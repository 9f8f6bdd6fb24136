//! `check::root`: the root of a library shows few names, so that a newcomer reads them all.
//!
//! Promises upward: each root that shows more public names than `[root]` allows, with the names; each glob and each macro call
//! there, which would hide how many they are.
//! Asks from below: `[root]` in `docs/rules.toml`.

use super::verdict;
use crate::rules::{PATH, Rules};
use crate::sources::{self, Source};
use std::collections::BTreeSet;

/// The check.
pub fn check(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let of = |(folder, most): (&String, &usize)| findings(folder, *most, files);
    verdict(rules.root.iter().flat_map(of).collect())
}

/// What one library breaks.
fn findings(folder: &str, most: usize, files: &[Source]) -> Vec<String> {
    let path = format!("{folder}/src/lib.rs");
    let Some(root) = files.iter().find(|file| file.path == path) else {
        return vec![format!("{PATH}: [root] names {folder}, which is no library")];
    };
    let mut names = BTreeSet::new();
    let mut findings = Vec::new();
    for item in items(&sources::code_of(&root.text)) {
        if let Err(why) = shown(item, &mut names) {
            findings.push(format!("{path}: {why}"));
        }
    }
    let inside = files.iter().filter(|file| file.is_rust() && file.path.starts_with(&format!("{folder}/src/")));
    names.extend(inside.flat_map(|file| exported_macros(&sources::code_of(&file.text))));
    if names.len() > most {
        let list = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        findings.push(format!("{path}: the root shows {} names, at most {most}: {list}", names.len()));
    }
    findings
}

/// The items of a file, each with its attributes: up to a `;`, or to the brace that closes what it opened.
fn items(code: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, c) in code.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let body = c == '}' && depth == 0 && !is_use(&code[start..at]);
        if depth == 0 && (c == ';' || body) {
            items.push(code[start..=at].trim());
            start = at + 1;
        }
    }
    items
}

fn is_use(item: &str) -> bool {
    sources::words(without_attributes(item)).take(2).any(|word| word == "use")
}

/// Adds the public names of an item that users see.
fn shown(item: &str, names: &mut BTreeSet<String>) -> Result<(), String> {
    const UNSEEN: [&str; 2] = ["doctest", "test"];
    let code = without_attributes(item);
    let attributes = &item[..item.len() - code.len()];
    if attributes.contains("cfg(") && sources::words(attributes).any(|word| UNSEEN.contains(&word)) {
        return Ok(());
    }
    let Some(public) = code.strip_prefix("pub ") else {
        let name = code.split(['{', '(', '[']).next().unwrap_or_default().trim();
        return match name.ends_with('!') && name != "compile_error!" {
            true => Err(format!("`{name}` may add names that are not counted")),
            false => Ok(()),
        };
    };
    if let Some(tree) = public.strip_prefix("use ") {
        return leaves(tree.trim_end_matches(';'), names);
    }
    const BEFORE: [&str; 9] = ["async", "const", "enum", "extern", "fn", "mod", "static", "struct", "unsafe"];
    const ALSO: [&str; 5] = ["crate", "mut", "trait", "type", "union"];
    let name = sources::words(public).find(|word| !BEFORE.contains(word) && !ALSO.contains(word));
    names.extend(name.map(String::from));
    Ok(())
}

/// The names that a use tree brings.
fn leaves(tree: &str, names: &mut BTreeSet<String>) -> Result<(), String> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        let module = prefix.trim_end_matches("::").rsplit("::").next().unwrap_or_default();
        return parts(group).into_iter().try_for_each(|part| match part.trim() {
            "" => Ok(()),
            "self" => leaves(module, names),
            part => leaves(part, names),
        });
    }
    match tree.rsplit("::").next().unwrap_or_default().split_whitespace().last() {
        Some("*") => Err(format!("`pub use {tree}` hides how many names it brings")),
        Some("_") | None => Ok(()),
        Some(name) => {
            names.insert(name.into());
            Ok(())
        }
    }
}

/// The parts of a group, at its commas.
fn parts(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let comma = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    group.split(comma).collect()
}

/// An item without the attributes before it.
fn without_attributes(item: &str) -> &str {
    let mut rest = item.trim_start();
    while rest.starts_with('#') {
        let mut depth = 0_usize;
        let end = rest.find(|c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ']' && depth == 0
        });
        rest = end.map_or("", |at| rest[at + 1..].trim_start());
    }
    rest
}

/// Macros that the root shows from wherever they stand.
fn exported_macros(code: &str) -> Vec<String> {
    let after = |(at, word): (usize, &str)| {
        let (_, name) = code[at + word.len()..].split_once("macro_rules!")?;
        sources::words(name).next().map(String::from)
    };
    code.match_indices("macro_export").filter_map(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn run(root: &str, other: &str, most: usize) -> Result<(), String> {
        let file = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let rules = Rules { root: BTreeMap::from([("front".to_string(), most)]), ..Rules::default() };
        check(&rules, &[file("front/src/lib.rs", root), file("front/src/other.rs", other)])
    }

    #[test]
    fn public_names_are_counted_and_others_are_not() {
        let root = "#![doc = \"x\"]\n#![forbid(unsafe_code)]\nmod hidden;\npub mod a;\n#[cfg(feature = \"b\")]\npub use \
                    crate::{b::{self, C as D}, e};\npub(crate) use f::G;\n/// pub mod no;\npub const unsafe fn h<T>(x: [u8; 2]) \
                    -> T { pub_use() }\nimpl X { pub fn not() {} }\n#[cfg(all(doctest, feature = \"x\"))]\npub struct Readme;\n";
        for (other, count) in [("", 5), ("#[macro_export]\nmacro_rules! m { () => {} }", 6)] {
            assert_eq!(run(root, other, count), Ok(()));
            let why = run(root, other, count - 1).expect_err("one more than allowed");
            assert!(why.contains(&format!("shows {count} names")) && why.contains("D, a, b, e, h"), "{why}");
        }
    }

    #[test]
    fn what_hides_names_is_found() {
        assert!(run("pub use a::*;", "", 9).is_err_and(|why| why.contains("`pub use a::*`")));
        assert!(run("pub use a::{B, c::*};", "", 9).is_err());
        assert!(run("names! { A }", "", 9).is_err_and(|why| why.contains("`names!`")));
        assert_eq!(run("use a::*;\nfn f() { g!(x) }", "", 0), Ok(()));
    }

    #[test]
    fn a_library_that_is_gone_is_told() {
        let rules = Rules { root: BTreeMap::from([("front".to_string(), 1)]), ..Rules::default() };
        assert!(check(&rules, &[]).is_err_and(|why| why.contains("front")));
    }
}
