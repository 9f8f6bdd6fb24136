//! A world for the ledger: memory as a map, a runner whose copies end when and how the test wants, and people who ask.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod people;
pub mod steps;
pub mod world;

use terrace_tiers::ledger::{Medium, Settings, TierSpec};

/// Tiers of such capacities: the first `memory` of them memory, the rest files.
pub fn settings(memory: usize, capacities: &[u64]) -> Settings {
    let medium = |at: usize| if at < memory { Medium::Memory } else { Medium::File };
    let specs = capacities.iter().enumerate().map(|(at, &capacity)| TierSpec { medium: medium(at), capacity, unit: 1 });
    Settings::new(specs.collect())
}
