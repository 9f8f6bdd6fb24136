//! `check::unsafe_files`, `check::words`, `check::file_length`: what may stand in which file.
//!
//! Promises upward: every place that breaks a rule, and every exception that is no longer needed.
//! Asks from below: `[unsafe]`, `[words]` and `[length]` in `docs/rules.toml`.

use super::verdict;
use crate::command::root;
use crate::rules::{PATH, Reasons, Rules};
use crate::sources::{self, Source};

/// `unsafe` stands in the files named, each with its reason, and nowhere else.
pub fn unsafe_files(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let has =
        |file: &Source| file.is_rust() && sources::words(&sources::code_of(&file.text)).any(|word| word == "unsafe");
    exceptions(files, &rules.unsafe_files, has, |file| {
        format!("{}: `unsafe`, but {PATH} does not name the file", file.path)
    })
}

/// Rust files are short, but for those named.
pub fn file_length(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let lines = |file: &Source| file.text.lines().count();
    let long = |file: &Source| file.is_rust() && lines(file) > rules.max_lines;
    let why = |file: &Source| format!("{}: {} lines, at most {}; split it", file.path, lines(file), rules.max_lines);
    exceptions(files, &rules.long_files, long, why)
}

/// Findings in files that are no exception, and exceptions that nothing needs.
fn exceptions(
    files: &[Source],
    allowed: &Reasons,
    is: impl Fn(&Source) -> bool,
    why: impl Fn(&Source) -> String,
) -> Result<(), String> {
    let found: Vec<&Source> = files.iter().filter(|file| is(file)).collect();
    let mut findings: Vec<String> =
        found.iter().filter(|file| !allowed.contains_key(&file.path)).map(|file| why(file)).collect();
    let idle = allowed.keys().filter(|path| !found.iter().any(|file| file.path == **path));
    findings.extend(idle.map(|path| format!("{PATH}: the exception for {path} is not needed")));
    verdict(findings)
}

/// Words that say that something is not finished, and paths of one person's machine. The table itself is exempt.
pub fn words(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let mut banned = rules.words.clone();
    for path in places_of(&root().to_string_lossy()) {
        banned.insert(path, "where one checkout lies is nobody else's business".into());
    }
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != PATH) {
        for (line, text) in file.text.lines().enumerate() {
            let found = banned.iter().filter(|(word, _)| text.contains(word.as_str()));
            findings.extend(found.map(|(word, why)| format!("{}:{}: `{word}`: {why}", file.path, line + 1)));
        }
    }
    verdict(findings)
}

/// The folder of this checkout and the one above it, unless that is a folder every machine has.
fn places_of(root: &str) -> Vec<String> {
    let common = ["", "/tmp", "/opt", "/srv", "/usr", "/var", "/mnt", "/home"];
    let parent = root.rsplit_once('/').map_or("", |(parent, _)| parent);
    let mut places = vec![root.to_string()];
    if !common.contains(&parent) {
        places.push(format!("{parent}/"));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    fn reasons(names: &[&str]) -> Reasons {
        names.iter().map(|name| (name.to_string(), "because".to_string())).collect()
    }

    #[test]
    fn unsafe_stands_only_where_it_is_named() {
        let rules = Rules { unsafe_files: reasons(&["a.rs"]), ..Rules::default() };
        let a = || file("a.rs", "unsafe { x() }");
        assert_eq!(unsafe_files(&rules, &[a(), file("b.rs", "#![forbid(unsafe_code)] // unsafe\n")]), Ok(()));
        assert!(unsafe_files(&rules, &[a(), file("b.rs", "unsafe fn f() {}")]).is_err_and(|why| why.contains("b.rs")));
        assert!(unsafe_files(&rules, &[file("a.rs", "")]).is_err_and(|why| why.contains("not needed")));
    }

    #[test]
    fn long_files_are_found() {
        let rules = Rules { max_lines: 2, ..Rules::default() };
        assert_eq!(file_length(&rules, &[file("a.rs", "1\n2\n"), file("a.md", "1\n2\n3\n")]), Ok(()));
        assert!(file_length(&rules, &[file("a.rs", "1\n2\n3\n")]).is_err());
    }

    #[test]
    fn words_are_found_with_their_line() {
        let rules = Rules { words: reasons(&["LATER"]), ..Rules::default() };
        assert_eq!(words(&rules, &[file("a.md", "later\n"), file(PATH, "LATER")]), Ok(()));
        assert!(words(&rules, &[file("a.md", "x\nLATER\n")]).is_err_and(|why| why.contains("a.md:2")));
    }

    #[test]
    fn common_folders_are_not_banned() {
        assert_eq!(places_of("/tmp/terrace"), ["/tmp/terrace"]);
        assert_eq!(places_of("/data/terrace"), ["/data/terrace", "/data/"]);
    }
}
