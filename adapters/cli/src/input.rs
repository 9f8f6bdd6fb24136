//! The traces of a command: opens them, names them, and protects them from outputs.
//!
//! Promises upward: `-` is standard input; names are distinct and free of control characters; no output replaces an input.
//! Asks from below: the reader of recordings; a file system.

use crate::failure::Failure;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use terrace::recording::{Reader, TraceError};

/// Whether a path means standard input.
fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a trace.
pub fn open(path: &Path) -> Result<Reader<'static>, TraceError> {
    if is_standard_input(path) { Reader::new("standard input", std::io::stdin().lock()) } else { Reader::open(path) }
}

/// Names of the traces in these files: file names without directories and extensions.
///
/// Repeated names get a number appended; characters that no picture or terminal can show become `_`.
pub fn names(paths: &[PathBuf]) -> Vec<String> {
    let stems: Vec<String> = paths.iter().map(|path| stem(path)).collect();
    let mut taken: HashSet<String> = stems.iter().cloned().collect();
    let mut seen = HashSet::new();
    let mut names = Vec::with_capacity(stems.len());
    for stem in stems {
        let mut name = stem.clone();
        if !seen.insert(stem.clone()) {
            let free = |name: &String| !taken.contains(name);
            name = (2u64..).map(|n| format!("{stem}-{n}")).find(free).unwrap_or(stem);
            taken.insert(name.clone());
        }
        names.push(name);
    }
    names
}

/// A file name without the extensions of traces.
fn stem(path: &Path) -> String {
    if is_standard_input(path) {
        return "stdin".into();
    }
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut name: &str = &name;
    for end in [".gz", ".zst", ".csv", ".terrace"] {
        name = name.strip_suffix(end).unwrap_or(name);
    }
    let no_text = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    if name.is_empty() { "trace".into() } else { name.replace(no_text, "_") }
}

/// Refuses outputs that would overwrite an input or each other.
pub fn refuse_overwrites(inputs: &[PathBuf], outputs: &[&Path]) -> Result<(), Failure> {
    let inputs: HashSet<PathBuf> = inputs.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let mut seen = HashSet::new();
    for path in outputs {
        let output = canonical(path);
        if output.is_file() && inputs.contains(&output) {
            return Err(Failure::Usage(format!("{}: is a trace to replay; write to another file", path.display())));
        }
        // A path that is no regular file (a pipe, `/dev/null`) may take several outputs.
        if !seen.insert(output.clone()) && (output.is_file() || !output.exists()) {
            return Err(Failure::Usage(format!("{}: is to be written twice; give each its own file", path.display())));
        }
    }
    Ok(())
}

/// The canonical path of a file that need not exist.
fn canonical(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = fs::canonicalize(path);
    there.ok().or_else(|| Some(fs::canonicalize(parent).ok()?.join(path.file_name()?))).unwrap_or_else(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Vec<String> {
        names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_distinct_whatever_the_order() {
        assert_eq!(named(&["a/t.csv", "b/t.csv.zst", "t-2.terrace"]), ["t", "t-3", "t-2"]);
        assert_eq!(named(&["t-2.csv", "t.csv", "t.csv", "t.csv"]), ["t-2", "t", "t-3", "t-4"]);
        assert_eq!(named(&["..", ".csv", "-"]), ["trace", "trace-2", "stdin"]);
    }

    #[test]
    fn names_hold_no_control_characters() {
        assert_eq!(named(&["a\x01\x1b[31m\nb\u{ffff}.csv"]), ["a__[31m_b_"]);
    }
}
