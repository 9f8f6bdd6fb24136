//! What the user asked for.
//!
//! Promises upward: values in range; names that exist. Asks from below: `clap`.

use super::programs::PROGRAMS;
use crate::options::{Common, flags, key, list};
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  cargo xtask bench host                                    everything, in 5 rounds; about forty minutes
  cargo xtask bench host --quick                            whether it works: 1 round, results in target/
  cargo xtask bench host --library mine=libmine.so          your own beside the others
  cargo xtask bench host --library mine=libmine.so --peers none --only larson --rounds 3
                                                            one program, glibc and yours
  cargo xtask bench host --peers mimalloc2,rpmalloc --part programs
  cargo xtask bench host --part interface,rust              instructions and nothing else

Each run writes DATE-MACHINE.json (every raw sample) and DATE-MACHINE.svg; a file that exists is never overwritten. Variables
whose names begin with TERRACE_ reach the programs. Times mean nothing while something else runs on the machine.";

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// CPU time and peak resident set of programs
    Programs,
    /// Instructions of the C functions, preloaded
    Interface,
    /// Instructions and time as a Rust global allocator
    Rust,
    /// What stays resident after blocks were freed
    Resident,
    /// Processes forked while threads allocate
    Fork,
    /// Resident set of a small process
    Small,
    /// Threads that start and exit
    Threads,
}

/// The host allocator beside those that programs have.
///
/// Real programs and small ones of known shape run in turn under every allocator, loaded before them: CPU time and peak
/// resident set against glibc. Then instructions of each function (with valgrind), the same as a Rust global allocator,
/// what stays resident, forks under load, small processes, threads that start and exit.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench host", after_help = EXAMPLES)]
pub struct Options {
    /// Options of every benchmark.
    #[command(flatten)]
    pub common: Common,

    /// Programs, separated by commas; nothing but them is then measured, unless --part asks for it [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PROGRAMS.map(|program| program.name))]
    pub only: Vec<String>,

    /// A library to measure beside the others; it takes the place of one of the same name. Several times if needed
    #[arg(long, value_name = "NAME=PATH", value_parser = library)]
    pub library: Vec<(String, PathBuf)>,

    /// Allocators beside glibc and --library, separated by commas; `none` for none [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(super::libraries::names().chain(["none"])))]
    peers: Vec<String>,

    /// What is measured, separated by commas [default: all]
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    part: Vec<Part>,

    /// Print the raw data instead of tables
    #[arg(long)]
    pub json: bool,
}

/// `NAME=PATH`.
fn library(word: &str) -> Result<(String, PathBuf), String> {
    match word.split_once('=') {
        Some(("", _) | (_, "")) | None => Err("a name, `=` and a path, as in mine=/tmp/libmine.so".into()),
        Some(("glibc", _)) => Err("glibc is what programs have without a library; choose another name".into()),
        Some((name, path)) => Ok((name.into(), path.into())),
    }
}

impl Options {
    /// Rounds of every program.
    pub fn rounds(&self) -> usize {
        self.common.rounds(5, 1)
    }

    /// Whether an allocator was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|peer| peer == name)
    }

    /// Whether a part was asked for.
    pub fn measures(&self, part: Part) -> bool {
        match (self.part.is_empty(), self.only.is_empty()) {
            (false, _) => self.part.contains(&part),
            (true, false) => part == Part::Programs,
            (true, true) => true,
        }
    }

    /// Whether this is less than everything, so that nobody wants to keep it.
    fn partial(&self) -> bool {
        self.common.quick || !self.only.is_empty() || !self.part.is_empty()
    }

    /// Where results go.
    pub fn out(&self) -> PathBuf {
        self.common.out("host", self.partial())
    }

    /// The command that repeats this run, as far as the machine allows.
    pub fn command(&self) -> String {
        let parts: Vec<String> = self.part.iter().map(key).collect();
        // The path of one machine helps nobody.
        let library = |(name, path): &(String, PathBuf)| {
            format!(" --library {name}={}", path.file_name().unwrap_or_default().to_string_lossy())
        };
        format!("cargo xtask bench host --rounds {}", self.rounds())
            + &list("--only", &self.only)
            + &list("--peers", &self.peers)
            + &list("--part", &parts)
            + &self.library.iter().map(library).collect::<String>()
            + &flags(&[(self.common.quick, "--quick")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["host"].iter().chain(words))
    }

    #[test]
    fn defaults_are_the_stated_ones() {
        let options = parsed(&[]).unwrap();
        assert!(options.rounds() == 5 && options.wants("rpmalloc") && options.measures(Part::Fork));
        assert!(options.out().ends_with("results/host"));
    }

    #[test]
    fn naming_programs_leaves_the_rest_out() {
        let options = parsed(&["--only", "larson", "--library", "a=/b/c.so", "--peers", "none"]).unwrap();
        assert!(options.measures(Part::Programs) && !options.measures(Part::Fork) && !options.wants("terrace"));
        assert_eq!(options.library, [("a".to_owned(), PathBuf::from("/b/c.so"))]);
        assert_eq!(options.command(), "cargo xtask bench host --rounds 5 --only larson --peers none --library a=c.so");
        let both = parsed(&["--only", "larson", "--part", "fork"]).unwrap();
        assert!(both.measures(Part::Fork) && !both.measures(Part::Programs));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for words in
            [["--only", "x"], ["--peers", "x"], ["--library", "x"], ["--library", "=x"], ["--library", "glibc=x"]]
        {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
