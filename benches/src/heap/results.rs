//! What a run leaves behind: one JSON file with every raw sample.
//!
//! Promises upward: the file holds all that is needed to draw and to print again.
//! Asks from below: what was measured.

use super::fill::Mix;
use super::works::Work;
use crate::results::Header;
use serde::{Deserialize, Serialize};
use terrace_models::rounds::{Spread, ratios, spread};

/// One timed round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Title of the heap.
    pub subject: String,
    /// List.
    pub work: Work,
    /// Round, from 0.
    pub round: usize,
    /// Operations done.
    pub ops: u64,
    /// Requests refused.
    pub refused: u64,
    /// Time of all of them in nanoseconds.
    pub ns: u64,
}

/// Instructions of one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Title of the heap.
    pub subject: String,
    /// List.
    pub work: Work,
    /// Operations done.
    pub ops: u64,
    /// Instructions of their calls, shims included.
    pub instructions: u64,
}

/// How far memory fills.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Title of the heap.
    pub subject: String,
    /// Sizes.
    pub mix: Mix,
    /// Live payload over memory, 0 to 1.
    pub share: f64,
}

/// What a block costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Title of the heap.
    pub subject: String,
    /// Bytes of the block.
    pub size: u32,
    /// Bytes beyond them.
    pub overhead: f64,
}

/// Growth in place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grown {
    /// Title of the heap.
    pub subject: String,
    /// Doublings in place over all, 0 to 1.
    pub in_place: f64,
}

/// Code on Thumb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// Title of the heap.
    pub subject: String,
    /// Bytes of `.text` and `.rodata`.
    pub text: u64,
    /// Bytes of `.data` and `.bss`: the heap's own state, without what it keeps in its memory.
    pub state: u64,
}

/// A whole run. Empty lists were not asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whence. Its fields stand beside the others in the file.
    #[serde(flatten)]
    pub header: Header,
    /// Every timed round, in the order in which they ran.
    pub samples: Vec<Sample>,
    /// Instructions.
    pub instructions: Vec<Counted>,
    /// Why instructions were not counted, if they were not.
    pub instructions_skipped: Option<String>,
    /// How far memory fills.
    pub filled: Vec<Filled>,
    /// What blocks cost.
    pub costs: Vec<Cost>,
    /// Growth in place.
    pub grown: Vec<Grown>,
    /// Code on Thumb.
    pub texts: Vec<Text>,
    /// Why code was not measured, if it was not.
    pub texts_skipped: Option<String>,
}

impl Results {
    /// Nanoseconds an operation, of each round.
    pub fn times(&self, subject: &str, work: Work) -> Vec<f64> {
        let these = self.samples.iter().filter(|sample| sample.subject == subject && sample.work == work);
        these.map(|sample| sample.ns as f64 / sample.ops.max(1) as f64).collect()
    }

    /// A heap's times over another's, round by round.
    pub fn ratio(&self, subject: &str, to: &str, work: Work) -> Option<Spread> {
        spread(&ratios(&self.times(subject, work), &self.times(to, work)))
    }

    /// Requests that a heap refused, of all operations of a list: 0 to 1.
    pub fn refused(&self, subject: &str, work: Work) -> f64 {
        let sample = self.samples.iter().find(|sample| sample.subject == subject && sample.work == work);
        sample.map_or(0.0, |sample| sample.refused as f64 / sample.ops.max(1) as f64)
    }

    /// Instructions an operation.
    pub fn per_op(&self, subject: &str, work: Work) -> Option<f64> {
        let counted = self.instructions.iter().find(|counted| counted.subject == subject && counted.work == work)?;
        Some(counted.instructions as f64 / counted.ops.max(1) as f64)
    }

    /// How far memory fills.
    pub fn share(&self, subject: &str, mix: Mix) -> Option<f64> {
        self.filled.iter().find(|filled| filled.subject == subject && filled.mix == mix).map(|filled| filled.share)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::results::tests::header;

    /// A small run, for the tests of what is printed and drawn too.
    pub fn small() -> Results {
        let sample = |subject: &str, round, ns| {
            let subject = subject.into();
            Sample { subject, work: Work::A, round, ops: 100, refused: 5, ns }
        };
        Results {
            header: header(&["terrace Fast<Packed>", "talc", "dlmalloc"]),
            samples: vec![
                sample("terrace Fast<Packed>", 0, 1000),
                sample("talc", 0, 4000),
                sample("terrace Fast<Packed>", 1, 3000),
                sample("talc", 1, 4000),
            ],
            instructions: vec![Counted { subject: "talc".into(), work: Work::A, ops: 10, instructions: 555 }],
            instructions_skipped: None,
            filled: vec![Filled { subject: "talc".into(), mix: Mix::Wide, share: 0.95 }],
            costs: vec![Cost { subject: "talc".into(), size: 24, overhead: 8.0 }],
            grown: vec![Grown { subject: "talc".into(), in_place: 0.3 }],
            texts: vec![],
            texts_skipped: Some("no linker".into()),
        }
    }

    #[test]
    fn numbers_come_from_raw_samples() {
        let results = small();
        assert_eq!(results.times("talc", Work::A), [40.0, 40.0]);
        let ratio = results.ratio("terrace Fast<Packed>", "talc", Work::A);
        assert_eq!(ratio, Some(Spread { median: 0.5, min: 0.25, max: 0.75 }));
        assert_eq!((results.per_op("talc", Work::A), results.per_op("rlsf", Work::A)), (Some(55.5), None));
        assert_eq!((results.refused("talc", Work::A), results.refused("talc", Work::B)), (0.05, 0.0));
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
    }
}
