//! Instructions a pair, counted by valgrind's callgrind.
//!
//! Promises upward: a number that neither the machine's speed nor its load moves. The same program runs twice under
//! callgrind, with two numbers of pairs after the same set-up; the difference has nothing but pairs in it.
//! Asks from below: `valgrind` on the path, and an executable that understands `--count`.

use super::actions::Actions;
use super::options::Options;
use super::results::Results;
use super::subjects::{MOST_LIVE, Name};
use crate::callgrind;
use crate::options::key;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::Path;
use terrace_models::rounds::flatness;

/// Fewest live blocks that are counted: what must be flat is asked from 10^3 on.
const FROM: u32 = 1000;

/// Two counts of one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Title of the subject.
    pub subject: String,
    /// Live blocks.
    pub live: u32,
    /// Pairs of the two runs.
    pub pairs: [u64; 2],
    /// Instructions of the two runs, set-up included.
    pub instructions: [u64; 2],
}

impl Counted {
    /// Instructions of one pair, the harness's own included.
    pub fn per_pair(&self) -> f64 {
        let more = self.instructions[1].saturating_sub(self.instructions[0]);
        more as f64 / self.pairs[1].saturating_sub(self.pairs[0]).max(1) as f64
    }
}

/// Subjects that are counted: ours, the peer with the same promise, and the harness alone.
const SUBJECTS: [Name; 3] = [Name::Good, Name::Offset, Name::Loop];

/// What is to be counted: (subject, live blocks). The harness's loop once, it knows no live blocks.
pub fn plan(options: &Options) -> Vec<(Name, u32)> {
    let chosen = options.subjects();
    let lives: Vec<u32> = options.live().into_iter().filter(|&live| live >= FROM || options.common.quick).collect();
    let mut plan = Vec::new();
    for name in SUBJECTS.into_iter().filter(|name| chosen.contains(name)) {
        let lives = if name == Name::Loop { &lives[..lives.len().min(1)] } else { &lives[..] };
        plan.extend(lives.iter().map(|&live| (name, live)));
    }
    plan
}

/// Pairs of the two runs.
fn pairs(options: &Options) -> [u64; 2] {
    if options.common.quick { [1000, 5000] } else { [50_000, 250_000] }
}

/// Counts one entry of the plan with `executable`.
///
/// # Errors
/// What stood in the way, and what to install.
pub fn count(executable: &Path, name: Name, live: u32, options: &Options) -> Result<Counted, String> {
    let pairs = pairs(options);
    let mut instructions = [0; 2];
    for (pairs, instructions) in pairs.iter().zip(&mut instructions) {
        *instructions = run(executable, name, live, *pairs, options.list.seed)?;
    }
    Ok(Counted { subject: name.title().into(), live, pairs, instructions })
}

/// All instructions of one run.
fn run(executable: &Path, name: Name, live: u32, pairs: u64, seed: u64) -> Result<u64, String> {
    let words = ["--seed", &seed.to_string(), "--count", &key(&name), &live.to_string(), &pairs.to_string()];
    callgrind::run(executable, &[], &words).map(|run| run.instructions)
}

/// What `--count SUBJECT LIVE PAIRS` does: set-up and that many pairs, not timed. The list is as long for every
/// number of pairs, so that making it costs the same.
///
/// # Errors
/// Words that make no sense, or a refused call.
pub fn counted_part(options: &Options) -> Result<(), String> {
    let [name, live, pairs] = &options.count[..] else { return Err("--count takes three values".into()) };
    let name = Name::from_str(name, false)?;
    let live: u32 = live.parse().map_err(|_| "--count: the second value is a number of live blocks")?;
    let live = live.clamp(1, MOST_LIVE);
    let pairs: usize = pairs.parse().map_err(|_| "--count: the third value is a number of pairs")?;
    let longest = pairs.max(250_000);
    let actions = Actions::new(options.list.seed, live, 2 * live as usize + longest);
    let (warm_up, rest) = actions.pairs.split_at(2 * live as usize);
    let mut contestant = name.build(live)?;
    contestant.fill(&actions.fill).map_err(|refused| refused.to_string())?;
    contestant.run(warm_up).map_err(|refused| refused.to_string())?;
    contestant.run(&rest[..pairs]).map_err(|refused| refused.to_string())
}

/// Instructions a pair of a subject at each live count, less those of the harness, and how flat they are.
pub fn net(results: &Results, name: Name) -> (Vec<(u32, f64)>, Option<f64>) {
    let of = |name: Name| results.instructions.iter().filter(move |counted| counted.subject == name.title());
    let harness = of(Name::Loop).next().map_or(0.0, Counted::per_pair);
    let net: Vec<(u32, f64)> = of(name).map(|counted| (counted.live, counted.per_pair() - harness)).collect();
    let flat = flatness(&net.iter().map(|(_, per_pair)| *per_pair).collect::<Vec<_>>());
    (net, flat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(words: &[&str]) -> Options {
        Options::try_parse_from(["core"].iter().chain(words)).unwrap()
    }

    #[test]
    fn set_up_cancels() {
        let counted = Counted { subject: "a".into(), live: 1, pairs: [100, 300], instructions: [51_000, 91_000] };
        assert_eq!(counted.per_pair(), 200.0);
    }

    #[test]
    fn the_harness_is_counted_once_and_small_counts_are_left_out() {
        let plan = plan(&options(&["--live", "100,1000,10000"]));
        assert_eq!(
            plan,
            [
                (Name::Good, 1000),
                (Name::Good, 10_000),
                (Name::Offset, 1000),
                (Name::Offset, 10_000),
                (Name::Loop, 1000)
            ]
        );
    }

    #[test]
    fn the_counted_part_runs_and_refuses_nonsense() {
        assert_eq!(counted_part(&options(&["--count", "good", "50", "300"])), Ok(()));
        for words in [["x", "1", "1"], ["good", "x", "1"], ["good", "1", "-"]] {
            assert!(counted_part(&options(&["--count", words[0], words[1], words[2]])).is_err(), "{words:?}");
        }
    }
}
