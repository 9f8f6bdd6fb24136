//! What a run leaves behind: one JSON file with every raw sample.
//!
//! Promises upward: the file holds all that is needed to draw and to print again. Asks from below: what was measured.

use super::behaviour::Behaviour;
use super::counts::{Counted, FASTEST, Timed};
use super::launch::Usage;
use super::libraries::BASE;
use super::measure::Sample;
use crate::results::{Given, Header};
use serde::{Deserialize, Serialize};
use terrace_models::rounds::{Spread, ratios, spread};

/// A whole run. Empty lists were not asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whence. Its fields stand beside the others in the file.
    #[serde(flatten)]
    pub header: Header,
    /// Libraries and programs that are missing, and why.
    pub missing: Vec<Given>,
    /// Every run of a program, in the order in which they ran; those that failed last.
    pub samples: Vec<Sample>,
    /// Instructions through the C interface.
    pub interface: Vec<Counted>,
    /// Instructions in Rust, and times.
    pub rust: Vec<Counted>,
    /// Times in Rust.
    pub times: Vec<Timed>,
    /// How libraries behave.
    pub behaviour: Behaviour,
}

/// What of a run is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// CPU time.
    Cpu,
    /// Peak resident set.
    Peak,
}

impl Cost {
    /// Of a run; microseconds or KiB.
    pub fn of(self, usage: &Usage) -> f64 {
        match self {
            Self::Cpu => usage.cpu_us(),
            Self::Peak => usage.peak_kib as f64,
        }
    }
}

impl Results {
    /// Nothing measured yet.
    pub fn new(header: Header, missing: Vec<Given>) -> Self {
        let (samples, interface, rust, times) = Default::default();
        Self { header, missing, samples, interface, rust, times, behaviour: Behaviour::default() }
    }

    /// Every run whose CPU time counts: programs, and threads that start and exit.
    fn runs(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(&self.behaviour.starts)
    }

    /// Nanoseconds of a Rust program in each round: of a block of a batch, or of a pair.
    pub fn times(&self, subject: &str, batch: bool) -> Vec<f64> {
        let these = self.times.iter().filter(|timed| timed.subject == subject);
        these.map(|timed| if batch { timed.batch_ns } else { timed.pair_ns }).collect()
    }

    /// A Rust program's time of a batch over that with the fastest peer, round by round.
    pub fn to_fastest(&self, subject: &str) -> Option<Spread> {
        spread(&ratios(&self.times(subject, true), &self.times(FASTEST, true)))
    }

    /// Bytes of a small process, median, beyond the same under glibc.
    pub fn small(&self, library: &str, process: &str) -> Option<f64> {
        let bytes = |library: &str| {
            let these = self.behaviour.small.iter().filter(|one| one.library == library && one.process == process);
            spread(&these.map(|one| one.bytes as f64).collect::<Vec<_>>()).map(|all| all.median)
        };
        Some(bytes(library)? - bytes(BASE)?)
    }

    /// What stayed resident, as a share of the peak: 0 after the last free, 1 after a second, 2 at the end.
    pub fn resident(&self, library: &str, keep: usize, called: bool, when: usize) -> Option<f64> {
        let mut all = self.behaviour.freed.iter();
        let same = all.find(|freed| freed.library == library && freed.keep == keep && freed.called == called)?;
        Some(same.share(when))
    }

    /// Programs that were run, in order, and whether people have them.
    pub fn programs(&self) -> Vec<(&str, bool)> {
        let mut programs: Vec<(&str, bool)> = Vec::new();
        for sample in &self.samples {
            if !programs.iter().any(|(name, _)| *name == sample.program) {
                programs.push((&sample.program, sample.real));
            }
        }
        programs
    }

    /// What each round cost. Empty when one failed: what a program that fails now and then costs is no number to keep.
    pub fn costs(&self, program: &str, library: &str, cost: Cost) -> Vec<f64> {
        let these = || self.runs().filter(|sample| sample.program == program && sample.library == library);
        if these().any(|sample| sample.failed.is_some()) {
            return Vec::new();
        }
        let mut costs: Vec<(usize, f64)> =
            these().filter_map(|sample| Some((sample.round, cost.of(sample.usage.as_ref()?)))).collect();
        costs.sort_by_key(|(round, _)| *round);
        costs.into_iter().map(|(_, cost)| cost).collect()
    }

    /// A library's cost over glibc's, round by round.
    pub fn ratio(&self, program: &str, library: &str, cost: Cost) -> Option<Spread> {
        spread(&ratios(&self.costs(program, library, cost), &self.costs(program, BASE, cost)))
    }

    /// Why a program failed under a library.
    pub fn failure(&self, program: &str, library: &str) -> Option<&str> {
        let these = self.runs().filter(|sample| sample.program == program && sample.library == library);
        these.filter_map(|sample| sample.failed.as_deref()).next()
    }

    /// The geometric mean of medians over the programs that it ran; over those that people have alone if `real`.
    pub fn mean(&self, library: &str, cost: Cost, real: bool) -> Option<f64> {
        let programs = self.programs().into_iter().filter(|(_, is_real)| *is_real || !real);
        let logs: Vec<f64> =
            programs.filter_map(|(name, _)| Some(self.ratio(name, library, cost)?.median.ln())).collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// The program with the greatest median.
    pub fn worst(&self, library: &str, cost: Cost) -> Option<(&str, f64)> {
        let medians =
            self.programs().into_iter().filter_map(|(name, _)| Some((name, self.ratio(name, library, cost)?.median)));
        medians.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::host::behaviour::{Failed, Forked, Freed, Small};
    use crate::results::tests::header;

    /// A small run, for the tests of what is printed and drawn too.
    pub fn small() -> Results {
        let sample = |program: &str, library: &str, round, cpu, peak_kib| {
            let usage = Usage { user_us: cpu, system_us: 0, wall_us: cpu, peak_kib };
            let (program, library, real) = (program.to_owned(), library.to_owned(), program == "lua");
            Sample { program, real, library, round, usage: Some(usage), failed: None }
        };
        let broken =
            Sample { usage: None, failed: Some("killed by signal 11; ".into()), ..sample("larson", "peer", 0, 0, 0) };
        Results {
            header: header(&["glibc", "terrace", "peer"]),
            missing: vec![Given { subject: "z3".into(), what: "z3 is not there".into() }],
            samples: vec![
                sample("lua", "glibc", 0, 1000, 100),
                sample("lua", "terrace", 0, 500, 200),
                sample("lua", "peer", 0, 2000, 100),
                sample("larson", "glibc", 0, 1000, 100),
                sample("larson", "terrace", 0, 2000, 50),
                broken,
                // Out of order: rounds begin with another library each.
                sample("lua", "terrace", 1, 3000, 200),
                sample("lua", "glibc", 1, 2000, 100),
            ],
            interface: vec![Counted {
                subject: "terrace".into(),
                operation: "pair".into(),
                instructions: 38.25,
                steps: false,
            }],
            rust: vec![Counted {
                subject: "snmalloc".into(),
                operation: "pair".into(),
                instructions: 48.5,
                steps: true,
            }],
            times: vec![timed("terrace", 2.0), timed("snmalloc", 4.0)],
            behaviour: behaviour(),
        }
    }

    fn timed(subject: &str, batch_ns: f64) -> Timed {
        Timed { subject: subject.into(), round: 0, pair_ns: 1.0, batch_ns }
    }

    fn behaviour() -> Behaviour {
        let small = |library: &str, bytes| Small { library: library.into(), process: "cat".into(), round: 0, bytes };
        Behaviour {
            freed: vec![Freed {
                library: "peer".into(),
                blocks: 2_000_000,
                keep: 64,
                called: true,
                bytes: [1000, 950, 900, 890, 16],
            }],
            forked: vec![Forked { library: "peer".into(), numbers: [300, 7, 0] }],
            small: vec![small("glibc", 1 << 20), small("terrace", 3 << 19)],
            starts: vec![],
            failed: vec![Failed {
                library: "peer".into(),
                what: "small process".into(),
                reason: "exit status 3; ".into(),
            }],
        }
    }

    #[test]
    fn behaviour_is_compared_with_glibc() {
        let results = small();
        assert_eq!(results.small("terrace", "cat"), Some(524_288.0));
        assert_eq!(results.resident("peer", 64, true, 2), Some(0.89));
        assert_eq!(results.to_fastest("terrace").map(|all| all.median), Some(0.5));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let results = small();
        let ratio = results.ratio("lua", "terrace", Cost::Cpu).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.5, 1.0, 1.5));
        assert_eq!(results.ratio("larson", "peer", Cost::Cpu), None);
        assert_eq!(results.failure("larson", "peer"), Some("killed by signal 11; "));
    }

    #[test]
    fn means_are_geometric() {
        let results = small();
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-9;
        assert!(near(results.mean("terrace", Cost::Peak, false), 1.0));
        assert!(near(results.mean("terrace", Cost::Peak, true), 2.0));
        assert!(near(results.mean("peer", Cost::Cpu, false), 2.0), "what failed is left out");
        assert_eq!(results.worst("terrace", Cost::Cpu), Some(("larson", 2.0)));
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
    }
}
