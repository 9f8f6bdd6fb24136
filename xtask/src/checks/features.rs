//! `check::features`: docs/features.md keeps what it promises.
//!
//! Promises upward: each row stands once; each row that is not `open` names tests that ran in this very run. A row
//! whose test was skipped is itself skipped, as `feature::ID`. Each name in `.ci/allowed-skips` is that of a test.
//! Asks from below: the results of every step before this one.

use crate::command::root;
use crate::options::Options;
use crate::report::{Outcome, Report};
use crate::steps::STEPS;
use std::collections::BTreeSet;

const PATH: &str = "docs/features.md";
const NAME: &str = "check::features";
/// Tests that CI lets skip.
const SKIPS: &str = ".ci/allowed-skips";

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// As `A1`.
    pub id: String,
    /// Tests that hold the row; none when it is open.
    pub tests: Vec<String>,
}

/// The rows of the file.
///
/// # Errors
/// What is wrong with it.
pub fn rows() -> Result<Vec<Row>, String> {
    parse(&std::fs::read_to_string(root().join(PATH)).unwrap_or_default()).map_err(|findings| findings.join("\n"))
}

/// What the rows' tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    findings: Vec<String>,
    /// Row and the test that was skipped.
    skipped: Vec<(String, String)>,
}

/// The check. With `--only` most tests did not run, so only the form of the file is judged.
pub fn run(options: &Options, report: &mut Report) {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(findings) => return report.fail(NAME, &findings),
    };
    if !options.only.is_empty() {
        return report.skip(NAME, "run without --only; the rows name tests of every step");
    }
    let ran = |test: &str| {
        !STEPS.iter().any(|step| step.long && !options.wants(step) && test.split("::").next() == Some(step.name))
    };
    let judged = judge(&rows, report.results(), ran);
    for (id, test) in &judged.skipped {
        report.skip(&format!("feature::{id}"), &format!("its test {test} was skipped"));
    }
    let allowed = std::fs::read_to_string(root().join(SKIPS)).unwrap_or_default();
    let mut findings = judged.findings;
    findings.extend(strange(&allowed, report.results(), ran));
    report.verdict(NAME, super::verdict(findings));
}

/// Reads the table, and holds it against the line `Rows: A1-A26 B1-B24 ..`.
fn parse(text: &str) -> Result<Vec<Row>, Vec<String>> {
    let mut findings = Vec::new();
    let expected: Vec<String> =
        text.lines().find_map(|line| line.strip_prefix("Rows: ")).map(expand).unwrap_or_default();
    if expected.is_empty() {
        findings.push(format!("{PATH}: no line `Rows: A1-A26 ..`"));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (line, text) in text.lines().enumerate() {
        match row(text) {
            Some(Ok(row)) => rows.push(row),
            Some(Err(why)) => findings.push(format!("{PATH}:{}: {why}", line + 1)),
            None => {}
        }
    }
    for id in &expected {
        match rows.iter().filter(|row| row.id == *id).count() {
            1 => {}
            count => findings.push(format!("{PATH}: row {id} stands {count} times")),
        }
    }
    let strange = rows.iter().filter(|row| !expected.contains(&row.id));
    findings.extend(strange.map(|row| format!("{PATH}: row {} is not in the line `Rows:`", row.id)));
    if findings.is_empty() { Ok(rows) } else { Err(findings) }
}

/// `| ID | what | tests |`; `None` for other lines.
fn row(line: &str) -> Option<Result<Row, String>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect();
    let [id, what, tests] = cells.as_slice() else { return Some(Err(format!("{} cells, not 3", cells.len()))) };
    if *id == "id" || id.starts_with("--") {
        return None;
    }
    if !is_id(id) || what.is_empty() {
        return Some(Err(format!("`{id}` is no row: an id such as A1, then what it promises")));
    }
    if *tests == "open" {
        return Some(Ok(Row { id: id.to_string(), tests: Vec::new() }));
    }
    let names: Vec<String> = tests.split('`').skip(1).step_by(2).map(String::from).collect();
    let between: String = tests.split('`').step_by(2).collect();
    if names.is_empty() || between.contains(|c: char| c != ',' && c != ' ') {
        return Some(Err(format!("{id}: `{tests}` is neither `open` nor a list of `names` in backquotes")));
    }
    Some(Ok(Row { id: id.to_string(), tests: names }))
}

/// `A1`, `B12`.
fn is_id(text: &str) -> bool {
    let number = text.strip_prefix(|c: char| c.is_ascii_uppercase());
    number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number > 0))
}

/// `A1-A3 B1` to A1, A2, A3, B1. A range that cannot be read stands for itself, and then no row matches it.
fn expand(text: &str) -> Vec<String> {
    let range = |word: &str| -> Option<Vec<String>> {
        let (first, last) = word.split_once('-')?;
        let (letter, from) = (first.get(..1)?, first.get(1..)?.parse::<u32>().ok()?);
        let to = last.strip_prefix(letter)?.parse::<u32>().ok()?;
        Some((from..=to).map(|number| format!("{letter}{number}")).collect())
    };
    text.split_whitespace().flat_map(|word| range(word).unwrap_or_else(|| vec![word.to_string()])).collect()
}

/// Holds the rows against the results. A name that ends in `*` stands for every test that begins with it. Tests of which `ran`
/// says no are of long steps that run elsewhere, in CI or by `--all`: they count there.
fn judge(rows: &[Row], results: &[(String, Outcome)], ran: impl Fn(&str) -> bool) -> Judged {
    let mut judged = Judged::default();
    for row in rows {
        for test in row.tests.iter().filter(|test| ran(test)) {
            let outcomes: BTreeSet<u8> =
                results.iter().filter(|(name, _)| matches(test, name)).map(|(_, o)| *o as u8).collect();
            if outcomes.is_empty() {
                judged.findings.push(format!("{}: `{test}` does not exist or did not run", row.id));
            } else if outcomes.contains(&(Outcome::Failed as u8)) {
                judged.findings.push(format!("{}: `{test}` failed", row.id));
            } else if outcomes.contains(&(Outcome::Skipped as u8)) {
                judged.skipped.push((row.id.clone(), test.clone()));
            }
        }
    }
    judged
}

/// Lines of the list of allowed skips that name no test, of those that ran here.
fn strange(allowed: &str, results: &[(String, Outcome)], ran: impl Fn(&str) -> bool) -> Vec<String> {
    let names =
        allowed.lines().filter_map(|line| line.split('#').next()).map(str::trim).filter(|name| !name.is_empty());
    let none = names.filter(|name| ran(name) && !results.iter().any(|(known, _)| matches(name, known)));
    none.map(|name| format!("{SKIPS}: there is no test `{name}`")).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_skipped_is_a_test() {
        let results = [("a/b::c".to_string(), Outcome::Passed), ("a/b::d".to_string(), Outcome::Skipped)];
        let allowed =
            "# why\na/b::c # no GPU\n\na/b::d\na/* # any\na/b::e # gone\nlong::f # of a step that did not run\n";
        let found = strange(allowed, &results, |name| !name.starts_with("long::"));
        assert_eq!(found, [".ci/allowed-skips: there is no test `a/b::e`"]);
    }

    const GOOD: &str = "Rows: A1-A2 B1\n| id | what | tests |\n|---|---|---|\n| A1 | x | open |\n\
                        | A2 | y | `t/a::b`, `t/c::*` |\n| B1 | z | `t/d::e` |\n";

    #[test]
    fn reads_the_table() {
        let rows = parse(GOOD).expect("it is good");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1], Row { id: "A2".into(), tests: vec!["t/a::b".into(), "t/c::*".into()] });
        assert!(rows[0].tests.is_empty());
    }

    #[test]
    fn refuses_a_table_that_is_not_whole() {
        let broken = [
            GOOD.replace("| A1 |", "| A2 |"),
            GOOD.replace("| A1 | x | open |\n", ""),
            GOOD.replace("A1-A2", "A1-A3"),
            GOOD.replace("A1-A2 ", "A1 "),
            GOOD.replace("open", "later"),
            GOOD.replace("open", ""),
            GOOD.replace("| x |", "|"),
            GOOD.replace("Rows", "rows"),
        ];
        for text in broken {
            assert!(parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn judges_by_what_ran() {
        let rows = parse(GOOD).expect("it is good");
        let result = |name: &str, outcome| (name.to_string(), outcome);
        let mut results = vec![result("t/a::b", Outcome::Passed), result("t/c::1", Outcome::Passed)];
        assert_eq!(judge(&rows, &results, |_| true).findings, ["B1: `t/d::e` does not exist or did not run"]);
        results.push(result("t/d::e", Outcome::Skipped));
        assert_eq!(
            judge(&rows, &results, |_| true),
            Judged { findings: vec![], skipped: vec![("B1".into(), "t/d::e".into())] }
        );
        results.push(result("t/c::2", Outcome::Failed));
        assert_eq!(judge(&rows, &results, |_| true).findings, ["A2: `t/c::*` failed"]);
        // What a long step would run counts only where that ran.
        assert_eq!(judge(&rows, &[], |test| !test.starts_with("t/")), Judged::default());
    }
}
