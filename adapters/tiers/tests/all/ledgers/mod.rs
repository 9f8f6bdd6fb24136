//! A simulated world for the ledger: memory as a map, copies that end when and how the test wants, and users.

pub mod steps;
pub mod users;
pub mod world;

use terrace_tiers::ledger::{Medium, Settings, TierSpec};

/// Tiers of these capacities: the first `memory` of them memory, the rest files.
pub fn settings(memory: usize, capacities: &[u64]) -> Settings {
    let medium = |at: usize| if at < memory { Medium::Memory } else { Medium::File };
    let specs = capacities.iter().enumerate().map(|(at, &capacity)| TierSpec { medium: medium(at), capacity, unit: 1 });
    Settings::new(specs.collect())
}
