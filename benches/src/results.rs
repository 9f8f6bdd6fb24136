//! What a run leaves behind: one JSON file with every raw sample.
//!
//! Promises upward: nothing is ever overwritten; every benchmark's file begins with the same fields.
//! Asks from below: a folder that can be written.

use crate::machine::{self, Machine};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the files' format.
const FORMAT: u32 = 1;

/// What a subject was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Title of the subject.
    pub subject: String,
    /// Granule, capacity and the like, in words.
    pub what: String,
}

/// What every benchmark's file begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// When it began, UTC.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Load of the machine over the minute before, where it is known. Above 0.5 the times are not worth keeping.
    pub load: Option<f64>,
    /// The command that repeats it.
    pub command: String,
    /// What each subject was given.
    pub given: Vec<Given>,
}

impl Header {
    /// Of a run that begins now.
    pub fn now(command: String, given: Vec<Given>) -> Self {
        Self { format: FORMAT, date: machine::now(), machine: Machine::here(), load: machine::load(), command, given }
    }

    /// Subjects, in the order of `given`.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(|given| given.subject.as_str())
    }

    /// The day, UTC.
    pub fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or(&self.date)
    }
}

/// Writes results, whose header this is, as DATE-MACHINE.json into a folder. Returns the path without extension, for what
/// belongs beside the file.
///
/// # Errors
/// The folder cannot be made or the file not be written.
pub fn keep(results: &impl Serialize, header: &Header, folder: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let (mut file, stem) = create(folder, &format!("{}-{}", header.day(), header.machine.name()))?;
    let mut text = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    Ok(stem)
}

/// A new file NAME.json, or NAME-2.json and so on where earlier ones are.
fn create(folder: &Path, name: &str) -> io::Result<(std::fs::File, PathBuf)> {
    let mut n = 1;
    loop {
        let stem = folder.join(if n == 1 { name.to_owned() } else { format!("{name}-{n}") });
        // Not `with_extension`: a processor's name may have a dot in it.
        match std::fs::File::create_new(beside(&stem, "json")) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            file => return file.map(|file| (file, stem)),
        }
    }
}

/// A path with an extension appended.
pub fn beside(stem: &Path, extension: &str) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A header, for the tests of what is printed and drawn too.
    pub fn header(subjects: &[&str]) -> Header {
        let given = |subject: &&str| Given { subject: (*subject).into(), what: "memory".into() };
        Header {
            format: FORMAT,
            date: "2026-01-31T12:00:00Z".into(),
            machine: Machine { cpu: "A".into(), cores: 1, system: "s".into() },
            load: Some(0.25),
            command: "c".into(),
            given: subjects.iter().map(given).collect(),
        }
    }

    #[test]
    fn earlier_results_stay() {
        let (folder, results) = (tempfile::tempdir().unwrap(), header(&["a"]));
        let [first, second] = [(); 2].map(|()| keep(&results, &results, folder.path()).unwrap());
        assert_eq!(first.file_name().unwrap(), "2026-01-31-a-1-core");
        assert_eq!(second.file_name().unwrap(), "2026-01-31-a-1-core-2");
        for stem in [first, second] {
            let text = std::fs::read_to_string(beside(&stem, "json")).unwrap();
            assert_eq!(serde_json::from_str::<Header>(&text).unwrap(), results);
        }
    }
}
