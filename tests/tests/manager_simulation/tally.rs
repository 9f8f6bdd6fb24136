//! What a run did, so that it cannot go blind unseen.

use std::collections::BTreeMap;
use std::fmt;
use terrace_tests::disk::{Counts, Fault, RunCounts, add};
use terrace_tiers::manager::MoveStats;

#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: RunCounts,
    /// Reads and leases that held the right bytes.
    pub right: u64,
    /// Operations done, by kind.
    pub done: BTreeMap<&'static str, u64>,
    /// Operations refused, by kind and reason; each had one.
    pub refused: BTreeMap<(&'static str, &'static str), u64>,
    /// Buffers found durable after a start, and those of which it was not known before whether they would be.
    pub found: u64,
    pub open: u64,
    /// Copies up and down.
    pub moved: u64,
    /// Seeds that ended since a log was lost.
    pub lost: u64,
}

impl Counts for Tally {
    fn add(&mut self, other: &Self) {
        self.runs.add(&other.runs);
        self.right += other.right;
        self.found += other.found;
        self.open += other.open;
        self.moved += other.moved;
        self.lost += other.lost;
        add(&mut self.done, &other.done);
        add(&mut self.refused, &other.refused);
    }
}

impl Tally {
    pub fn done(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    pub fn refused(&mut self, what: &'static str, why: &'static str) {
        *self.refused.entry((what, why)).or_default() += 1;
    }

    pub fn moves(&mut self, moves: MoveStats) {
        self.moved += moves.up + moves.down;
    }

    /// Whether everything happened that should: 200 operations and 3 faults a seed, each operation more often done than refused.
    pub fn is_broad(&self, many: bool) -> Result<(), String> {
        let RunCounts { seeds, operations, cuts, kills, restarts, .. } = self.runs;
        let Self { right, found, moved, .. } = *self;
        let per_seed = operations >= 200 * seeds && self.runs.fired() >= 3 * seeds && cuts + kills >= 2 * seeds;
        let deep = right >= 20 * seeds && found >= 3 * seeds && moved >= 10 * seeds && restarts > 0;
        let of = |what| self.refused.iter().filter(|((one, _), _)| *one == what).map(|(_, count)| count).sum::<u64>();
        let often = self.done.iter().all(|(what, count)| *count > of(*what));
        let all = self.runs.faults.len() == Fault::ALL.len() && 2 * kills > seeds && self.open > 0;
        if per_seed && deep && (!many || (all && often)) { Ok(()) } else { Err(self.to_string()) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunCounts { seeds, operations, orders, faults, cuts, kills, restarts, reopened } = &self.runs;
        let Self { right, found, open, moved, lost, .. } = self;
        let fired = self.runs.fired();
        writeln!(f, "{seeds} seeds, {operations} operations, {fired} faults, {cuts} power cuts, {kills} kills")?;
        writeln!(
            f,
            "{orders} orders, {moved} copies between tiers, {right} reads and leases right, {restarts} restarts"
        )?;
        writeln!(f, "{found} durable buffers found, of {open} it was open whether they would be, {lost} logs lost")?;
        writeln!(f, "faults: {faults:?}\ndone: {:?}\nrefused, justly: {:?}", self.done, self.refused)?;
        write!(f, "{reopened} times opened again")
    }
}
