//! Reads what `cargo test` prints: which suite runs, what each test came to, what it said about skipping.
//!
//! Promises upward: every test by its full name `PACKAGE/BINARY::PATH` (see docs/features.md), or `PACKAGE/PATH` where many
//! files share the program `all`; a suite that died
//! or whose count differs from its own summary is a failure with a name.
//! Asks from below: the output of `cargo test .. -- --show-output` (both streams, in order) and the suites' names.

use crate::report::Outcome;
use std::collections::BTreeMap;

/// One test: full name, what it came to, and its output or the reason of the skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// `PACKAGE/BINARY::PATH`.
    pub name: String,
    /// What it came to.
    pub outcome: Outcome,
    /// Output of a failed test, reason of a skipped one.
    pub detail: String,
}

/// Suites by the file name of their executable, and documentation suites by crate name.
pub type Suites = BTreeMap<String, String>;

/// Reads the whole output.
pub fn parse(output: &str, suites: &Suites) -> Vec<Test> {
    let mut reader = Reader { suites, suite: "unknown".into(), open: None, section: None, tests: Vec::new() };
    for line in output.lines() {
        reader.line(line);
    }
    reader.close("the suite ended without a result: it crashed or was killed");
    reader.tests
}

struct Reader<'a> {
    suites: &'a Suites,
    suite: String,
    /// Set between `running N tests` and `test result:`: the first test of this run, and how many were read.
    open: Option<(usize, usize)>,
    /// Path of the test whose captured output is being read.
    section: Option<String>,
    tests: Vec<Test>,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        let trimmed = line.trim();
        if let Some(suite) = self.suite_of(trimmed) {
            self.close("the suite ended without a result: it crashed or was killed");
            self.suite = suite;
        } else if let Some(count) = trimmed.strip_prefix("running ").filter(|rest| is_count(rest)) {
            self.close(&format!("the suite ended without a result before running {count}"));
            self.open = Some((self.tests.len(), 0));
        } else if trimmed.starts_with("test result: ") {
            self.section = None;
            self.result(trimmed);
        } else if let Some(path) = trimmed.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.section = Some(test_path(path));
        } else if matches!(line, "successes:" | "failures:") {
            self.section = None;
        } else if let Some(path) = self.section.clone() {
            self.captured(&path, line);
        } else if let Some((path, outcome, detail)) = result_of(trimmed) {
            let name = self.name(&path);
            self.tests.push(Test { name, outcome, detail });
            if let Some((_, read)) = &mut self.open {
                *read += 1;
            }
        }
    }

    /// The suite that a heading of cargo announces.
    fn suite_of(&self, line: &str) -> Option<String> {
        if let Some(name) = line.strip_prefix("Doc-tests ") {
            return Some(self.suites.get(name).cloned().unwrap_or_else(|| format!("{}/doc", name.replace('_', "-"))));
        }
        let file = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?.1;
        let file = file.rsplit(['/', '\\']).next()?;
        Some(self.suites.get(file).cloned().unwrap_or_else(|| file.to_string()))
    }

    /// A module of the program `all` stands for the program that it would be by itself.
    fn name(&self, path: &str) -> String {
        match self.suite.strip_suffix("/all") {
            Some(package) => format!("{package}/{path}"),
            None => format!("{}::{path}", self.suite),
        }
    }

    /// A line that the test at `path` printed.
    fn captured(&mut self, path: &str, line: &str) {
        let name = self.name(path);
        let start = self.open.map_or(0, |(start, _)| start);
        let Some(test) = self.tests[start..].iter_mut().find(|test| test.name == name) else { return };
        if let Some((skipped, reason)) = skip_of(line) {
            let whole = skipped == name || name.ends_with(&format!("::{skipped}"));
            if !whole {
                let name = self.name(skipped);
                self.tests.push(Test { name, outcome: Outcome::Skipped, detail: reason.into() });
            } else if test.outcome == Outcome::Passed {
                (test.outcome, test.detail) = (Outcome::Skipped, reason.into());
            }
        } else if test.outcome == Outcome::Failed {
            test.detail.push_str(line);
            test.detail.push('\n');
        }
    }

    /// Compares libtest's own summary with what was read.
    fn result(&mut self, line: &str) {
        let Some((_, read)) = self.open.take() else { return };
        let stated: usize = ["passed", "failed", "ignored"].iter().filter_map(|word| number_before(line, word)).sum();
        if read != stated {
            let name = self.name("(unread)");
            let detail = format!("{stated} tests ran, the results of {read} could be read");
            self.tests.push(Test { name, outcome: Outcome::Failed, detail });
        }
    }

    /// Records the suite as failed when it is still running.
    fn close(&mut self, why: &str) {
        self.section = None;
        if self.open.take().is_some() {
            let name = self.name("(crashed)");
            self.tests.push(Test { name, outcome: Outcome::Failed, detail: why.into() });
        }
    }
}

/// `N tests` or `N test`.
fn is_count(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(count, word)| count.parse::<usize>().is_ok() && word.starts_with("test"))
}

/// The number that stands before `word` in `1 passed; 0 failed; ..`.
fn number_before(line: &str, word: &str) -> Option<usize> {
    let (before, _) = line.split_once(&format!(" {word}"))?;
    before.rsplit([' ', '.']).next()?.parse().ok()
}

/// `test PATH ... ok`, `FAILED` or `ignored[, REASON]`.
fn result_of(line: &str) -> Option<(String, Outcome, String)> {
    let (path, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let path = test_path(path);
    let skipped = |reason: &str| Some((path.clone(), Outcome::Skipped, format!("ignored{reason}")));
    match result {
        "ok" => Some((path, Outcome::Passed, String::new())),
        "FAILED" => Some((path, Outcome::Failed, String::new())),
        _ if result.starts_with("ignored") => skipped(result.trim_start_matches("ignored")),
        _ => None,
    }
}

/// The stable part of a test's name: without ` - should panic`, and for an example in documentation the item
/// without file and line (which change with every edit).
fn test_path(text: &str) -> String {
    let text = text.strip_suffix(" - should panic").unwrap_or(text);
    let Some((place, rest)) = text.split_once(" - ") else { return text.into() };
    let item = rest.split("(line ").next().unwrap_or("").trim();
    if item.is_empty() { place.into() } else { item.into() }
}

/// `SKIP NAME: REASON`.
pub fn skip_of(line: &str) -> Option<(&str, &str)> {
    let (name, reason) = line.trim().strip_prefix("SKIP ")?.split_once(": ")?;
    (!name.is_empty() && !name.contains(' ') && !reason.is_empty()).then_some((name, reason))
}

#[cfg(test)]
#[path = "libtest_tests.rs"]
mod tests;
