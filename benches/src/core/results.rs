//! What a run leaves behind.
//!
//! Promises upward: the file holds all that is needed to draw and to print again. Asks from below: what was measured.

use super::cache_hit::Hit;
use super::instructions::Counted;
use super::metadata::Share;
use crate::results::Header;
use serde::{Deserialize, Serialize};
use terrace_models::rounds::{Spread, ratios, spread};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::header;

    fn results() -> Results {
        let sample = |subject: &str, round, ns| Sample { subject: subject.into(), live: 10, round, pairs: 100, ns };
        Results {
            header: header(&[]),
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
}
