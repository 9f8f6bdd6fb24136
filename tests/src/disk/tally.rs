//! What every simulation of a disk counts.

use super::{Fault, SimDisk};
use std::collections::BTreeMap;

/// What seeds did to the disk, and how often they began again.
#[derive(Clone, Debug, Default)]
pub struct RunCounts {
    /// Seeds that ran to their end.
    pub seeds: u64,
    /// Operations begun.
    pub operations: u64,
    /// Orders that the disk completed.
    pub orders: u64,
    /// Faults that fired.
    pub faults: BTreeMap<Fault, u64>,
    /// Power cuts.
    pub cuts: u64,
    /// Processes that ended with operations under way.
    pub kills: u64,
    /// Ends with nothing under way.
    pub restarts: u64,
    /// Opened again, and everything read.
    pub reopened: u64,
}

impl RunCounts {
    /// Takes in what other seeds did.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.orders += other.orders;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.reopened += other.reopened;
        add(&mut self.faults, &other.faults);
    }

    /// Takes in what a disk did.
    pub(super) fn end(&mut self, disk: &SimDisk) {
        self.orders += disk.completed();
        disk.fired(0).iter().for_each(|fired| *self.faults.entry(fired.fault).or_default() += 1);
    }

    /// Faults that fired.
    pub fn fired(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// Adds counts by their keys.
pub fn add<K: Copy + Ord>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    from.iter().for_each(|(key, count)| *to.entry(*key).or_default() += count);
}
