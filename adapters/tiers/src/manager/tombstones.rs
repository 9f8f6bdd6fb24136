//! Objects in stores of buffers that were freed, until the store has removed them.
//!
//! Promises upward: every commit that makes a name durable removes the objects that had the name before.
//! Asks from below: nothing.

use std::collections::{BTreeMap, BTreeSet};
use terrace_core::residence::Tier;
use terrace_file::Change;

/// Store objects of freed buffers, by name, until the store has removed them. A commit that makes a buffer of the same
/// name durable removes them too, so that no two durable buffers share a name and a removed buffer never comes back.
#[derive(Debug, Default)]
pub(super) struct Tombstones(BTreeMap<String, (Tier, BTreeSet<u64>)>);

impl Tombstones {
    pub(super) fn add(&mut self, name: &str, tier: Tier, object: u64) {
        self.0.entry(name.into()).or_insert((tier, BTreeSet::new())).1.insert(object);
    }

    /// The tier whose store has objects of freed buffers with this name.
    pub(super) fn tier(&self, name: &str) -> Option<Tier> {
        self.0.get(name).map(|(tier, _)| *tier)
    }

    /// Returns store changes that remove the objects of freed buffers with this name.
    pub(super) fn removals(&self, name: &str) -> impl Iterator<Item = Change> {
        self.0.get(name).into_iter().flat_map(|(_, objects)| objects).map(|object| Change::Remove { object: *object })
    }

    /// Forgets objects that the store has removed.
    pub(super) fn removed(&mut self, name: &str, objects: &[u64]) {
        if let Some((_, tombstones)) = self.0.get_mut(name) {
            tombstones.retain(|tombstone| !objects.contains(tombstone));
            if tombstones.is_empty() {
                self.0.remove(name);
            }
        }
    }
}

/// The objects that these store changes remove.
pub(super) fn removed(changes: &[Change]) -> Vec<u64> {
    let removed = |change: &Change| match change {
        Change::Remove { object } => Some(*object),
        _ => None,
    };
    changes.iter().filter_map(removed).collect()
}
