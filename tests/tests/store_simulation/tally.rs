//! What a run did, so that it cannot go blind unseen.

use std::collections::BTreeMap;
use std::fmt;
use terrace_tests::disk::{Counts, Fault, RunCounts, add};

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: RunCounts,
    pub smaller: u64,
    /// Pieces read and found right.
    pub read: u64,
    /// Errors that a fault explained, by operation.
    pub excused: BTreeMap<&'static str, u64>,
    /// Commits that failed or whose outcome nobody asked for, found made or not made after a power cut.
    pub resolved: u64,
    /// States older than the last that was durable, after the disk had lied about both copies of a log.
    pub betrayed: u64,
}

impl Counts for Tally {
    fn add(&mut self, other: &Self) {
        self.runs.add(&other.runs);
        self.smaller += other.smaller;
        self.read += other.read;
        self.resolved += other.resolved;
        self.betrayed += other.betrayed;
        add(&mut self.excused, &other.excused);
    }
}

impl Tally {
    pub fn excuse(&mut self, what: &'static str) {
        *self.excused.entry(what).or_default() += 1;
    }

    /// Whether everything happened that should: in a run of many seeds every fault, and 200 operations and 3 faults a seed.
    pub fn is_broad(&self, many: bool) -> Result<(), String> {
        let RunCounts { seeds, operations, cuts, kills, restarts, .. } = self.runs;
        let (read, resolved) = (self.read, self.resolved);
        let (fired, kinds) = (self.runs.fired(), self.runs.faults.len());
        let per_seed = operations >= 200 * seeds && fired >= 3 * seeds && cuts >= 2 * seeds && read >= 10 * seeds;
        let all = kinds == Fault::ALL.len() && restarts > 0 && 2 * kills > seeds && resolved > 0 && self.smaller > 0;
        let excused = ["put", "get", "commit", "open"].iter().all(|what| self.excused.contains_key(what));
        if per_seed && (!many || (all && excused)) { Ok(()) } else { Err(self.to_string()) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunCounts { seeds, operations, orders, faults, cuts, kills, restarts, reopened } = &self.runs;
        let Self { smaller, read, resolved, betrayed, .. } = self;
        writeln!(f, "{seeds} seeds, {operations} operations, {orders} orders, {read} pieces read and right")?;
        writeln!(
            f,
            "{cuts} power cuts, {kills} kills, {restarts} restarts, {reopened} times opened again, {smaller} with a smaller cap"
        )?;
        writeln!(
            f,
            "{resolved} commits of unknown outcome found out, {betrayed} older states after lies about both copies"
        )?;
        writeln!(f, "{} faults: {faults:?}", self.runs.fired())?;
        write!(f, "errors that faults explain: {:?}", self.excused)
    }
}
