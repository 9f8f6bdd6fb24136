//! What the user asked for.
//!
//! Promises upward: values in range. Asks from below: `clap`.

use super::subjects::Name;
use crate::options::{Common, OneList, chosen, flags, only};
use clap::Parser;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  cargo xtask bench heap                              everything, in 25 short rounds of 50,000 operations, since one
                                                      that another program interrupts is lost; three minutes
  cargo xtask bench heap --quick                      whether it works: 2 rounds of 10,000, results in target/
  cargo xtask bench heap --only fast-wide,talc        two heaps; ratios are to talc
  cargo xtask bench heap --size                       text and static bytes on Thumb, and nothing else
  cargo xtask bench heap --rounds 99 --out results/mine

Each run writes DATE-MACHINE.json (every raw sample) and DATE-MACHINE.svg; a file that exists is never overwritten.
Times mean nothing while something else runs on the machine; instructions do not mind.";

/// terrace's heap beside those that firmware has, on one list of operations.
///
/// Lists: (a) random victims of 16 to 512 bytes in 1 MiB held at 70 %, (b) log-uniform 16 bytes to 64 KiB in 4 MiB held
/// at 50 %, LIFO bursts, FIFO with 1000 in flight, alignments of 64 to 4096. Heaps take turns in each round. Then
/// instructions an operation (with valgrind), how far memory fills, what a block costs, growth in place, code size.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask bench heap", after_help = EXAMPLES)]
pub struct Options {
    /// Options of every benchmark.
    #[command(flatten)]
    pub common: Common,

    /// Options of the list.
    #[command(flatten)]
    pub list: OneList,

    /// Heaps, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<Name>,

    /// Only text and static bytes on Thumb; nothing is kept
    #[arg(long, conflicts_with = "no_size")]
    pub size: bool,

    /// Do not build for Thumb
    #[arg(long)]
    pub no_size: bool,

    /// Runs one list on one heap and nothing else, to be counted from outside
    #[arg(long, hide = true, num_args = 2, value_names = ["HEAP", "LIST"])]
    pub count: Vec<String>,
}

impl Options {
    /// Rounds of each heap on each list.
    pub fn rounds(&self) -> usize {
        self.common.rounds(25, 2)
    }

    /// Timed operations of a list.
    pub fn ops(&self) -> usize {
        self.list.ops(&self.common, 50_000, 10_000)
    }

    /// Refusals over which the live payload is averaged.
    pub fn refusals(&self) -> usize {
        if self.common.quick { 2000 } else { 20_000 }
    }

    /// Heaps, in the order in which they are shown.
    pub fn subjects(&self) -> Vec<Name> {
        chosen(&self.only)
    }

    /// Where results go.
    pub fn out(&self) -> PathBuf {
        self.common.out("heap", self.common.quick)
    }

    /// The command that repeats this run, as far as the machine allows.
    pub fn command(&self) -> String {
        let (rounds, ops, seed) = (self.rounds(), self.ops(), self.list.seed);
        format!("cargo xtask bench heap --rounds {rounds} --ops {ops} --seed {seed}")
            + &only(&self.only)
            + &flags(&[
                (self.list.no_instructions, "--no-instructions"),
                (self.no_size, "--no-size"),
                (self.common.quick, "--quick"),
            ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["heap"].iter().chain(words))
    }

    #[test]
    fn defaults_are_the_stated_ones() {
        let options = parsed(&[]).unwrap();
        assert_eq!((options.rounds(), options.ops()), (25, 50_000));
        assert_eq!(options.subjects(), Name::value_variants());
    }

    #[test]
    fn the_command_repeats_what_was_asked() {
        let options = parsed(&["--only", "talc,fast-wide", "--quick", "--no-instructions"]).unwrap();
        assert_eq!(
            options.command(),
            "cargo xtask bench heap --rounds 2 --ops 10000 --seed 1 --only fast-wide,talc --no-instructions --quick"
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for words in [["--rounds", "0"], ["--ops", "x"], ["--only", "y"], ["--count", "talc"]] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }
}
