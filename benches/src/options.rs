//! Options that every benchmark has.
//!
//! Promises upward: values in range; results that are kept lie apart from those of a try. Asks from below: `clap`.

use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Options of all.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Rounds; below five the spread says little
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Folder for the results, made when absent [default: benches/results/BENCHMARK; target/bench/BENCHMARK when less than
    /// everything is measured]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Small numbers: whether everything works, not how fast it is
    #[arg(long)]
    pub quick: bool,
}

impl Common {
    /// What was asked for, or a number that depends on whether the run is quick.
    fn given(&self, asked: Option<u32>, usual: u32, quick: u32) -> usize {
        asked.unwrap_or(if self.quick { quick } else { usual }) as usize
    }

    /// Rounds.
    pub fn rounds(&self, usual: u32, quick: u32) -> usize {
        self.given(self.rounds, usual, quick)
    }

    /// Where results go: the folder asked for; else with the results that are kept or, of a part, with what was built.
    pub fn out(&self, benchmark: &str, partial: bool) -> PathBuf {
        match (&self.out, partial) {
            (Some(folder), _) => folder.clone(),
            (None, true) => built(benchmark),
            (None, false) => Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(benchmark),
        }
    }
}

/// Options of benchmarks that run one list on every subject.
#[derive(Clone, Debug, Args)]
pub struct OneList {
    /// Operations of a round and subject
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    ops: Option<u32>,

    /// Seed of the list
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Do not count instructions (they are counted where valgrind is installed)
    #[arg(long)]
    pub no_instructions: bool,
}

impl OneList {
    /// Operations of a round and subject.
    pub fn ops(&self, common: &Common, usual: u32, quick: u32) -> usize {
        common.given(self.ops, usual, quick)
    }
}

/// Those that were asked for, in the order in which they are shown; all when none were.
pub fn chosen<N: ValueEnum + PartialEq>(asked: &[N]) -> Vec<N> {
    N::value_variants().iter().filter(|name| asked.is_empty() || asked.contains(name)).cloned().collect()
}

/// ` --only a,b`, in that order; nothing when none were asked for.
pub fn only<N: ValueEnum + PartialEq>(asked: &[N]) -> String {
    let chosen = if asked.is_empty() { Vec::new() } else { chosen(asked) };
    list("--only", &chosen.iter().map(key).collect::<Vec<_>>())
}

/// A value as it is typed.
pub fn key(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// ` --flag a,b`, or nothing without values.
pub fn list(flag: &str, values: &[String]) -> String {
    if values.is_empty() { String::new() } else { format!(" {flag} {}", values.join(",")) }
}

/// The flags that were given.
pub fn flags(all: &[(bool, &str)]) -> String {
    all.iter().filter(|(given, _)| *given).map(|(_, flag)| format!(" {flag}")).collect()
}

/// Where a benchmark leaves what nobody keeps.
pub fn built(benchmark: &str) -> PathBuf {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
    benches.parent().unwrap_or(benches).join("target/bench").join(benchmark)
}
