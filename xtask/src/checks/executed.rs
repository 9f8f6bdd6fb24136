//! `check::unsafe_executed`: each file that may say `unsafe` has a row in docs/unsafe.md that says what executes it.
//!
//! Promises upward: every file without a row, every row without a file, every run that no step has, and every file that
//! neither Miri nor a sanitizer executes without a word why.
//! Asks from below: `[unsafe]` in `docs/rules.toml`; the names of the runs and of the steps.

use super::verdict;
use crate::command::root;
use crate::rules::Rules;
use crate::sources::Source;
use crate::steps::STEPS;
use crate::steps::runs::{RUNS, Run};

const PATH: &str = "docs/unsafe.md";

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// From the project's root.
    pub file: String,
    /// What executes it.
    pub runs: Vec<String>,
    /// Why neither Miri nor a sanitizer does.
    pub why: String,
}

/// The rows of the table.
///
/// # Errors
/// The line that is none.
pub fn rows() -> Result<Vec<Row>, String> {
    parse(&std::fs::read_to_string(root().join(PATH)).unwrap_or_default())
}

/// The check.
pub fn check(rules: &Rules, files: &[Source]) -> Result<(), String> {
    let Some(table) = files.iter().find(|file| file.path == PATH) else { return Err(format!("{PATH} is missing")) };
    let rows = parse(&table.text)?;
    let mut findings: Vec<String> = rows.iter().flat_map(wrong).collect();
    for path in rules.unsafe_files.keys() {
        match rows.iter().filter(|row| row.file == *path).count() {
            1 => {}
            0 => findings.push(format!("{PATH}: {path} may say `unsafe`, and no row says what executes it")),
            count => findings.push(format!("{PATH}: {path} stands {count} times")),
        }
    }
    let idle = rows.iter().filter(|row| !rules.unsafe_files.contains_key(&row.file));
    findings.extend(idle.map(|row| format!("{PATH}: {} may not say `unsafe`", row.file)));
    verdict(findings)
}

/// Rows whose first cell is a Rust file: `| FILE | RUNS | WHY |`.
fn parse(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.starts_with("| `"));
    lines.map(|(at, line)| row(line).ok_or(format!("{PATH}:{}: no row `| file | runs | why |`", at + 1))).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix('|')?.trim_end().strip_suffix('|')?.split('|').map(str::trim).collect();
    let [file, runs, why] = cells[..] else { return None };
    let file = file.strip_prefix('`')?.strip_suffix('`')?.to_string();
    let runs = runs.split('`').skip(1).step_by(2).map(String::from).collect();
    Some(Row { file, runs, why: why.into() })
}

/// What is wrong with a row by itself.
fn wrong(row: &Row) -> Vec<String> {
    let strange = row.runs.iter().filter(|run| !exists(run));
    let mut findings: Vec<String> = strange.map(|run| format!("{PATH}: {}: no step runs `{run}`", row.file)).collect();
    if !row.runs.iter().any(|run| is_run(run)) && row.why.is_empty() {
        findings.push(format!("{PATH}: {}: neither Miri nor a sanitizer executes it; say why", row.file));
    }
    findings
}

fn is_run(name: &str) -> bool {
    RUNS.iter().map(Run::full_name).any(|run| run == name)
}

/// One of the runs, or a step that is neither Miri nor sanitizers.
fn exists(name: &str) -> bool {
    let other = |name: &str| !["miri", "sanitizers"].contains(&name) && STEPS.iter().any(|step| step.name == name);
    is_run(name) || other(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(table: &str) -> Result<(), String> {
        let names = ["a.rs", "b.rs"].map(|name| (name.to_string(), "because".to_string()));
        let rules = Rules { unsafe_files: names.into(), ..Rules::default() };
        check(&rules, &[Source { path: PATH.into(), text: table.into() }])
    }

    const A: &str = "| `a.rs` | `miri::heap` | |\n";
    const B: &str = "| `b.rs` | `firmware` | an emulator only |\n";

    #[test]
    fn every_file_has_one_row() {
        assert_eq!(judged(&format!("# Words\n\n{A}{B}")), Ok(()));
        assert!(judged(A).is_err_and(|why| why.contains("b.rs may say")));
        assert!(judged(&format!("{A}{A}{B}")).is_err_and(|why| why.contains("2 times")));
        assert!(judged(&format!("{A}{B}| `c.rs` | `miri::heap` | |\n")).is_err_and(|why| why.contains("may not")));
        assert!(check(&Rules::default(), &[]).is_err());
    }

    #[test]
    fn a_row_names_runs_that_are_there_or_says_why() {
        for (row, says) in [
            ("| `a.rs` | `miri::nothing` | |\n", "no step runs"),
            ("| `a.rs` | `miri` | |\n", "no step runs"),
            ("| `a.rs` | `firmware` | |\n", "say why"),
            ("| `a.rs` | | |\n", "say why"),
            ("| `a.rs` | `miri::heap` |\n", "no row"),
        ] {
            assert!(judged(&format!("{row}{B}")).is_err_and(|why| why.contains(says)), "{row}");
        }
    }
}
