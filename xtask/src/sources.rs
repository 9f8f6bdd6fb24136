//! The project's own text files, and Rust code without its words.
//!
//! Promises upward: every text file of the checkout once, sorted, by path from the root with `/`; code with
//! comments and literals blanked, line numbers kept.
//! Asks from below: the file system.

use crate::command::root;
use std::fs;
use std::path::Path;

/// Folders that hold what tools made, by name.
const MADE: [&str; 6] = ["target", ".git", "corpus", "artifacts", "coverage", "mutants.out"];
/// Endings of text files.
const TEXT: [&str; 8] = ["rs", "toml", "md", "sh", "yml", "h", "c", "py"];
/// Text files without an ending, by path.
const BARE_NAMES: [&str; 2] = [".ci/run", ".ci/allowed-skips"];

/// One file.
pub struct Source {
    /// Path from the root.
    pub path: String,
    /// Contents.
    pub text: String,
}

impl Source {
    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Whether a library's source holds tests alone: `tests.rs`, or a name that ends in `_tests.rs`.
pub fn is_tests(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "tests.rs" || name.ends_with("_tests.rs")
}

/// Every text file of the checkout.
pub fn all() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root(), "", &mut paths);
    paths.sort();
    let read = |path: String| Some(Source { text: fs::read_to_string(root().join(&path)).ok()?, path });
    paths.into_iter().filter_map(read).collect()
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !MADE.contains(&name.as_str()) => {
                walk(&entry.path(), &format!("{path}/"), paths);
            }
            Ok(kind) if kind.is_file() && is_text(&path) => paths.push(path),
            _ => {}
        }
    }
}

fn is_text(path: &str) -> bool {
    BARE_NAMES.contains(&path) || path.rsplit_once('.').is_some_and(|(_, ending)| TEXT.contains(&ending))
}

/// Rust code with comments, strings and characters blanked; newlines stay.
pub fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        let length = literal_length(rest, previous).unwrap_or(0);
        let taken = if length > 0 { length } else { first.len_utf8() };
        if length > 0 {
            code.extend(rest[..taken].chars().map(|c| if c == '\n' { c } else { ' ' }));
            previous = ' ';
        } else {
            code.push(first);
            previous = first;
        }
        rest = &rest[taken..];
    }
    code
}

/// Bytes of the comment or literal that begins here, if one does.
fn literal_length(rest: &str, previous: char) -> Option<usize> {
    let bytes = rest.as_bytes();
    let inside_word = previous.is_alphanumeric() || previous == '_';
    match bytes.first()? {
        b'/' if rest.starts_with("//") => Some(rest.find('\n').unwrap_or(rest.len())),
        b'/' if rest.starts_with("/*") => Some(block_comment(rest)),
        b'"' => Some(string(rest, 1)),
        b'r' | b'b' | b'c' if !inside_word => prefixed(rest),
        b'\'' => character(rest),
        _ => None,
    }
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        match here {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// A string whose first `"` stands just before byte `at`.
fn string(rest: &str, mut at: usize) -> usize {
    let bytes = rest.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `b".."`, `c".."`, `r".."`, `r#".."#`, `br".."` and `b'.'`.
fn prefixed(rest: &str) -> Option<usize> {
    let letters = rest.len() - rest.trim_start_matches(['b', 'c', 'r']).len();
    if letters > 2 {
        return None;
    }
    let (prefix, after) = rest.split_at(letters);
    if after.starts_with('\'') {
        return (prefix == "b").then(|| character(after)).flatten().map(|length| length + 1);
    }
    let hashes = after.len() - after.trim_start_matches('#').len();
    if !after[hashes..].starts_with('"') {
        return None;
    }
    if !prefix.contains('r') {
        return (hashes == 0).then(|| string(rest, letters + 1));
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = letters + hashes + 1;
    Some(rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()))
}

/// A character, unless it is a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        characters.next()?;
        return characters.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    characters.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// Code up to its inline test module (the last item of a file, by habit).
pub fn without_tests(code: &str) -> &str {
    let mut at = 0;
    let mut attribute = None;
    for line in code.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with("#[cfg(") && words(trimmed).any(|word| word == "test") {
            attribute = Some(at);
        } else if !trimmed.starts_with("#[") && !trimmed.is_empty() {
            let inline = trimmed.starts_with("mod ") && trimmed.ends_with('{');
            match attribute.take() {
                Some(start) if inline => return &code[..start],
                _ => {}
            }
        }
        at += line.len();
    }
    code
}

/// Identifiers and keywords.
pub fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_blanked() {
        let text = "a // b\n/* c /* d */ e */ f \"g\\\"h\" r#\"i\"j\"# 'k' b'l' '\\'' b\"m\" n";
        assert_eq!(words(&code_of(text)).collect::<Vec<_>>(), ["a", "f", "n"]);
        assert_eq!(code_of(text).lines().count(), 2);
    }

    #[test]
    fn code_stays() {
        let text = "fn f<'a>(x: &'a str, r: u8, b: u8) -> &'static str { bar(r#type) }";
        assert_eq!(code_of(text), text);
    }

    #[test]
    fn the_inline_test_module_is_cut() {
        assert_eq!(without_tests("a;\n#[cfg(test)]\nmod tests {\n b;\n}\n"), "a;\n");
        assert_eq!(without_tests("a;\n#[cfg(all(test, not(loom)))]\n#[allow(x)]\nmod tests {\n"), "a;\n");
        for kept in ["#[cfg(test)]\nmod tests;\nb;\n", "#[cfg(loom)]\nmod sync {\n}\n", "#[cfg(test)]\nfn f() {}\nb;\n"]
        {
            assert_eq!(without_tests(kept), kept);
        }
    }

    #[test]
    fn made_files_are_left_out() {
        let paths: Vec<String> = all().into_iter().map(|source| source.path).collect();
        assert!(paths.iter().any(|path| path == "xtask/src/sources.rs"));
        assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }
}
