//! Vector clocks (Lamport; Fidge, Mattern): how far each stream is known to have come.

use std::collections::BTreeMap;

/// For each stream, the number of its last piece of work that is known done. 0: none.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    pub(super) fn get(&self, stream: u64) -> u64 {
        self.0.get(&stream).copied().unwrap_or(0)
    }

    /// Learns that a stream came at least this far.
    pub(super) fn reach(&mut self, stream: u64, work: u64) {
        let known = self.0.entry(stream).or_default();
        *known = work.max(*known);
    }

    /// Learns all that another clock knows.
    pub(super) fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(&stream, &work)| self.reach(stream, work));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(&stream, &work)| (stream, work))
    }
}
