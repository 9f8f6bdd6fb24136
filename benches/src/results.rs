//! What a run leaves behind: one JSON file with every raw sample.
//!
//! Promises upward: the file holds all that is needed to draw and to print again; nothing is ever overwritten. Every
//! benchmark's file begins with the same fields.
//! Asks from below: a folder that can be written.

use crate::cache_hit::Hit;
use crate::instructions::Counted;
use crate::machine::{self, Machine};
use crate::metadata::Share;
use crate::numbers::{Spread, ratios, spread};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the file's format.
pub const FORMAT: u32 = 1;

/// One timed round of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Title of the subject.
    pub subject: String,
    /// Live blocks.
    pub live: u32,
    /// Round, from 0.
    pub round: usize,
    /// Pairs run.
    pub pairs: usize,
    /// Time of all of them in nanoseconds.
    pub ns: u64,
}

/// A subject that was not measured at a live count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Title of the subject.
    pub subject: String,
    /// Live blocks.
    pub live: u32,
    /// Why.
    pub reason: String,
}

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
    /// Version of the benchmark's format.
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
    pub fn now(format: u32, command: String, given: Vec<Given>) -> Self {
        Self { format, date: machine::now(), machine: Machine::here(), load: machine::load(), command, given }
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

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whence. Its fields stand beside the others in the file.
    #[serde(flatten)]
    pub header: Header,
    /// Every timed round, in the order in which they ran.
    pub samples: Vec<Sample>,
    /// What was not measured.
    pub cuts: Vec<Cut>,
    /// Instructions; empty when they were not counted.
    pub instructions: Vec<Counted>,
    /// Why instructions were not counted, if they were not.
    pub instructions_skipped: Option<String>,
    /// Rounds of the cache's hits.
    pub hits: Vec<Hit>,
    /// Records in a full pool.
    pub metadata: Vec<Share>,
}

impl Results {
    /// Live counts, rising.
    pub fn lives(&self) -> Vec<u32> {
        let mut lives: Vec<u32> = self.samples.iter().map(|sample| sample.live).collect();
        lives.extend(self.cuts.iter().map(|cut| cut.live));
        lives.sort_unstable();
        lives.dedup();
        lives
    }

    /// Nanoseconds a pair of each round.
    pub fn times(&self, subject: &str, live: u32) -> Vec<f64> {
        let these = self.samples.iter().filter(|sample| sample.subject == subject && sample.live == live);
        these.map(|sample| sample.ns as f64 / sample.pairs.max(1) as f64).collect()
    }

    /// A subject's times over another's, round by round.
    pub fn ratio(&self, subject: &str, to: &str, live: u32) -> Option<Spread> {
        spread(&ratios(&self.times(subject, live), &self.times(to, live)))
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
    pub fn header(format: u32, subjects: &[&str]) -> Header {
        let given = |subject: &&str| Given { subject: (*subject).into(), what: "memory".into() };
        Header {
            format,
            date: "2026-01-31T12:00:00Z".into(),
            machine: Machine { cpu: "A".into(), cores: 1, system: "s".into() },
            load: Some(0.25),
            command: "c".into(),
            given: subjects.iter().map(given).collect(),
        }
    }

    fn results() -> Results {
        let sample = |subject: &str, round, ns| Sample { subject: subject.into(), live: 10, round, pairs: 100, ns };
        Results {
            header: header(FORMAT, &[]),
            samples: vec![sample("a", 0, 1000), sample("b", 0, 3000), sample("a", 1, 2000), sample("b", 1, 4000)],
            cuts: vec![Cut { subject: "c".into(), live: 5, reason: "slow".into() }],
            instructions: vec![],
            instructions_skipped: Some("no valgrind".into()),
            hits: vec![],
            metadata: vec![],
        }
    }

    #[test]
    fn times_and_ratios_come_from_raw_samples() {
        let results = results();
        assert_eq!(results.lives(), [5, 10]);
        assert_eq!(results.times("b", 10), [30.0, 40.0]);
        assert_eq!(results.ratio("b", "a", 10), Some(Spread { median: 2.5, min: 2.0, max: 3.0 }));
        assert_eq!(results.ratio("c", "a", 10), None);
    }

    #[test]
    fn earlier_results_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| keep(&results(), &results().header, folder.path()).unwrap());
        assert_eq!(first.file_name().unwrap(), "2026-01-31-a-1-core");
        assert_eq!(second.file_name().unwrap(), "2026-01-31-a-1-core-2");
        for stem in [first, second] {
            let text = std::fs::read_to_string(beside(&stem, "json")).unwrap();
            assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results());
        }
    }
}
