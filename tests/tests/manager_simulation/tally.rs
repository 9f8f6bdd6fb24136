//! What a run did, so that it cannot go blind unseen.

use std::collections::BTreeMap;
use std::fmt;
use terrace_tests::disk::{Counts, Fault};
use terrace_tiers::manager::MoveStats;

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
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.orders += other.orders;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.reopened += other.reopened;
        self.right += other.right;
        self.found += other.found;
        self.open += other.open;
        self.moved += other.moved;
        self.lost += other.lost;
        add(&mut self.faults, &other.faults);
        add(&mut self.done, &other.done);
        add(&mut self.refused, &other.refused);
    }
}

fn add<K: Copy + Ord>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    from.iter().for_each(|(key, count)| *to.entry(*key).or_default() += count);
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

    fn fired(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Whether everything happened that should: 200 operations and 3 faults a seed, each operation more often done than refused.
    pub fn is_broad(&self, many: bool) -> Result<(), String> {
        let Self { seeds, operations, cuts, kills, restarts, right, found, moved, .. } = *self;
        let per_seed = operations >= 200 * seeds && self.fired() >= 3 * seeds && cuts + kills >= 2 * seeds;
        let deep = right >= 20 * seeds && found >= 3 * seeds && moved >= 10 * seeds && restarts > 0;
        let of = |what| self.refused.iter().filter(|((one, _), _)| *one == what).map(|(_, count)| count).sum::<u64>();
        let often = self.done.iter().all(|(what, count)| *count > of(*what));
        let all = self.faults.len() == Fault::ALL.len() && 2 * kills > seeds && self.open > 0;
        if per_seed && deep && (!many || (all && often)) { Ok(()) } else { Err(self.to_string()) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, operations, orders, cuts, kills, restarts, right, found, open, moved, lost, .. } = self;
        let fired = self.fired();
        writeln!(f, "{seeds} seeds, {operations} operations, {fired} faults, {cuts} power cuts, {kills} kills")?;
        writeln!(
            f,
            "{orders} orders, {moved} copies between tiers, {right} reads and leases right, {restarts} restarts"
        )?;
        writeln!(f, "{found} durable buffers found, of {open} it was open whether they would be, {lost} logs lost")?;
        writeln!(f, "faults: {:?}\ndone: {:?}\nrefused, justly: {:?}", self.faults, self.done, self.refused)?;
        write!(f, "{} times opened again", self.reopened)
    }
}
