//! `check::names`, `check::comments`: one word has one meaning, and a stranger can read what stands beside the code.
//!
//! Promises upward: every type name that two modules of the libraries named define without being listed, every word that
//! comments of the libraries avoid, and every public item whose documentation begins with more than one short line.
//! Asks from below: `plain` (the libraries), `[same]` and `[comments]` in `docs/rules.toml`.

use super::verdict;
use crate::rules::{PATH, Rules};
use crate::sources::{self, Source};
use std::collections::BTreeMap;

/// What the first line of a public item's documentation may have, in characters.
const FIRST_LINE: usize = 100;

/// A type's name is defined once in all libraries, but for those of one meaning, each with that meaning.
pub fn types(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in library_files(rules, files) {
        let code = sources::code_of(&file.text);
        for (line, text) in sources::without_tests(&code).lines().enumerate() {
            if let Some(name) = type_of(text) {
                defined.entry(name.into()).or_default().push(format!("{}:{}", file.path, line + 1));
            }
        }
    }
    defined.retain(|_, places| places.len() > 1);
    let mut findings: Vec<String> = (defined.iter())
        .filter(|(name, _)| !rules.same.contains_key(*name))
        .map(|(name, places)| format!("{}: `{name}` is also defined at {}", places[0], places[1..].join(", ")))
        .collect();
    let idle = rules.same.keys().filter(|name| !defined.contains_key(*name));
    findings.extend(idle.map(|name| format!("{PATH}: `{name}` is defined once: its entry in [same] is not needed")));
    verdict(findings)
}

/// Comments of the libraries do without the words listed; the documentation of a public item begins with one short line.
pub fn comments(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let mut findings = Vec::new();
    for file in library_files(rules, files) {
        let code = sources::code_of(&file.text);
        let inside = sources::without_tests(&code).lines().count();
        for (at, (text, code)) in file.text.lines().zip(code.lines()).enumerate().take(inside) {
            let Some(comment) = comment_of(text, code) else { continue };
            let found = sources::words(comment).filter_map(|word| rules.comments.get_key_value(&word.to_lowercase()));
            findings.extend(found.map(|(word, why)| format!("{}:{}: `{word}`: {why}", file.path, at + 1)));
        }
        let lines: Vec<&str> = file.text.lines().take(inside).collect();
        for (at, length) in long_beginnings(&lines) {
            findings.push(format!(
                "{}:{}: the documentation begins with {length} characters before its first empty line, at most {FIRST_LINE} in one line",
                file.path,
                at + 1
            ));
        }
    }
    verdict(findings)
}

/// Sources of libraries, without files of tests.
fn library_files<'a>(rules: &'a Rules, files: &'a [Source]) -> impl Iterator<Item = &'a Source> {
    files.iter().filter(move |file| {
        let inside =
            |folder: &String| file.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with("/src/"));
        file.is_rust() && !sources::is_tests(&file.path) && rules.plain.iter().any(inside)
    })
}

/// The type that a line of code defines. Aliases count at the edge of a module only: elsewhere a trait names them.
fn type_of(line: &str) -> Option<&str> {
    let item = without_visibility(line.trim_start());
    let (keyword, rest) = item.split_once(' ')?;
    let defines = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "unsafe" => return type_of(rest),
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (defines && !name.is_empty()).then_some(name)
}

/// A line without `pub` or `pub(..)`.
fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest).trim_start(),
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        _ => line,
    }
}

/// The comment at the end of a line, if it has one: blank from there on in `code`.
fn comment_of<'a>(text: &'a str, code: &str) -> Option<&'a str> {
    let (before, comment) = text.split_once("//")?;
    code.chars().skip(before.chars().count()).all(char::is_whitespace).then_some(comment)
}

/// Lines at which documentation of a public item begins with more than one short line, and its characters.
fn long_beginnings(lines: &[&str]) -> Vec<(usize, usize)> {
    let doc = |line: &str| line.trim_start().strip_prefix("///").map(|text| text.trim().to_string());
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let length = lines[at..].iter().take_while(|line| doc(line).is_some()).count();
        let mut after = lines[at + length..].iter().map(|line| line.trim_start());
        let item = after.find(|line| !line.starts_with("#["));
        if length > 0 && item.is_some_and(is_public_item) {
            let first: Vec<String> = lines[at..at + length]
                .iter()
                .filter_map(|line| doc(line))
                .take_while(|text| !text.is_empty())
                .collect();
            let characters = first.join(" ").chars().count();
            if first.len() > 1 || characters > FIRST_LINE {
                found.push((at, characters));
            }
        }
        at += length.max(1);
    }
    found
}

/// Functions, types, traits, constants and modules that leave the crate; fields and variants are no items.
fn is_public_item(line: &str) -> bool {
    const ITEMS: [&str; 12] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union", "unsafe", "async", "extern"];
    line.strip_prefix("pub ").is_some_and(|rest| rest.split(' ').next().is_some_and(|word| ITEMS.contains(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(same: &[&str]) -> Rules {
        let reasons = |names: &[&str]| names.iter().map(|name| (name.to_string(), "because".to_string())).collect();
        Rules { plain: vec!["core".into()], same: reasons(same), comments: reasons(&["nobody"]), ..Rules::default() }
    }

    fn file(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_type_is_defined_once_or_listed() {
        let two =
            || [file("core/src/a.rs", "pub struct Heap;"), file("core/src/b.rs", "pub(crate) unsafe trait Heap {}")];
        assert!(types(&rules(&[]), &two()).is_err_and(|why| why.contains("core/src/a.rs:1: `Heap`")));
        assert_eq!(types(&rules(&["Heap"]), &two()), Ok(()));
        assert!(types(&rules(&["Heap"]), &two()[..1]).is_err_and(|why| why.contains("not needed")));
    }

    #[test]
    fn tests_other_folders_and_associated_types_define_nothing() {
        let files = [
            file("core/src/a.rs", "enum Kind {}\nimpl X for Y {\n    type Kind = u8;\n}\n"),
            file("core/src/a/tests.rs", "enum Kind {}"),
            file("core/tests/a.rs", "enum Kind {}"),
            file("core/src/b.rs", "#[cfg(test)]\nmod tests {\n    enum Kind {}\n}"),
        ];
        assert_eq!(types(&rules(&[]), &files), Ok(()));
    }

    #[test]
    fn words_of_comments_are_found_but_not_those_of_strings() {
        let found = comments(&rules(&[]), &[file("core/src/a.rs", "let a = 1; // Nobody reads it.\n")]);
        assert!(found.is_err_and(|why| why.contains("core/src/a.rs:1")));
        let fine = "let a = \"// nobody\";\nlet nobody = 1; // read\n// nobodys\n";
        assert_eq!(comments(&rules(&[]), &[file("core/src/a.rs", fine)]), Ok(()));
    }

    #[test]
    fn documentation_begins_with_one_short_line() {
        let of = |doc: &str, item: &str| comments(&rules(&[]), &[file("core/src/a.rs", &format!("{doc}{item}"))]);
        let two = "/// One line\n/// and another.\n";
        assert!(of(two, "#[must_use]\npub fn f() {}").is_err());
        assert!(of(&format!("/// {}\n", "a".repeat(101)), "pub const A: u8 = 1;").is_err());
        assert_eq!(of("/// One.\n///\n/// Two\n/// three.\n", "pub fn f() {}"), Ok(()));
        assert_eq!(of(two, "pub(crate) fn f() {}"), Ok(()));
    }
}
