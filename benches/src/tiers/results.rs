//! What a run leaves behind.
//!
//! Promises upward: the file holds all that is needed to print again. Asks from below: what was measured.

use super::who::{Engine, Who, raw};
use crate::results::Header;
use serde::{Deserialize, Serialize};
use terrace_models::rounds::{Spread, ratios, spread};
use terrace_raw::{Cost, Moved};

/// One round of one contestant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// What it did.
    pub what: String,
    /// Its name.
    pub who: String,
    /// The engine of the raw loop that it is compared with.
    pub engine: Engine,
    /// Round, from 0.
    pub round: usize,
    /// The least time that is possible, if the disk is not what limits it.
    #[serde(default)]
    pub floor_ns: u64,
    /// Bytes, time, processor time, latencies.
    #[serde(flatten)]
    pub moved: Moved,
}

impl Sample {
    /// Of a contestant that the disk limits.
    pub fn moved(what: String, who: Who, round: usize, moved: Moved) -> Self {
        Self { what, who: who.title(), engine: who.engine(), round, floor_ns: 0, moved }
    }

    fn wall(&self) -> f64 {
        self.moved.cost.wall_ns as f64
    }
}

/// Memory of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// What it did.
    pub what: String,
    /// Round, from 0.
    pub round: usize,
    /// Bytes of memory that the manager was given.
    pub memory: u64,
    /// Bytes of the program's own buffers in flight.
    pub in_flight: u64,
    /// Bytes resident before the manager was built.
    pub before: u64,
    /// Most bytes resident.
    pub peak: u64,
}

impl Resident {
    /// What the manager took at the peak, over what it was given.
    pub fn over_memory(&self) -> f64 {
        self.peak.saturating_sub(self.before + self.in_flight) as f64 / self.memory as f64
    }
}

/// One round of calls for many small buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// What was called.
    pub what: String,
    /// Round, from 0.
    pub round: usize,
    /// Buffers.
    pub count: usize,
    /// Time of all of them.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// What, and by which contestant.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whence. Its fields stand beside the others in the file.
    #[serde(flatten)]
    pub header: Header,
    /// Every round of every contestant, in the order in which they ran.
    pub samples: Vec<Sample>,
    /// Memory of processes.
    pub resident: Vec<Resident>,
    /// Calls for many small buffers.
    pub timed: Vec<Timed>,
    /// What was not measured.
    pub skipped: Vec<Skipped>,
}

/// One line of the table: what, by which contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// What it did.
    pub what: &'a str,
    /// Its name.
    pub who: &'a str,
    /// The engine of the raw loop that it is compared with.
    pub engine: Engine,
}

impl Results {
    /// All lines, in the order in which they were measured first.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for Sample { what, who, engine, .. } in &self.samples {
            if !lines.iter().any(|line| line.what == what && line.who == who) {
                lines.push(Line { what, who, engine: *engine });
            }
        }
        // What one contestant did in a turn stands apart: lines of the same kind stand together.
        let first = |line: &Line<'_>| self.samples.iter().position(|sample| sample.what == line.what);
        lines.sort_by_key(first);
        lines
    }

    fn of<'a>(&'a self, what: &'a str, who: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.what == what && sample.who == who)
    }

    /// A figure of each round of a line.
    pub fn each(&self, line: Line<'_>, figure: impl Fn(&Moved) -> f64) -> Vec<f64> {
        self.of(line.what, line.who).map(|sample| figure(&sample.moved)).collect()
    }

    /// The time of the raw loop over that of a line, round by round: above 1 the line is faster. A raw loop that is faster than
    /// possible for the line counts as long as is possible.
    pub fn ratio(&self, line: Line<'_>) -> Option<Spread> {
        let raw = raw(line.engine);
        let base: Vec<f64> = self.of(line.what, &raw).map(|sample| sample.wall().max(sample.floor_ns as f64)).collect();
        spread(&ratios(&base, &self.each(line, |moved| moved.cost.wall_ns as f64)))
    }

    /// Whether the disk is not what limits a line, and its raw loop does something else.
    pub fn has_floor(&self, line: Line<'_>) -> bool {
        self.of(line.what, line.who).any(|sample| sample.floor_ns > 0)
    }

    /// The raw loop that a line is compared with.
    pub fn base(&self, line: Line<'_>) -> Option<Line<'_>> {
        let raw = raw(line.engine);
        self.lines().into_iter().find(|one| one.what == line.what && one.who == raw)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::tests::header;
    use terrace_raw::Cost;

    /// Two rounds of a raw loop and of the manager, which takes twice and four times as long.
    pub fn results() -> Results {
        let sample = |who: &str, round, wall_ns, floor_ns| {
            let cost = Cost { wall_ns, cpu_ns: wall_ns / 2 };
            let moved = Moved { bytes: 1 << 30, cost, p50_ns: 1_000_000, p99_ns: 2_000_000 };
            Sample { what: "64 KiB put".into(), who: who.into(), engine: Engine::Ring, round, floor_ns, moved }
        };
        let second = 1_000_000_000;
        let samples = vec![
            sample("raw ring", 0, second, 0),
            sample("ring, futures", 0, 2 * second, 0),
            sample("raw ring", 1, second, 2 * second),
            sample("ring, futures", 1, 4 * second, 0),
        ];
        let skipped = vec![Skipped { what: "foyer".into(), reason: "it was not asked for".into() }];
        let resident = vec![Resident {
            what: "100 B".into(),
            round: 0,
            memory: 64 << 20,
            in_flight: 4 << 20,
            before: 4 << 20,
            peak: 104 << 20,
        }];
        let cost = Cost { wall_ns: 3 * second, cpu_ns: 2 * second };
        let timed = vec![Timed { what: "build()".into(), round: 0, count: 1000, cost }];
        Results { header: header(&[]), samples, resident, timed, skipped }
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_not_below_the_floor() {
        let results = results();
        let lines = results.lines();
        assert_eq!(lines.iter().map(|line| line.who).collect::<Vec<_>>(), ["raw ring", "ring, futures"]);
        assert_eq!(results.ratio(lines[1]), Some(Spread { median: 0.5, min: 0.5, max: 0.5 }));
        assert_eq!(results.base(lines[1]), Some(lines[0]));
    }

    #[test]
    fn the_file_can_be_read_again() {
        let results = results();
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
    }
}
