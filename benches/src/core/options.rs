//! What the user asked for.
//!
//! Promises upward: values in range, live counts rising without repeats. Asks from below: `clap`.

use super::subjects::{MOST_LIVE, Name};
use crate::options::{Common, OneList, chosen, flags, list, only};
use clap::Parser;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  cargo xtask bench core                                   everything, in 7 rounds of 1,000,000 pairs: ten
                                                           minutes on a quiet machine
  cargo xtask bench core --quick                           whether it works: 2 rounds of 20,000, half a minute,
                                                           results in target/
  cargo xtask bench core --only good,offset --live 100000  two subjects at one live count
  cargo xtask bench core --rounds 15 --out results/mine    more rounds, results elsewhere

Each run writes DATE-MACHINE.json (every raw sample) and DATE-MACHINE.svg; a file that exists is never overwritten.
Times mean nothing while something else runs on the machine.";

/// terrace's core beside its peers, on one list of actions.
///
/// A pair frees a random live block and allocates one of a new size, log-uniform from 64 B to 1 MiB. Subjects take
/// turns in each round. Shown are medians with least and greatest, and each round's ratio to terrace's good fit; then
/// instructions a pair (with valgrind), a cache hit's time, and the records' share of a full pool.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench core", after_help = EXAMPLES)]
pub struct Options {
    /// Options of every benchmark.
    #[command(flatten)]
    pub common: Common,

    /// Options of the list.
    #[command(flatten)]
    pub list: OneList,

    /// Live blocks, separated by commas [default: 100,1000,10000,100000,1000000, with --quick the first three]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LIVE)))]
    live: Vec<u32>,

    /// Subjects, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<Name>,

    /// Seconds that a subject may take to warm up at one live count; one that would need more is cut off there
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub budget: u64,

    /// Runs one subject and nothing else, to be counted from outside
    #[arg(long, hide = true, num_args = 3, value_names = ["SUBJECT", "LIVE", "PAIRS"])]
    pub count: Vec<String>,
}

impl Options {
    /// Rounds of each subject at each live count.
    pub fn rounds(&self) -> usize {
        self.common.rounds(7, 2)
    }

    /// Pairs that a subject runs in a round, unless it is too slow for them.
    pub fn pairs(&self) -> usize {
        self.list.ops(&self.common, 1_000_000, 20_000)
    }

    /// Live counts, rising.
    pub fn live(&self) -> Vec<u32> {
        let all = [100, 1000, 10_000, 100_000, 1_000_000];
        let mut live = match (self.live.is_empty(), self.common.quick) {
            (false, _) => self.live.clone(),
            (true, true) => all[..3].to_vec(),
            (true, false) => all.to_vec(),
        };
        live.sort_unstable();
        live.dedup();
        live
    }

    /// Subjects, in the order of [`Name::all`].
    pub fn subjects(&self) -> Vec<Name> {
        chosen(&self.only)
    }

    /// Where results go.
    pub fn out(&self) -> PathBuf {
        self.common.out("core", self.common.quick)
    }

    /// The command that repeats this run, as far as the machine allows.
    pub fn command(&self) -> String {
        let live: Vec<String> = self.live().iter().map(u32::to_string).collect();
        format!("cargo xtask bench core --rounds {} --ops {}", self.rounds(), self.pairs())
            + &list("--live", &live)
            + &format!(" --seed {} --budget {}", self.list.seed, self.budget)
            + &only(&self.only)
            + &flags(&[(self.list.no_instructions, "--no-instructions"), (self.common.quick, "--quick")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["core"].iter().chain(words))
    }

    #[test]
    fn defaults_are_the_stated_ones() {
        let options = parsed(&[]).unwrap();
        assert_eq!((options.rounds(), options.pairs()), (7, 1_000_000));
        assert_eq!(options.live(), [100, 1000, 10_000, 100_000, 1_000_000]);
        assert_eq!(options.subjects(), Name::all());
    }

    #[test]
    fn lists_are_put_in_order() {
        let options = parsed(&["--live", "1000,10,1000", "--only", "offset,good"]).unwrap();
        assert_eq!(options.live(), [10, 1000]);
        assert_eq!(options.subjects(), [Name::Good, Name::Offset]);
        assert!(options.command().contains("--live 10,1000"));
        assert!(options.command().contains("--only good,offset"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for words in [["--live", "0"], ["--live", "2000000"], ["--rounds", "0"], ["--ops", "x"], ["--only", "y"]] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
