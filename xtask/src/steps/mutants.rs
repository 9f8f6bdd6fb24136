//! Mutants: lines of the library changed one at a time by cargo-mutants, each of which must make a test fail (row Q5).
//!
//! Two draws, both told by `docs/mutants.toml`: of the functions that make a row of `docs/features.md` true, each mutant against
//! that row's tests only; and some of all libraries, each against its package's tests. What survives without a reason fails.
//!
//! Promises upward: `mutants::ROW` for each row, `mutants::PACKAGE` for what was drawn; a table, and the share that survives.
//! `TERRACE_MUTANTS=A1,B3` runs these only. A whole run takes hours: what an earlier run
//! found of the same line is not run again, what survived is.
//! Asks from below: cargo-mutants, cargo-nextest; a clone of the commit under `target/mutants`, which it changes.

mod selection;

use crate::checks::features::{self, Row};
use crate::checks::mutants::PATH;
use crate::command::{execute, output_of, root};
use crate::install;
use crate::options::{Options, chosen};
use crate::report::Report;
use crate::rules;
use selection::{Selection, programs};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mutants of one row at most: 70 rows and 8 of each are below 600.
const PER_ROW: usize = 8;

/// What cargo-mutants calls a mutant that no test found.
const SURVIVED: &str = "MissedMutant";

/// One change that cargo-mutants can make.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mutant {
    package: String,
    file: String,
    function: String,
    /// With the place in the file: what cargo-mutants calls it.
    name: String,
    /// Where in the file, from 1, and what stands there.
    line: (usize, String),
    /// The file, how it is changed, the column and the line: the same when lines above change.
    key: String,
}

/// What is to be run together: mutants, and the tests that must find them.
struct Group {
    name: String,
    mutants: Vec<Mutant>,
    tests: Vec<String>,
}

/// The step.
pub fn run(options: &Options, report: &mut Report) {
    for tool in ["mutants", "nextest"] {
        if let Err(missing) = install::cargo_tool(options, tool) {
            return report.skip("mutants::all", &missing);
        }
    }
    let wanted = chosen("TERRACE_MUTANTS");
    let prepared = tree().and_then(|tree| {
        let plan = rules::mutants(PATH)?;
        Ok((groups(&plan, &all(&tree)?, &features::rows()?)?, plan.reasons, tree))
    });
    let (groups, reasons, tree) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return report.fail("mutants::plan", &why),
    };
    let mut known = Known::load(&groups);
    let mut total = [0; 3];
    for group in groups.iter().filter(|group| wanted(&group.name)) {
        let name = format!("mutants::{}", group.name);
        match judge(group, &tree, &mut known) {
            Err(why) => report.fail(&name, &why),
            Ok(survivors) => {
                let (excused, bare): (Vec<&str>, Vec<&str>) =
                    survivors.iter().partition(|key| reasons.contains_key(**key));
                let viable =
                    group.mutants.iter().filter(|mutant| known.of(&id(group, mutant)) != Some("Unviable")).count();
                total = [total[0] + viable, total[1] + excused.len(), total[2] + bare.len()];
                println!(
                    "{name:<24} {:>3} mutants, {} survive, {} of them with a reason",
                    viable,
                    survivors.len(),
                    excused.len()
                );
                report.verdict(&name, if bare.is_empty() { Ok(()) } else { Err(bare.join("\n")) });
            }
        }
    }
    let [all, excused, bare] = total;
    let share = 100.0 * (excused + bare) as f64 / (all.max(1)) as f64;
    println!("{all} mutants: {} survive ({share:.1} %), {excused} of them with a reason", excused + bare);
}

/// Every mutant of the workspace.
fn all(tree: &Path) -> Result<Vec<Mutant>, String> {
    let folder = tree.display().to_string();
    let text = output_of("cargo", &["mutants", "--no-config", "--list", "--json", "--dir", &folder])
        .ok_or("`cargo mutants --list` failed")?;
    let list: Value = serde_json::from_str(&text).map_err(|error| format!("cargo mutants: {error}"))?;
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut mutants = Vec::new();
    for value in list.as_array().into_iter().flatten() {
        let word = |at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_string();
        let (file, name) = (word("/file"), word("/name"));
        let lines = sources.entry(file.clone()).or_insert_with(|| {
            let text = fs::read_to_string(tree.join(&file)).unwrap_or_default();
            text.lines().map(String::from).collect()
        });
        let line = value.pointer("/span/start/line").and_then(Value::as_u64).unwrap_or(1) as usize;
        let how = name.splitn(4, ':').nth(3).unwrap_or_default().trim();
        let column = value.pointer("/span/start/column").and_then(Value::as_u64).unwrap_or(0);
        let text = lines.get(line - 1).cloned().unwrap_or_default();
        let key = format!("{file}: {how} | {column}: {}", text.trim());
        let (package, function) = (word("/package"), word("/function/function_name"));
        mutants.push(Mutant { package, function, file, name, line: (line, text), key });
    }
    Ok(mutants)
}

/// What is to be run, rows first.
fn groups(plan: &rules::Mutants, all: &[Mutant], rows: &[Row]) -> Result<Vec<Group>, String> {
    let mut groups = Vec::new();
    for row in rows.iter().filter(|row| !row.tests.is_empty()) {
        let (functions, without) = (plan.rows.get(&row.id), plan.without.get(&row.id));
        let functions = match (functions, without) {
            (Some(functions), None) => functions,
            (None, Some(_)) => continue,
            _ => return Err(format!("{PATH}: row {} stands in one of [rows] and [without]", row.id)),
        };
        let mut mutants = Vec::new();
        for function in functions {
            let of = |mutant: &&Mutant| format!("{}: {}", mutant.file, mutant.function) == *function;
            let found: Vec<_> = all.iter().filter(of).cloned().collect();
            if found.is_empty() {
                return Err(format!("{PATH}: {}: no mutant of `{function}`", row.id));
            }
            mutants.extend(found);
        }
        groups.push(Group {
            name: row.id.clone(),
            mutants: draw(mutants, PER_ROW, plan.seed),
            tests: row.tests.clone(),
        });
    }
    let libraries: Vec<_> = all.iter().filter(|mutant| plan.tests.contains_key(&mutant.package)).cloned().collect();
    let drawn = draw(libraries, plan.drawn, plan.seed);
    for (package, tests) in &plan.tests {
        let mutants = drawn.iter().filter(|mutant| mutant.package == *package).cloned().collect();
        groups.push(Group { name: package.clone(), mutants, tests: tests.clone() });
    }
    Ok(groups)
}

/// Chooses at most `most` of them by a hash: the same seed and the same lines give the same choice.
fn draw(mut mutants: Vec<Mutant>, most: usize, seed: u64) -> Vec<Mutant> {
    mutants.sort_by_cached_key(|mutant| (hash(seed, &mutant.key), mutant.name.clone()));
    mutants.truncate(most);
    mutants
}

/// FNV-1a (Fowler, Noll, Vo), of the seed and then the text.
fn hash(seed: u64, text: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The clone whose files are changed, at this commit.
fn tree() -> Result<PathBuf, String> {
    let tree = root().join("target/mutants/tree");
    let git = |words: &[&str]| execute("mutants-tree", Command::new("git").current_dir(root()).args(words)).verdict();
    let (here, there) = (root().display().to_string(), tree.display().to_string());
    if !tree.exists() {
        git(&["clone", "--quiet", "--local", &here, &there])?;
    }
    git(&["-C", &there, "fetch", "--quiet", &here, "HEAD"])?;
    git(&["-C", &there, "checkout", "--quiet", "--force", "FETCH_HEAD"])?;
    Ok(tree)
}

/// The keys of the mutants of a group that no test finds.
///
/// In stages: what the tests of one find is not built for the next.
fn judge<'a>(group: &'a Group, tree: &Path, known: &mut Known) -> Result<Vec<&'a str>, String> {
    let open = |mutant: &&Mutant| known.of(&id(group, mutant)).is_none_or(|outcome| outcome == SURVIVED);
    let mut left: Vec<&Mutant> = group.mutants.iter().filter(open).collect();
    let stages = stages(&group.tests);
    if stages.is_empty() {
        return Err("no test that cargo runs: name one, or put the row under [without]".into());
    }
    for (at, (package, tests)) in stages.into_iter().enumerate() {
        if left.is_empty() {
            break;
        }
        let found = run_mutants(&format!("{}-{at}-{package}", group.name), &tests, &left, tree)?;
        for mutant in &left {
            known.note(&id(group, mutant), &found[&mutant.name])?;
        }
        left.retain(|mutant| found[&mutant.name] == SURVIVED);
    }
    let missed = |mutant: &&Mutant| known.of(&id(group, mutant)) == Some(SURVIVED);
    Ok(group.mutants.iter().filter(missed).map(|mutant| mutant.key.as_str()).collect())
}

/// The tests that cargo runs, by packages, in the order in which these are first named. All tests of a package, `PACKAGE/*`, come
/// apart from some of it: named behind those, they are built for what those do not find.
fn stages(tests: &[String]) -> Vec<(&str, Vec<String>)> {
    let is_all = |test: &str| test.ends_with("/*");
    let mut stages: Vec<(&str, Vec<String>)> = Vec::new();
    for test in tests {
        let Some((package, _)) = test.split_once('/').filter(|(_, rest)| !rest.starts_with("doc::")) else { continue };
        let same = |stage: &&mut (&str, Vec<String>)| stage.0 == package && !is_all(test) && !is_all(&stage.1[0]);
        match stages.iter_mut().find(same) {
            Some((_, of)) => of.push(test.clone()),
            None => stages.push((package, vec![test.clone()])),
        }
    }
    stages
}

/// Runs tests against each of some mutants, and returns by their names what these came to.
fn run_mutants(
    name: &str,
    tests: &[String],
    fresh: &[&Mutant],
    tree: &Path,
) -> Result<BTreeMap<String, String>, String> {
    let (out, selection) = (root().join("target/mutants").join(name), Selection::of(tests, &programs()?));
    // Not used code is a warning, not an end.
    let lax = |mut command: Command| {
        command.env("RUSTFLAGS", "--cap-lints=warn");
        command
    };
    let none = execute(&format!("mutants-{name}-none"), &mut lax(selection.tests(tree)));
    // Tests that take five times as long with a mutant in count as tests that never end.
    let limit = 20 + 5 * seconds(&none.output);
    none.verdict()?;
    let mut command = lax(selection.mutants(tree, &out));
    command.arg(format!("--timeout={limit}"));
    // Names do not choose among changes of fields: lines do.
    let lines = root().join("target/mutants/lines.diff");
    fs::write(&lines, diff(fresh)).map_err(|error| format!("{}: {error}", lines.display()))?;
    command.arg("--in-diff").arg(lines);
    command.args(fresh.iter().map(|mutant| format!("--re=^{}$", escaped(&mutant.name))));
    command.args(["--", "-E", &selection.names]);
    let finished = execute(&format!("mutants-{name}"), &mut command);
    let outcomes = fs::read_to_string(out.join("mutants.out/outcomes.json")).map_err(|_| finished.output.clone())?;
    let found = outcomes_of(&outcomes)?;
    if fresh.iter().all(|mutant| found.contains_key(&mutant.name)) { Ok(found) } else { Err(finished.output) }
}

/// What the outcome is kept under.
fn id(group: &Group, mutant: &Mutant) -> String {
    format!("{}: {}", group.name, mutant.key)
}

/// As if the lines of these mutants were new.
fn diff(mutants: &[&Mutant]) -> String {
    let mut files: BTreeMap<&str, BTreeSet<&(usize, String)>> = BTreeMap::new();
    mutants.iter().for_each(|mutant| _ = files.entry(&mutant.file).or_default().insert(&mutant.line));
    let mut text = String::new();
    for (file, lines) in files {
        text += &format!("--- a/{file}\n+++ b/{file}\n");
        for (before, (line, new)) in lines.iter().enumerate() {
            text += &format!("@@ -{},0 +{line},1 @@\n+{new}\n", line - 1 - before);
        }
    }
    text
}

/// Name of a mutant -> what it came to.
fn outcomes_of(text: &str) -> Result<BTreeMap<String, String>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("outcomes.json: {error}"))?;
    let outcome = |value: &Value| {
        let name = value.pointer("/scenario/Mutant/name")?.as_str()?;
        Some((name.to_string(), value.get("summary")?.as_str()?.to_string()))
    };
    Ok(value["outcomes"].as_array().into_iter().flatten().filter_map(outcome).collect())
}

/// The time in nextest's `Summary [   1.408s] 7 tests run`, rounded up.
fn seconds(output: &str) -> u64 {
    let text = output.lines().filter_map(|line| line.trim().strip_prefix("Summary [")).next_back();
    let number = text.and_then(|text| text.trim().split('s').next()?.parse::<f64>().ok());
    number.map_or(0, |seconds| seconds.ceil() as u64)
}

/// For a regular expression.
fn escaped(text: &str) -> String {
    let special = |letter| r"\.+*?()|[]{}^$#&-~".contains(letter);
    text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}

/// What earlier runs found, one line each: `OUTCOME GROUP: KEY`. A line whose code has changed names no mutant any more, and goes.
struct Known(BTreeMap<String, String>);

impl Known {
    fn path() -> PathBuf {
        root().join("docs/mutants-found.txt")
    }

    fn load(groups: &[Group]) -> Self {
        Self::parse(&fs::read_to_string(Self::path()).unwrap_or_default(), groups)
    }

    fn parse(text: &str, groups: &[Group]) -> Self {
        let ids: BTreeSet<String> =
            groups.iter().flat_map(|group| group.mutants.iter().map(|mutant| id(group, mutant))).collect();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        Self(lines.filter(|(_, id)| ids.contains(*id)).map(|(outcome, id)| (id.into(), outcome.into())).collect())
    }

    fn of(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    fn note(&mut self, id: &str, outcome: &str) -> Result<(), String> {
        self.0.insert(id.into(), outcome.into());
        let text: String = self.0.iter().map(|(id, outcome)| format!("{outcome} {id}\n")).collect();
        fs::write(Self::path(), text).map_err(|error| format!("{}: {error}", Self::path().display()))
    }
}

#[cfg(test)]
#[path = "mutants_tests.rs"]
mod tests;
