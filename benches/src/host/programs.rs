//! The list of programs: twelve that people have, and fifteen of known shape (`benches/host/programs`).
//!
//! Promises upward: the same work in every run, by files that are in the repository or made from a fixed rule; each says
//! which Debian package has it. Asks from below: `stage`.

use super::stage::Stage;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program with its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Row.
    pub name: &'static str,
    /// What runs it.
    pub kind: Kind,
}

/// What runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program that people have: executable, Debian's package, its words (see [`Stage::word`]), what it reads.
    Real(&'static str, &'static str, &'static [&'static str], Option<&'static str>),
    /// A server that `redis` talks to.
    Redis,
    /// One of known shape; its scale, in percent of a work that suits all.
    Shape(usize),
}

const fn real(
    name: &'static str,
    executable: &'static str,
    package: &'static str,
    words: &'static [&'static str],
) -> Program {
    Program { name, kind: Kind::Real(executable, package, words, None) }
}

const fn reading(
    name: &'static str,
    package: &'static str,
    words: &'static [&'static str],
    input: &'static str,
) -> Program {
    Program { name, kind: Kind::Real(name, package, words, Some(input)) }
}

const fn shape(name: &'static str, scale: usize) -> Program {
    Program { name, kind: Kind::Shape(scale) }
}

/// All, real ones first. `@x` is the file `x` of the stage.
pub const PROGRAMS: [Program; 27] = [
    real("python3", "python3", "python3", &["@words.py"]),
    // Python keeps blocks up to 512 bytes from malloc; this one does not.
    real("python3-malloc", "python3", "python3", &["@words.py"]),
    real("perl", "perl", "perl", &["@records.pl"]),
    real("lua", "lua5.4", "lua5.4", &["@trees.lua"]),
    real("bash", "bash", "bash", &["--norc", "@lists.sh"]),
    reading("sqlite3", "sqlite3", &[":memory:"], "shop.sql"),
    real("z3", "z3", "z3", &["@puzzle.smt2"]),
    real(
        "gs",
        "gs",
        "ghostscript",
        &["-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=ppmraw", "-r72", "-sOutputFile=-", "@page.ps"],
    ),
    real("gcc", "gcc", "gcc", &["-O1", "-S", "-o", "-", "@functions.c"]),
    real("g++", "g++", "g++", &["-std=c++17", "-S", "-o", "-", "@templates.cc"]),
    real("git", "git", "git", &["-C", "@repository", "log", "-p", "--stat", "--no-color", "--date=unix"]),
    Program { name: "redis", kind: Kind::Redis },
    shape("simple", 100),
    shape("table", 100),
    shape("batches", 100),
    shape("growth", 100),
    shape("mixed", 100),
    shape("large", 100),
    shape("larson", 100),
    shape("handed", 100),
    shape("scratch", 100),
    shape("thrash", 100),
    shape("passed", 100),
    shape("falling", 100),
    shape("stress", 100),
    shape("apart", 100),
    shape("churn", 100),
];

impl Program {
    /// Whether people have it.
    pub fn is_real(&self) -> bool {
        !matches!(self.kind, Kind::Shape(_))
    }

    /// The executable's path.
    ///
    /// # Errors
    /// It is not there: what to install.
    pub fn executable(&self, stage: &Stage) -> Result<PathBuf, String> {
        let (name, package) = match self.kind {
            Kind::Shape(_) => return Ok(stage.shapes.clone()),
            Kind::Real(executable, package, ..) => (executable, package),
            Kind::Redis => ("redis-server", "redis-server"),
        };
        find(name).ok_or_else(|| format!("{name} is not there; install it (Debian: apt-get install {package})"))
    }

    /// Its words.
    pub fn words(&self, stage: &Stage, quick: bool) -> Vec<OsString> {
        match self.kind {
            Kind::Real(_, _, words, _) => words.iter().map(|word| stage.word(word)).collect(),
            Kind::Redis => super::redis::words(stage),
            Kind::Shape(scale) => vec![self.name.into(), if quick { 1 } else { scale }.to_string().into()],
        }
    }

    /// What it reads.
    pub fn input(&self, stage: &Stage) -> Option<PathBuf> {
        match self.kind {
            Kind::Real(_, _, _, Some(input)) => Some(stage.file(input)),
            _ => None,
        }
    }

    /// Variables of its own.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        match self.name {
            "python3-malloc" => vec![("PYTHONMALLOC".into(), "malloc".into())],
            _ => vec![],
        }
    }
}

/// An executable by its name: the system's own before one that the path names, which may be a script around it.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = [Path::new("/usr/bin"), Path::new("/bin")].map(Path::to_path_buf);
    let mut folders = system.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_and_none_twice() {
        let mut names = PROGRAMS.map(|program| program.name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
        assert!(PROGRAMS.iter().filter(|program| program.is_real()).count() >= 10);
    }

    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(find("sh").is_some() && find("no-such-program").is_none());
    }
}
