//! Fill, warm up, take turns: raw samples.
//!
//! Promises upward: at each live count every subject is filled with the same sizes and warmed up with the same two
//! turnovers of pairs; then in each round every subject runs the same next pairs, one after the other (A B C A B C).
//! A subject too slow for a whole round runs its first pairs; one too slow to warm up is cut off, with the reason.
//! Asks from below: [`Contestant`]; nothing else running on the machine.

use super::actions::{Actions, Pair};
use super::options::Options;
use super::results::{Cut, Sample};
use super::subjects::{Contestant, Name};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use terrace_models::rounds::{Rounds, spread};

/// Pairs between two looks at the clock while warming up.
const BATCH: usize = 64;
/// Batches from which the time of a pair is foreseen.
const LATEST: usize = 64;
/// Least pairs of a round, however slow the subject.
const LEAST: usize = 100;
/// A round of one subject is shortened to about this.
const ROUND: Duration = Duration::from_secs(1);

/// One sample for each subject, live count and round; subjects that were not measured at a live count, and why.
type Measured = (Vec<Sample>, Vec<Cut>);

/// A subject ready for its rounds.
struct Ready {
    name: Name,
    contestant: Box<dyn Contestant>,
    /// Pairs of each round.
    pairs: usize,
}

/// How many steps [`measure`] reports: a warm-up and the rounds of each subject at each live count.
pub fn steps(options: &Options) -> usize {
    options.live().len() * options.subjects().len() * (1 + options.rounds())
}

/// Measures everything. `step` is told what was done, step by step.
pub fn measure(options: &Options, step: &mut dyn FnMut(&str)) -> Measured {
    let mut all = Measured::default();
    let mut given_up: HashMap<&'static str, u32> = HashMap::new();
    for live in options.live() {
        let warm_up = 2 * live as usize;
        let actions = Actions::new(options.list.seed, live, warm_up + options.rounds() * options.pairs());
        let (warm_up, timed) = actions.pairs.split_at(warm_up);
        let mut ready = Vec::new();
        for name in options.subjects() {
            let outcome = match given_up.get(name.title()) {
                Some(at) => Err(format!("cut off at {at} live blocks already")),
                None => prepare(name, live, &actions.fill, warm_up, options),
            };
            step(&format!("{live} live: warm-up, {}", name.title()));
            match outcome {
                Ok(subject) => ready.push(subject),
                Err(reason) => {
                    given_up.entry(name.title()).or_insert(live);
                    all.1.push(Cut { subject: name.title().into(), live, reason });
                    (0..options.rounds()).for_each(|_| step(name.title()));
                }
            }
        }
        let chunks: Vec<&[Pair]> = timed.chunks(options.pairs()).collect();
        rounds(live, &chunks, &mut ready, &mut all, step);
    }
    all
}

/// Fills a subject and runs two turnovers on it.
fn prepare(name: Name, live: u32, fill: &[u32], warm_up: &[Pair], options: &Options) -> Result<Ready, String> {
    let budget = Duration::from_secs(options.budget);
    let mut contestant = name.build(live)?;
    contestant.fill(fill).map_err(|refused| refused.to_string())?;
    let begin = Instant::now();
    let mut batches = Vec::new();
    for batch in warm_up.chunks(BATCH) {
        let from = Instant::now();
        contestant.run(batch).map_err(|refused| refused.to_string())?;
        batches.push(from.elapsed().as_nanos() as f64 / batch.len() as f64);
        let done = (batches.len() * BATCH).min(warm_up.len());
        if begin.elapsed() > budget && done < warm_up.len() {
            return Err(format!(
                "cut off: {done} of {} warm-up pairs took {} s, the last ones {:.1} us each",
                warm_up.len(),
                options.budget,
                latest(&batches) / 1e3
            ));
        }
    }
    let affordable = (ROUND.as_nanos() as f64 / latest(&batches)) as usize;
    Ok(Ready { name, contestant, pairs: affordable.max(LEAST).min(options.pairs()) })
}

/// Nanoseconds a pair of the last batches, when the allocator is as fragmented as it will be; their median, as the
/// machine may have been away during one. At least 1.
fn latest(batches: &[f64]) -> f64 {
    let last = &batches[batches.len().saturating_sub(LATEST)..];
    spread(last).map_or(1.0, |all| all.median.max(1.0))
}

/// The rounds at one live count: in each, every subject in turn. One that refuses a call is out.
fn rounds(live: u32, chunks: &[&[Pair]], ready: &mut [Ready], all: &mut Measured, step: &mut dyn FnMut(&str)) {
    let (samples, cuts) = Rounds::new(chunks.len()).run(ready, |Ready { name, contestant, pairs }, round| {
        let (name, pairs) = (name.title(), &chunks[round][..(*pairs).min(chunks[round].len())]);
        let begin = Instant::now();
        let outcome = contestant.run(pairs);
        let ns = begin.elapsed().as_nanos() as u64;
        step(&format!("{live} live: round {}, {name}", round + 1));
        let subject = name.to_owned();
        match outcome {
            Ok(()) => Ok(Sample { subject, live, round, pairs: pairs.len(), ns }),
            Err(refused) => Err(Cut { subject, live, reason: format!("{refused} in round {}", round + 1) }),
        }
    });
    all.0.extend(samples);
    all.1.extend(cuts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(words: &[&str]) -> Options {
        Options::try_parse_from(["core"].iter().chain(words)).unwrap()
    }

    #[test]
    fn every_subject_has_every_round_in_turn() {
        let options = options(&["--rounds", "3", "--ops", "150", "--live", "10,20", "--only", "good,offset,rmm"]);
        let mut done = 0;
        let all = measure(&options, &mut |_| done += 1);
        assert_eq!(done, steps(&options));
        assert!(all.1.is_empty(), "{:?}", all.1);
        let order: Vec<_> = all.0.iter().take(6).map(|one| (one.subject.as_str(), one.round)).collect();
        let [a, b, c] = [Name::Good, Name::Offset, Name::Rmm].map(Name::title);
        assert_eq!(order, [(a, 0), (b, 0), (c, 0), (a, 1), (b, 1), (c, 1)]);
        assert_eq!(all.0.len(), 18);
        assert!(all.0.iter().all(|one| one.pairs == 150 && one.ns > 0));
    }

    #[test]
    fn a_subject_too_slow_is_cut_off_with_the_reason() {
        let mut options = options(&["--rounds", "1", "--ops", "10", "--live", "100,200", "--only", "good"]);
        // No budget at all: the first look at the clock is too late, however fast the machine.
        options.budget = 0;
        let all = measure(&options, &mut |_| {});
        assert!(all.0.is_empty());
        let reasons: Vec<&str> = all.1.iter().map(|cut| cut.reason.as_str()).collect();
        assert_eq!(reasons.len(), 2);
        assert!(reasons[0].starts_with("cut off: 64 of 200 warm-up pairs took 0 s"), "{reasons:?}");
        assert_eq!(reasons[1], "cut off at 100 live blocks already");
    }

    #[test]
    fn a_refusal_ends_a_subject_and_says_why() {
        let actions = Actions::new(1, 10, 200);
        let mut contestant = Name::Good.build(10).unwrap();
        contestant.fill(&actions.fill).unwrap();
        let mut ready = vec![Ready { name: Name::Good, contestant, pairs: 100 }];
        let mut all = Measured::default();
        let mut bad = actions.pairs.clone();
        bad[150].bytes = 1 << 30;
        rounds(10, &[&bad], &mut ready, &mut all, &mut |_| {});
        assert_eq!((all.0.len(), all.1.len()), (1, 0), "the bad pair is beyond the 100 that it runs");
        ready[0].pairs = 200;
        rounds(10, &[&bad, &bad], &mut ready, &mut all, &mut |_| {});
        assert_eq!((all.0.len(), all.1.len()), (1, 1));
        assert!(all.1[0].reason.contains("refused 1073741824 bytes"), "{}", all.1[0].reason);
    }
}
