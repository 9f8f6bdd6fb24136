//! `docs/rules.toml`: the tables of what the checks hold.
//!
//! Promises upward: every table by type; a key that no check reads is an error, so the file cannot drift.
//! Asks from below: the file.

use crate::command::root;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Where the tables stand.
pub const PATH: &str = "docs/rules.toml";

/// A name and why it is there.
pub type Reasons = BTreeMap<String, String>;

/// Modules of one library, lowest layer first.
pub type Layers = Vec<Vec<String>>;

/// All tables.
#[derive(Debug, Default)]
pub struct Rules {
    /// For each library's folder, its modules, lowest layer first.
    pub layers: BTreeMap<String, Layers>,
    /// Outside paths, and the only modules of the core that may name them.
    pub only: BTreeMap<String, Vec<String>>,
    /// For each package of the project, those it may depend on.
    pub crates: BTreeMap<String, Vec<String>>,
    /// For a library's folder, the names that its root may show.
    pub root: BTreeMap<String, usize>,
    /// For a feature, `PACKAGE/FEATURE`: the packages that it builds.
    pub builds: BTreeMap<String, Vec<String>>,
    /// Rust files that may contain `unsafe`.
    pub unsafe_files: Reasons,
    /// Lines a Rust file may have.
    pub max_lines: usize,
    /// Rust files that may be longer.
    pub long_files: Reasons,
    /// Words that stand in no file.
    pub words: Reasons,
    /// Type names that several modules define, with their one meaning.
    pub same: Reasons,
    /// Words that comments of libraries do without.
    pub comments: Reasons,
    /// Folders of libraries whose names and comments are held to both.
    pub plain: Vec<String>,
    /// Licences of dependencies.
    pub licences: Reasons,
}

/// What `docs/mutants.toml` says.
#[derive(Debug)]
pub struct Mutants {
    /// Of the draws.
    pub seed: u64,
    /// How many of all libraries.
    pub drawn: usize,
    /// For each library, the tests that must find what is drawn of it.
    pub tests: BTreeMap<String, Vec<String>>,
    /// For each row, the functions that make it true: `FILE: FUNCTION`.
    pub rows: BTreeMap<String, Vec<String>>,
    /// Rows that no function of ours makes true.
    pub without: Reasons,
    /// Mutants that no test can find.
    pub reasons: Reasons,
}

/// Reads that file.
///
/// # Errors
/// What is missing or wrong, with its key.
pub fn mutants(path: &str) -> Result<Mutants, String> {
    let text = std::fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
    let read = || {
        let mut table: Table = text.parse().map_err(|error| format!("{error}"))?;
        let mut number = |key| {
            take(&mut table, key)?
                .as_integer()
                .and_then(|n| u64::try_from(n).ok())
                .ok_or(format!("`{key}` is no number"))
        };
        let (seed, drawn) = (number("seed")?, number("drawn")? as usize);
        Ok(Mutants {
            seed,
            drawn,
            tests: lists(take_table(&mut table, "tests")?)?,
            rows: lists(take_table(&mut table, "rows")?)?,
            without: reasons(take_table(&mut table, "without")?)?,
            reasons: reasons(take_table(&mut table, "reasons")?)?,
        })
    };
    read().map_err(|why: String| format!("{path}: {why}"))
}

/// Reads the file.
///
/// # Errors
/// What is missing or wrong, with its key.
pub fn load() -> Result<Rules, String> {
    let text = std::fs::read_to_string(root().join(PATH)).map_err(|error| format!("{PATH}: {error}"))?;
    parse(&text).map_err(|error| format!("{PATH}: {error}"))
}

/// Reads the text of the file.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str) -> Result<Rules, String> {
    let mut table: Table = text.parse().map_err(|error| format!("{error}"))?;
    let mut length = take_table(&mut table, "length")?;
    let max_lines = take(&mut length, "max")?.as_integer().and_then(|max| usize::try_from(max).ok());
    let rules = Rules {
        layers: layers(take_table(&mut table, "layers")?)?,
        only: lists(take_table(&mut table, "only")?)?,
        crates: lists(take_table(&mut table, "crates")?)?,
        root: counts(take_table(&mut table, "root")?)?,
        builds: lists(take_table(&mut table, "builds")?)?,
        unsafe_files: reasons(take_table(&mut table, "unsafe")?)?,
        max_lines: max_lines.ok_or("length.max is no number of lines")?,
        long_files: reasons(take_table(&mut length, "longer")?)?,
        words: reasons(take_table(&mut table, "words")?)?,
        same: reasons(take_table(&mut table, "same")?)?,
        comments: reasons(take_table(&mut table, "comments")?)?,
        plain: names(&take(&mut table, "plain")?)?,
        licences: reasons(take_table(&mut table, "licences")?)?,
    };
    match table.keys().chain(length.keys()).next() {
        Some(key) => Err(format!("no check reads `{key}`")),
        None => Ok(rules),
    }
}

fn take(table: &mut Table, key: &str) -> Result<Value, String> {
    table.remove(key).ok_or_else(|| format!("`{key}` is missing"))
}

fn take_table(table: &mut Table, key: &str) -> Result<Table, String> {
    match take(table, key)? {
        Value::Table(inner) => Ok(inner),
        _ => Err(format!("`{key}` is no table")),
    }
}

fn layers(table: Table) -> Result<BTreeMap<String, Layers>, String> {
    let of = |(folder, value): (String, Value)| {
        let list = value.as_array().ok_or_else(|| format!("layers of {folder}: no list"))?;
        Ok((folder, list.iter().map(names).collect::<Result<_, _>>()?))
    };
    table.into_iter().map(of).collect()
}

fn lists(table: Table) -> Result<BTreeMap<String, Vec<String>>, String> {
    table.into_iter().map(|(key, value)| Ok((key, names(&value)?))).collect()
}

fn counts(table: Table) -> Result<BTreeMap<String, usize>, String> {
    let count = |(key, value): (String, Value)| {
        let count = value.as_integer().and_then(|count| usize::try_from(count).ok());
        Ok((key.clone(), count.ok_or_else(|| format!("`{key}` is no number"))?))
    };
    table.into_iter().map(count).collect()
}

fn names(value: &Value) -> Result<Vec<String>, String> {
    let name = |value: &Value| value.as_str().map(String::from);
    let list = value.as_array().and_then(|list| list.iter().map(name).collect::<Option<_>>());
    list.ok_or_else(|| format!("{value:?} is no list of names"))
}

/// Every entry says why.
fn reasons(table: Table) -> Result<Reasons, String> {
    let reason = |(key, value): (String, Value)| match value.as_str().filter(|why| !why.is_empty()) {
        Some(why) => Ok((key, why.to_string())),
        None => Err(format!("`{key}` does not say why")),
    };
    table.into_iter().map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "plain = []\n[layers]\ncore = [[\"error\"], [\"index\"]]\n[only]\nloom = [\"sync\"]\n[crates]\na = []\n[root]\na = 25\n[builds]\n\
                        [unsafe]\n[length]\nmax = 400\n[length.longer]\n[words]\n[same]\n[comments]\n[licences]\nMIT = \"ours\"\n";

    #[test]
    fn reads_the_tables() {
        let rules = parse(GOOD).expect("it is good");
        assert_eq!(rules.layers["core"], [["error"], ["index"]]);
        assert_eq!((rules.only["loom"].as_slice(), rules.root["a"]), (["sync".to_string()].as_slice(), 25));
        assert_eq!((rules.max_lines, rules.licences["MIT"].as_str()), (400, "ours"));
    }

    #[test]
    fn refuses_what_no_check_reads_and_what_has_no_reason() {
        assert!(parse(&format!("{GOOD}[more]\n")).is_err_and(|error| error.contains("more")));
        assert!(parse(&GOOD.replace("\"ours\"", "\"\"")).is_err_and(|error| error.contains("why")));
        assert!(parse(&GOOD.replace("[unsafe]\n", "")).is_err_and(|error| error.contains("unsafe")));
    }

    #[test]
    fn the_project_has_its_rules() {
        assert_eq!(load().map(|_| ()), Ok(()));
    }
}
