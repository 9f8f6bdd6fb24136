//! What a run did, so that it cannot go blind unseen.

use std::collections::BTreeMap;
use std::fmt;
use terrace_tests::disk::{Counts, Fault};

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub seeds: u64,
    pub operations: u64,
    pub orders: u64,
    pub faults: BTreeMap<Fault, u64>,
    pub cuts: u64,
    pub kills: u64,
    pub restarts: u64,
    /// Opened again, and everything read.
    pub reopened: u64,
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
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.orders += other.orders;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.reopened += other.reopened;
        self.smaller += other.smaller;
        self.read += other.read;
        self.resolved += other.resolved;
        self.betrayed += other.betrayed;
        other.faults.iter().for_each(|(fault, count)| *self.faults.entry(*fault).or_default() += count);
        other.excused.iter().for_each(|(what, count)| *self.excused.entry(what).or_default() += count);
    }
}

impl Tally {
    pub fn excuse(&mut self, what: &'static str) {
        *self.excused.entry(what).or_default() += 1;
    }

    /// Whether everything happened that should: in a run of many seeds every fault, and 200 operations and 3 faults a seed.
    pub fn is_broad(&self, many: bool) -> Result<(), String> {
        let Self { seeds, operations, cuts, kills, restarts, read, resolved, .. } = *self;
        let (fired, kinds) = (self.fired(), self.faults.len());
        let per_seed = operations >= 200 * seeds && fired >= 3 * seeds && cuts >= 2 * seeds && read >= 10 * seeds;
        let all = kinds == Fault::ALL.len() && restarts > 0 && 2 * kills > seeds && resolved > 0 && self.smaller > 0;
        let excused = ["put", "get", "commit", "open"].iter().all(|what| self.excused.contains_key(what));
        if per_seed && (!many || (all && excused)) { Ok(()) } else { Err(self.to_string()) }
    }

    pub fn fired(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seeds, operations, orders, cuts, kills, restarts, reopened, smaller, read, resolved, betrayed, ..
        } = self;
        writeln!(f, "{seeds} seeds, {operations} operations, {orders} orders, {read} pieces read and right")?;
        writeln!(
            f,
            "{cuts} power cuts, {kills} kills, {restarts} restarts, {reopened} times opened again, {smaller} with a smaller cap"
        )?;
        writeln!(
            f,
            "{resolved} commits of unknown outcome found out, {betrayed} older states after lies about both copies"
        )?;
        writeln!(f, "{} faults: {:?}", self.fired(), self.faults)?;
        write!(f, "errors that faults explain: {:?}", self.excused)
    }
}
