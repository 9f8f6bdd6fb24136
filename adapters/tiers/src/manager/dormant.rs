//! Dormant buffers: durable ones that a store has kept from an earlier run, and that no user has opened since.
//!
//! Promises upward: a manager is built only if every durable buffer is sound and can be described in memory; a dormant
//! buffer is listed and counts, in its tier, for its tenant and in memory for metadata, as if it had been opened; all
//! that open it get the same buffer.
//! Asks from below: the ledger's sums of dormant buffers; stores, which keep the names.

use super::ManagerShared;
use super::allocation::AllocationWaiter;
use super::buffer_state::BufferState;
use super::durable::BufferMeta;
use super::error::Error;
use super::state::State;
use super::types::BufferInfo;
use crate::ledger::LedgerEvent;
use futures_channel::oneshot;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Object, StoreError};

/// At recovery, a store may have at most as many chunks as its cap in bytes divided by this. That bounds the memory for
/// records of chunks, whatever length the stored buffers claim. As chunks have at least 4 KiB, buffers of 64 times the
/// cap can be recovered.
const CHUNK_RECORDS: u64 = 64;

/// Where a dormant buffer's object is. The store's metadata has all else, and stays as it is while the buffer is dormant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DormantBuffer {
    tier: Tier,
    object: u64,
}

/// Places that the table takes for each dormant buffer, at most: they are a power of two, of which seven eighths are used.
pub(super) const PLACES: usize = 3;

/// The dormant buffers by name. A buffer leaves the table when it is opened.
#[derive(Debug, Default)]
pub(super) struct DormantBuffers {
    /// Compared with names in the stores: the table has no copies of them.
    table: HashTable<DormantBuffer>,
    hasher: RandomState,
}

impl DormantBuffers {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The dormant buffer with this name.
    pub(super) fn find(&self, shared: &ManagerShared, name: &str) -> Option<DormantBuffer> {
        let is_it = |buffer: &DormantBuffer| name_of(shared.dormant_object(*buffer).as_ref()) == Some(name);
        self.table.find(self.hasher.hash_one(name), is_it).copied()
    }

    fn remove(&mut self, buffer: DormantBuffer, name: &str) {
        if let Ok(entry) = self.table.find_entry(self.hasher.hash_one(name), |other| *other == buffer) {
            entry.remove();
        }
    }

    /// All of them, in the order of their tiers and objects.
    fn sorted(&self) -> Vec<DormantBuffer> {
        let mut all: Vec<_> = self.table.iter().copied().collect();
        all.sort_unstable();
        all
    }
}

fn name_of(object: Option<&Object>) -> Option<&str> {
    BufferMeta::decode(&object?.meta).map(|meta| meta.name)
}

impl State {
    /// The tenant of a durable buffer. There may be fewer tenants than when it was made durable: then it is the first one.
    fn tenant_of(&self, meta: &BufferMeta<'_>) -> u16 {
        if self.ledger.tenant_bytes(meta.tenant).is_some() { meta.tenant } else { 0 }
    }

    /// Counts the objects of a tier's store as dormant buffers, with chunks of at most `most` bytes.
    fn recover(
        &mut self,
        shared: &ManagerShared,
        (tier, cap): (Tier, u64),
        objects: &BTreeMap<u64, Object>,
        most: u64,
    ) -> Result<(), Error> {
        // This store is locked: it cannot be asked for an object.
        let object_of = |buffer: &DormantBuffer| match buffer.tier == tier {
            true => objects.get(&buffer.object).cloned(),
            false => shared.dormant_object(*buffer),
        };
        let (hasher, mut chunks) = (self.dormant.hasher.clone(), 0);
        for (&number, object) in objects {
            let unknown = || Error::Store(StoreError::BadOptions("the directory has objects of another program's"));
            // Managers assign object numbers in sequence from 1 on, so a number this large is another program's.
            let meta = BufferMeta::decode(&object.meta).filter(|_| number < u64::MAX / 2).ok_or_else(unknown)?;
            let name = || meta.name.into();
            if u64::from(meta.chunk) > most {
                return Err(Error::Chunks { name: name(), bytes: meta.chunk });
            }
            let hash = hasher.hash_one(meta.name);
            if self.dormant.table.find(hash, |other| name_of(object_of(other).as_ref()) == Some(meta.name)).is_some() {
                return Err(Error::Twice(name()));
            }
            if !meta.fits(object) {
                return Err(Error::BadBuffer(name()));
            }
            chunks += meta.chunks();
            if chunks > cap / CHUNK_RECORDS {
                return Err(Error::Store(StoreError::CapTooSmall { needs: chunks * CHUNK_RECORDS, cap }));
            }
            let metadata_bytes = shared.metadata_bytes(meta.bytes, meta.chunk as usize, Some(meta.name));
            self.check_metadata_room(shared, metadata_bytes)?;
            self.ledger.recover(meta.bytes, self.tenant_of(&meta), tier).map_err(Error::Refused)?;
            self.metadata += metadata_bytes;
            self.next_object = self.next_object.max(number + 1);
            self.dormant.table.insert_unique(hash, DormantBuffer { tier, object: number }, |other| {
                hasher.hash_one(name_of(object_of(other).as_ref()).unwrap_or_default())
            });
        }
        Ok(())
    }

    /// Opens a dormant buffer, which has an id and a state from then on; `None` if no dormant buffer has this name.
    ///
    /// # Errors
    /// There are as many buffers as a ledger can have; then the buffer stays dormant.
    pub(super) fn wake(&mut self, shared: &Arc<ManagerShared>, name: &str) -> Result<Option<Arc<BufferState>>, Error> {
        let Some(dormant) = self.dormant.find(shared, name) else { return Ok(None) };
        let Some(object) = shared.dormant_object(dormant) else { return Ok(None) };
        let Some(meta) = BufferMeta::decode(&object.meta) else { return Ok(None) };
        let (tier, tenant, chunk) = (dormant.tier, self.tenant_of(&meta), meta.chunk as usize);
        let (sender, mut outcome) = oneshot::channel();
        let metadata_bytes = shared.metadata_bytes(meta.bytes, chunk, Some(name));
        let name = Some((Arc::from(name), dormant.object));
        // From here on the request counts the metadata.
        self.metadata -= metadata_bytes;
        let ticket = self.ticket(AllocationWaiter { name, chunk, metadata_bytes, origin: None, sender });
        if let Err(rejected) = self.handle(shared, LedgerEvent::Adopt { ticket, bytes: meta.bytes, tenant, tier }) {
            self.dismiss(ticket);
            self.metadata += metadata_bytes;
            return Err(rejected.into());
        }
        self.dormant.remove(dormant, meta.name);
        let buffer = outcome.try_recv().ok().flatten().ok_or(Error::Closed)??;
        let _ = buffer.named.as_ref().map(|named| named.durable_tier.set(tier));
        let mut copies = buffer.copies();
        for (part, piece) in object.parts.iter() {
            let chunk = part as usize;
            copies.wrote(chunk..chunk + 1);
            copies.put_piece(tier, chunk, piece);
        }
        copies.durable = Some(Box::new(copies.versions.clone()));
        drop(copies);
        Ok(Some(buffer))
    }

    /// The dormant buffers, as lists show them.
    pub(super) fn listed_dormant(&self, shared: &ManagerShared) -> Vec<BufferInfo> {
        let listed = |buffer: DormantBuffer| {
            let object = shared.dormant_object(buffer)?;
            let BufferMeta { name, bytes, .. } = BufferMeta::decode(&object.meta)?;
            let (name, tier) = (Some(name.into()), buffer.tier);
            Some(BufferInfo { name, file: None, bytes, tier, durable: true, leased: false })
        };
        self.dormant.sorted().into_iter().filter_map(listed).collect()
    }

    /// Checks that each dormant buffer is in its store, and that the ledger and the account of metadata count it.
    pub(super) fn check_dormant(&self, shared: &ManagerShared) -> Result<(), String> {
        let (mut bytes, mut metadata) = (0, 0);
        for buffer in self.dormant.sorted() {
            let object = shared.dormant_object(buffer).ok_or_else(|| format!("{buffer:?} is not in its store"))?;
            let meta = BufferMeta::decode(&object.meta).ok_or_else(|| format!("{buffer:?} has other metadata"))?;
            bytes += meta.bytes;
            metadata += shared.metadata_bytes(meta.bytes, meta.chunk as usize, Some(meta.name));
        }
        let opened: u64 = self.buffers.values().map(|buffer| buffer.metadata_bytes).sum();
        let asked: u64 = self.allocations.values().map(|waiter| waiter.metadata_bytes).sum();
        let counted = self.ledger.dormant_bytes() == bytes && self.metadata == metadata + opened + asked;
        if counted { Ok(()) } else { Err("dormant buffers count as those that are open".into()) }
    }
}

impl ManagerShared {
    fn dormant_object(&self, buffer: DormantBuffer) -> Option<Object> {
        self.store(buffer.tier).ok()?.object(buffer.object)
    }

    /// Finds the buffers of all stores, even beyond capacities, with chunks of at most `most` bytes: they are dormant.
    /// Must be called before buffers are allocated.
    pub(super) fn recover(self: &Arc<Self>, most: u64) -> Result<(), Error> {
        let stores = || self.tiers().filter_map(|tier| Some((tier, self.store(tier).ok()?)));
        let mut state = self.state();
        state.dormant.table = HashTable::with_capacity(stores().map(|(_, store)| store.stats().objects).sum());
        for (tier, store) in stores() {
            let cap = store.stats().cap;
            store.with_objects(|objects| state.recover(self, (tier, cap), objects, most))?;
            // The ledger reports the tier's pressure, and memory has as much less room as describes the buffers.
            let capacity = state.allowed(self, tier);
            state.handle(self, LedgerEvent::Resize { tier, capacity })?;
        }
        self.unlock(state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Manager;

    /// What a start costs for each durable buffer depends on it.
    #[test]
    fn a_start_makes_no_buffer_and_an_open_makes_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let build = || Manager::builder().memory(1 << 20).directory_of(directory.path(), 64 << 20).build();
        let first = build().expect("it is built");
        for name in ["a", "b", "c"] {
            first.sync(&first.allocate_named(name, 100).expect("room")).expect("durable");
        }
        drop(first);
        let second = build().expect("it is built");
        let known = || {
            let state = second.shared.state();
            (state.dormant.len(), state.buffers.len(), state.names.len(), state.ledger.ids().count())
        };
        assert_eq!(known(), (3, 0, 0, 0));
        for _ in 0..2 {
            second.open("b").expect("it is there");
            assert_eq!(known(), (2, 1, 1, 1));
        }
        second.remove("c").expect("it is there");
        assert_eq!((known(), second.list().len()), ((1, 1, 1, 1), 2));
    }
}
