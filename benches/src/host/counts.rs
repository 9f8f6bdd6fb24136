//! Instructions: of single functions through the C interface, and as a Rust global allocator; time of the latter.
//!
//! Promises upward: the same loop for all; the difference of twice as many turns to as many, so that start and end cancel
//! out. Through C, the call and the loop are included (about 9); in Rust, an empty loop is taken off.
//! Asks from below: valgrind's callgrind, or where a program reserves more addresses than valgrind has, steps counted by
//! the program itself (`benches/host/steps`).

use super::launch::Job;
use super::libraries::Library;
use super::options::Options;
use super::programs::find;
use super::stage::{Stage, build};
use crate::callgrind::collected;
use crate::results::Given;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terrace_models::rounds::Rounds;

/// Turns under callgrind, and by steps, which take 20 microseconds each.
const TURNS: (u64, u64) = (20_000, 200);
/// Blocks of a batch, as the programs have them.
const BATCH: u64 = 64;

/// Operations through C, with what is printed for them.
pub const INTERFACE: [(&str, &str); 8] = [
    ("pair", "malloc 32 + free"),
    ("batch", "the same, a batch of 64, a block"),
    ("calloc", "calloc 64 + free"),
    ("memalign", "memalign(64, 64) + free"),
    ("realloc", "malloc 16, realloc 32, 64, 128, 256, free"),
    ("large", "malloc 33 KiB + free"),
    ("huge", "malloc 1.2 MB + free"),
    ("vector", "malloc 16, realloc by half up to 64 KiB, free"),
];

/// Operations in Rust, with what is printed for them.
pub const RUST: [(&str, &str); 2] =
    [("pair", "alloc + free of 32 bytes"), ("batch", "the same, a batch of 64, a block")];

/// Allocators that a Rust program can be linked with: name, features of `benches/host/face`.
pub const FACES: [(&str, &[&str]); 7] = [
    ("System", &[]),
    ("terrace", &["terrace"]),
    ("mimalloc2", &["mimalloc2"]),
    ("mimalloc3", &["mimalloc3"]),
    ("jemalloc", &["jemalloc"]),
    ("snmalloc", &["snmalloc"]),
    ("rpmalloc", &["rpmalloc"]),
];

/// The one that times are compared with.
pub const FASTEST: &str = "snmalloc";

/// How they are all built.
pub const SETTINGS: &str = "static; Rust at opt-level 3, fat LTO, one codegen unit, panic = abort; C and C++ as their crates \
                            build them in release, with NDEBUG; rpmalloc with its thread and global caches";

/// Instructions of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The allocator's name.
    pub subject: String,
    /// The operation's key.
    pub operation: String,
    /// Instructions of one turn; of a batch, for each block.
    pub instructions: f64,
    /// Whether they were counted in steps.
    pub steps: bool,
}

/// One timing of a Rust program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// The allocator's name.
    pub subject: String,
    /// Round, from 0.
    pub round: usize,
    /// Nanoseconds of a pair.
    pub pair_ns: f64,
    /// Nanoseconds of a block of a batch.
    pub batch_ns: f64,
}

/// A program that counts: `count` and `steps` are words that it takes before the operation.
struct Counter<'a> {
    executable: &'a Path,
    preload: Option<&'a Path>,
    count: &'a str,
    stage: &'a Stage,
}

impl Counter<'_> {
    /// Instructions of one turn.
    fn one(&self, operation: &str) -> Result<(f64, bool), String> {
        let batch = operation.starts_with("batch");
        let turns = TURNS.0 / if batch { BATCH } else { 1 };
        match (self.callgrind(operation, turns), self.callgrind(operation, 2 * turns)) {
            (Ok(once), Ok(twice)) => Ok(((twice as f64 - once as f64) / turns as f64, false)),
            (Err(reason), _) | (_, Err(reason)) => {
                let turns = (TURNS.1 / if batch { BATCH } else { 1 }).max(1);
                let steps = self.job(self.executable, &["steps", operation, &turns.to_string()]).run();
                steps.map_err(|said| format!("{reason}; in steps: {said}"))?;
                let steps: f64 = self.stage.output()?.trim().parse().map_err(|_| "steps: no number".to_owned())?;
                Ok((steps / turns as f64, true))
            }
        }
    }

    fn callgrind(&self, operation: &str, turns: u64) -> Result<u64, String> {
        let valgrind =
            find("valgrind").ok_or("valgrind is not there; install it (Debian: apt-get install valgrind)")?;
        let (file, own) = (self.stage.file("counts"), self.executable.to_string_lossy());
        let out = format!("--callgrind-out-file={}", file.display());
        let words = ["--tool=callgrind", &out, &own, self.count, operation, &turns.to_string()];
        self.job(&valgrind, &words).run().map_err(|reason| format!("callgrind: {reason}"))?;
        collected(&file)
    }

    fn job(&self, executable: &Path, words: &[&str]) -> Job {
        Job { preload: self.preload.map(Path::to_path_buf), ..self.stage.job(executable, words) }
    }

    /// Counts some operations; in Rust, an empty loop is taken off.
    fn all(&self, subject: &str, operations: &[(&str, &str)], found: &mut Found, step: &mut dyn FnMut(&str)) {
        let rust = self.count == "count";
        for &(operation, title) in operations {
            let what = if rust { format!("{title} in Rust, {subject}") } else { format!("{title} of {subject}") };
            step(&format!("instructions: {what}"));
            let net = self.one(operation).and_then(|(turn, steps)| {
                let empty = if rust { self.one(&format!("{operation}-empty"))?.0 } else { 0.0 };
                Ok(((turn - empty) / if operation == "batch" { BATCH as f64 } else { 1.0 }, steps))
            });
            match net {
                Ok((instructions, steps)) => {
                    let (subject, operation) = (subject.to_owned(), operation.to_owned());
                    found.0.push(Counted { subject, operation, instructions, steps });
                }
                Err(reason) => found.1.push(Given { subject: what, what: reason }),
            }
        }
    }
}

/// What was counted, and what failed, with its reason.
type Found = (Vec<Counted>, Vec<Given>);

/// Counts the C interface of each library.
pub fn interface(libraries: &[Library], stage: &Stage, step: &mut dyn FnMut(&str)) -> Found {
    let mut found = Found::default();
    for Library { name, path, .. } in libraries {
        let counter = Counter { executable: &stage.shapes, preload: path.as_deref(), count: "interface", stage };
        counter.all(name, &INTERFACE, &mut found, step);
    }
    found
}

/// A Rust program for each allocator that can be linked.
pub fn faces(options: &Options, step: &mut dyn FnMut(&str)) -> (Vec<(&'static str, PathBuf)>, Vec<Given>) {
    let (mut faces, mut missing) = (Vec::new(), Vec::new());
    for (name, features) in FACES.into_iter().filter(|(name, _)| *name == "System" || options.wants(name)) {
        step(&format!("building a Rust program with {name}"));
        // Each has its own folder: the executables have one name.
        match build("terrace-host-face", features, &format!("face-{name}")) {
            Ok(path) => faces.push((name, path)),
            Err(reason) => missing.push(Given { subject: format!("a Rust program with {name}"), what: reason }),
        }
    }
    (faces, missing)
}

/// Counts Rust programs.
pub fn rust(faces: &[(&'static str, PathBuf)], stage: &Stage, step: &mut dyn FnMut(&str)) -> Found {
    let mut found = Found::default();
    for (name, executable) in faces {
        Counter { executable, preload: None, count: "count", stage }.all(name, &RUST, &mut found, step);
    }
    found
}

/// Times Rust programs, in turn. One that fails is not run again.
pub fn times(
    faces: &mut [(&'static str, PathBuf)],
    rounds: usize,
    stage: &Stage,
    step: &mut dyn FnMut(&str),
) -> (Vec<Timed>, Vec<Given>) {
    Rounds::new(rounds).run(faces, |(name, executable), round| {
        let what = format!("time in Rust, {name}");
        step(&what);
        match time(executable, stage) {
            Ok((pair_ns, batch_ns)) => Ok(Timed { subject: (*name).into(), round, pair_ns, batch_ns }),
            Err(reason) => Err(Given { subject: what, what: reason }),
        }
    })
}

/// Nanoseconds of a pair, and of a block of a batch.
fn time(executable: &Path, stage: &Stage) -> Result<(f64, f64), String> {
    stage.job(executable, &["time"]).run()?;
    let said = stage.output()?;
    let two = said.trim().split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    two.ok_or_else(|| format!("`{}` is no time", said.trim()))
}
