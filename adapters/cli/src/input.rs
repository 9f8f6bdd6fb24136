//! The traces of a command: finds them, opens them, names them, and protects them from outputs.
//!
//! Promises upward: `-` is standard input; a folder stands for the traces in it; names are distinct and free of control characters; no
//! output replaces an input.
//! Asks from below: the reader of recordings; a file system.

use crate::failure::Failure;
use crate::output::print_error;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};
use terrace::recording::{Reader, TraceError};

/// How the names of traces in a folder end; each also with one of `PACKED`.
const TRACES: [&str; 5] = [".csv", ".terrace", ".pickle", ".pkl", ".log"];
/// How the names of compressed traces end.
const PACKED: [&str; 2] = [".gz", ".zst"];

/// A trace of the command line: a file, or one device of it.
#[derive(Clone, Debug)]
pub struct TraceInput {
    pub path: PathBuf,
    /// A name that no other trace of the command has.
    pub name: String,
    /// The device of a snapshot; `None`: the first that it has a history of.
    device: Option<u32>,
    /// Whether it was found in a folder: then others are read even if this one cannot be.
    in_folder: bool,
}

impl TraceInput {
    /// Opens the trace.
    pub fn open(&self) -> Result<Reader<'static>, TraceError> {
        let reader = open(&self.path)?;
        Ok(match self.device {
            Some(device) => reader.device(device),
            None => reader,
        })
    }
}

/// Says what a reader left out of a trace, and what it added.
pub fn tell_remark(name: &str, remark: Option<String>) {
    if let Some(remark) = remark {
        print_error(&format!("{name}: {remark}"));
    }
}

/// Whether a path means standard input.
fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a trace.
pub fn open(path: &Path) -> Result<Reader<'static>, TraceError> {
    if is_standard_input(path) { Reader::new("standard input", io::stdin().lock()) } else { Reader::open(path) }
}

/// Finds the traces that the command line names, in order; those of a folder by name.
///
/// A snapshot of several devices is a trace for each, unless `device` chooses one.
pub fn find(paths: &[PathBuf], device: Option<u32>) -> Result<Vec<TraceInput>, Failure> {
    let (mut inputs, mut names) = (Vec::new(), Vec::new());
    for path in paths {
        let mut files = Vec::new();
        if is_standard_input(path) || !path.is_dir() {
            files.push((path.clone(), [stem(path), stem(path)]));
        } else {
            walk(path, "", &mut files);
        }
        if files.is_empty() {
            let (folder, ends, packed) = (path.display(), TRACES.join(", "), PACKED.join(" or "));
            return Err(Failure::Usage(format!("{folder}: no file ends in {ends}, also with {packed}; give traces")));
        }
        for (file, pair) in files {
            let in_folder = file != *path;
            for (device, end) in devices(&file, device) {
                names.push(pair.clone().map(|name| name + &end));
                inputs.push(TraceInput { path: file.clone(), name: String::new(), device, in_folder });
            }
        }
    }
    inputs.iter_mut().zip(distinct(&names)).for_each(|(input, name)| input.name = name);
    Ok(inputs)
}

/// Lists the traces of a folder and of the folders in it, with their names: without their endings, and whole.
///
/// A folder that cannot be read is listed as if it were a trace, so that reading it says why.
fn walk(folder: &Path, prefix: &str, files: &mut Vec<(PathBuf, [String; 2])>) {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let Ok(mut entries) = entries else {
        files.push((folder.into(), [stem(folder), stem(folder)]));
        return;
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().replace(no_text, "_"));
        if name.starts_with('.') {
            continue;
        }
        // Links to folders are not followed: they may lead back.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, &format!("{prefix}{name}-"), files);
        } else if is_trace(&name) && fs::metadata(&path).map_or(true, |data| data.is_file()) {
            // No pipes, which may have no writer. A link that leads nowhere is told when it is read.
            files.push((path.clone(), [stem(&path), name].map(|name| format!("{prefix}{name}"))));
        }
    }
}

/// Whether a file of a folder is a trace, by its name.
fn is_trace(name: &str) -> bool {
    let unpacked = PACKED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    TRACES.iter().any(|end| unpacked.ends_with(end))
}

/// The devices of a trace to read, each with what its name ends in.
fn devices(path: &Path, device: Option<u32>) -> Vec<(Option<u32>, String)> {
    // A pipe can be read once.
    let several = device.is_none() && !is_standard_input(path) && fs::metadata(path).is_ok_and(|data| data.is_file());
    // What is wrong with the trace is told when it is read.
    let found = if several { open(path).and_then(Reader::devices).unwrap_or_default() } else { Vec::new() };
    match &found[..] {
        [] | [_] => vec![(device, String::new())],
        many => many.iter().map(|number| (Some(*number), format!("-device-{number}"))).collect(),
    }
}

/// Does something with each trace; those of a folder that cannot be read are told and left out.
///
/// The second result is an error if any was left out, for the command to end with.
pub fn for_each<T>(
    inputs: &[TraceInput],
    mut act: impl FnMut(&TraceInput) -> Result<T, Failure>,
) -> Result<(Vec<T>, Result<(), Failure>), Failure> {
    let mut done = Vec::new();
    for input in inputs {
        match act(input) {
            Ok(result) => done.push(result),
            Err(failure) if input.in_folder && failure.exit_code() == 2 => print_error(&failure.to_string()),
            Err(failure) => return Err(failure),
        }
    }
    let (read, all) = (done.len(), inputs.len());
    let missing = || Failure::Usage(format!("{} of {all} traces could not be read, see above", all - read));
    match read {
        0 => Err(missing()),
        _ => Ok((done, if read == all { Ok(()) } else { Err(missing()) })),
    }
}

/// Names of the traces in these files: file names without directories and extensions.
///
/// Repeated names get a number appended; characters that no picture or terminal can show become `_`.
pub fn names(paths: &[PathBuf]) -> Vec<String> {
    distinct(&paths.iter().map(|path| [stem(path), stem(path)]).collect::<Vec<_>>())
}

/// The first of each pair; if it is repeated the second, and if that is taken too, the first with a number.
fn distinct(pairs: &[[String; 2]]) -> Vec<String> {
    let mut taken: HashSet<String> = pairs.iter().map(|[stem, _]| stem.clone()).collect();
    let mut seen = HashSet::new();
    let mut names = Vec::with_capacity(pairs.len());
    for [stem, whole] in pairs {
        let mut name = stem.clone();
        if !seen.insert(stem) {
            let numbered = (2u64..).map(|n| format!("{stem}-{n}"));
            let free = |name: &String| !taken.contains(name);
            name = std::iter::once(whole.clone()).chain(numbered).find(free).unwrap_or(name);
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
    for end in PACKED.iter().chain(&TRACES) {
        name = name.strip_suffix(end).unwrap_or(name);
    }
    // Pictures and pages have the name with an end: 255 bytes are a file name's most.
    let name = &name[..name.floor_char_boundary(200)];
    if name.is_empty() { "trace".into() } else { name.replace(no_text, "_") }
}

/// Whether no picture and no terminal can show a character.
fn no_text(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Refuses outputs that would overwrite an input or each other.
pub fn refuse_overwrites(inputs: &[TraceInput], outputs: &[&Path]) -> Result<(), Failure> {
    // Standard input may be a file, which its name in /dev leads to.
    let of = |path: &Path| if is_standard_input(path) { PathBuf::from("/dev/stdin") } else { path.into() };
    let inputs: HashSet<PathBuf> = inputs.iter().filter_map(|input| fs::canonicalize(of(&input.path)).ok()).collect();
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
