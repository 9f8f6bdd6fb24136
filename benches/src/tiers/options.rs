//! What the user asked for.
//!
//! Promises upward: values in range. Asks from below: `clap`.

use super::resident::Case;
use crate::options::{Common, built, chosen, flags, key, list};
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  cargo xtask bench tiers                           everything, in 5 rounds
  cargo xtask bench tiers --quick                   whether it works: 1 round, results in target/
  cargo xtask bench tiers --part pieces --rounds 1  64 KiB and 4 MiB once
  cargo xtask bench tiers --directory /mnt/disk     on that disk

Each run writes DATE-MACHINE.json (every raw sample); a file that exists is never overwritten. Needs 8 GiB on the disk. Times mean
nothing while something else runs on the machine.";

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Puts and gets of 64 KiB and of 4 MiB, many in flight
    Pieces,
    /// One call that reads or writes 64 MiB
    Large,
    /// Passes over layers of which a quarter fits into memory
    Layers,
    /// Memory of a process at its peak
    Resident,
    /// 100,000 buffers of 100 B
    Tiny,
    /// A million named buffers, reopened
    Reopen,
}

/// What a user of terrace::Manager gets from a disk, beside raw loops.
///
/// 64 MiB of memory, 2 GiB of blocks, each of which differs from all others and is compared when it is read, past the page cache.
/// Contestants take turns in each round.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench tiers", after_help = EXAMPLES)]
pub struct Options {
    /// Options of every benchmark.
    #[command(flatten)]
    pub common: Common,

    /// What is measured, separated by commas [default: all]
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    part: Vec<Part>,

    /// Folder on the disk to be measured; what is written there is removed [default: target/bench/tiers]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Leave foyer out (it is built first, which takes minutes)
    #[arg(long)]
    pub no_foyer: bool,

    /// Raw loops take turns in as much memory as the manager has, not in that of their requests in flight again and again
    #[arg(long)]
    pub raw_spread: bool,

    /// Measures the memory of one case in this process and nothing else
    #[arg(long, hide = true, value_name = "CASE")]
    pub resident: Option<Case>,
}

impl Options {
    /// Rounds of every contestant.
    pub fn rounds(&self) -> usize {
        self.common.rounds(5, 1)
    }

    /// What is measured.
    pub fn parts(&self) -> Vec<Part> {
        chosen(&self.part)
    }

    /// The folder on the disk to be measured.
    pub fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| built("tiers"))
    }

    /// Where results go.
    pub fn out(&self) -> PathBuf {
        self.common.out("tiers", self.common.quick || !self.part.is_empty())
    }

    /// The command that repeats this run, as far as the machine allows: the disk's folder is the reader's.
    pub fn command(&self) -> String {
        let parts: Vec<String> = self.part.iter().map(key).collect();
        format!("cargo xtask bench tiers --rounds {}", self.rounds())
            + &list("--part", &parts)
            + &flags(&[
                (self.no_foyer, "--no-foyer"),
                (self.raw_spread, "--raw-spread"),
                (self.common.quick, "--quick"),
            ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["tiers"].iter().chain(words))
    }

    #[test]
    fn defaults_are_the_stated_ones() {
        let options = parsed(&[]).unwrap();
        assert_eq!((options.rounds(), options.parts()), (5, Part::value_variants().to_vec()));
        assert!(options.out().ends_with("results/tiers"));
    }

    #[test]
    fn a_part_is_not_kept_with_whole_runs() {
        let options = parsed(&["--part", "large,pieces", "--quick"]).unwrap();
        assert_eq!(options.parts(), [Part::Pieces, Part::Large]);
        assert!(options.out().ends_with("bench/tiers"));
        assert_eq!(options.command(), "cargo xtask bench tiers --rounds 1 --part large,pieces --quick");
        assert!(parsed(&["--part", "x"]).is_err());
    }
}
