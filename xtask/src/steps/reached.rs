//! Whether the runs that `docs/unsafe.md` names for a file reach the lines of it that say `unsafe`.
//!
//! Each run is made once more as a plain program whose lines are counted: interpreters and sanitizers execute the same tests, but
//! do not say which lines. (Under Miri some tests have smaller numbers; their lines are the same.)
//!
//! Promises upward: `reached::RUN` for each run, which fails where its tests do; `reached::unsafe` names every file and run whose
//! counts say that no such line was reached. `TERRACE_RUNS=miri::heap,asan::file` runs these only.
//! Asks from below: cargo-llvm-cov and LLVM's tools; the rows of the table.

use super::coverage::{parse, text_of};
use super::runs::{self, Run};
use crate::checks::executed;
use crate::command::{cargo, execute, root};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Lines of a file that were reached.
type Lines = BTreeSet<usize>;

/// The step.
pub fn run(options: &Options, report: &mut Report) {
    let tools = install::cargo_tool(options, "llvm-cov").and_then(|()| install::llvm_tools(options));
    let tools = match tools {
        Ok(tools) => tools,
        Err(missing) => return report.skip("reached::unsafe", &missing),
    };
    let mut reached = BTreeMap::new();
    for run in runs::wanted() {
        let name = format!("reached::{}", run.full_name());
        let verdict = counted(run, &name, &tools).map(|lines| _ = reached.insert(run.full_name(), lines));
        report.verdict(&name, verdict);
    }
    let rows = executed::rows();
    report.verdict("reached::unsafe", rows.and_then(|rows| crate::checks::verdict(missed(&rows, &reached, text_of))));
}

/// Runs its tests as they are: each file's lines that were reached.
fn counted(run: &Run, name: &str, tools: &Path) -> Result<BTreeMap<String, Lines>, String> {
    let out = root().join("target/reached.lcov");
    let ready = |mut command: std::process::Command| {
        command.env("LLVM_COV", tools.join("llvm-cov")).env("LLVM_PROFDATA", tools.join("llvm-profdata"));
        command
    };
    execute(name, &mut ready(cargo(["llvm-cov", "clean", "--workspace", "--profraw-only"]))).verdict()?;
    let mut command = ready(cargo([
        "llvm-cov",
        "test",
        "--no-clean",
        "--no-default-ignore-filename-regex",
        "--lcov",
        "--output-path",
    ]));
    command.arg(&out).args(run.words());
    runs::judge(&execute(name, &mut command))?;
    let text = fs::read_to_string(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let reached = |lines: BTreeMap<usize, bool>| lines.into_iter().filter(|(_, reached)| *reached).map(|(at, _)| at);
    let mut files = super::coverage::Lines::new();
    parse(&text, &root(), &mut files);
    Ok(files.into_iter().map(|(path, lines)| (path, reached(lines).collect())).collect())
}

/// Files and runs that reached no line with an `unsafe` block. A file without such blocks, where only functions or implementations
/// are `unsafe`, needs any line. Rows that say `not counted` are left out.
fn missed(
    rows: &[executed::Row],
    reached: &BTreeMap<String, BTreeMap<String, Lines>>,
    text_of: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut findings = Vec::new();
    for row in rows.iter().filter(|row| !row.why.starts_with("not counted")) {
        let text = text_of(&row.file);
        let blocks: Lines = (1..).zip(text.lines()).filter(|(_, l)| l.contains("unsafe {")).map(|(at, _)| at).collect();
        for run in &row.runs {
            let Some(lines) = reached.get(run) else { continue };
            let lines = lines.get(&row.file);
            if !lines
                .is_some_and(|lines| if blocks.is_empty() { !lines.is_empty() } else { !lines.is_disjoint(&blocks) })
            {
                findings.push(format!("{}: {run} does not reach it", row.file));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_needs_a_line_that_says_it() {
        let row = |file: &str| executed::Row { file: file.into(), runs: vec!["miri::heap".into()], why: String::new() };
        let rows = ["block.rs", "whole.rs", "absent.rs"].map(row);
        let text = |path: &str| match path {
            "block.rs" => "fn f() {\n    unsafe { g() }\n}\n".to_string(),
            _ => "unsafe impl Send for X {}\nfn f() {}\n".to_string(),
        };
        let counts = |block: usize| {
            let files = [("block.rs".to_string(), Lines::from([block])), ("whole.rs".to_string(), Lines::from([2]))];
            BTreeMap::from([("miri::heap".to_string(), BTreeMap::from(files))])
        };
        assert_eq!(missed(&rows, &counts(2), text), ["absent.rs: miri::heap does not reach it"]);
        assert_eq!(missed(&rows, &counts(1), text).len(), 2);
        let rows = rows.map(|row| executed::Row { why: "not counted: it is loaded".into(), ..row });
        assert_eq!(missed(&rows, &counts(1), text), [""; 0]);
    }
}
