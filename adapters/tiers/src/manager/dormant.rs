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
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Object, StoreError};

/// At recovery, a store may have at most as many chunks as its cap in bytes divided by this. That bounds the memory for
/// records of chunks, whatever length the stored buffers claim. As chunks have at least 4 KiB, buffers of 64 times the
/// cap can be recovered.
const CHUNK_RECORDS: u64 = 64;

/// Where a dormant buffer's object is. The store's metadata has all else, and stays as it is while the buffer is dormant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DormantBuffer {
    object: u64,
    /// The lower 32 bits of a hash of the name; the name itself is in the store alone.
    hash: u32,
    tier: Tier,
}

/// The tier of an entry whose buffer was opened.
const OPENED: Tier = Tier::MAX;

/// The dormant buffers by name.
#[derive(Debug, Default)]
pub(super) struct DormantBuffers {
    /// In the order of their hashes once all are recovered: a table of hashes takes several times as long to fill, and
    /// twice the bytes. An entry stays where it is when its buffer is opened.
    entries: Vec<DormantBuffer>,
    opened: usize,
    hasher: RandomState,
}

impl DormantBuffers {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.opened
    }

    fn hash(&self, name: &str) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    /// The index of the dormant buffer with this name.
    fn find(&self, shared: &ManagerShared, name: &str) -> Option<usize> {
        let hash = self.hash(name);
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        let mut same = self.entries[first..].iter().take_while(|entry| entry.hash == hash).zip(first..);
        let is_it = |meta: &BufferMeta<'_>| meta.name == name;
        same.find(|(entry, _)| shared.with_dormant(**entry, is_it) == Some(true)).map(|(_, at)| at)
    }

    pub(super) fn has(&self, shared: &ManagerShared, name: &str) -> bool {
        self.find(shared, name).is_some()
    }

    /// Marks an entry as opened. The last one gives the memory of all back.
    fn open(&mut self, at: usize) {
        self.entries[at].tier = OPENED;
        self.opened += 1;
        if self.len() == 0 {
            (self.entries, self.opened) = (Vec::new(), 0);
        }
    }

    fn iter(&self) -> impl Iterator<Item = DormantBuffer> {
        self.entries.iter().copied().filter(|entry| entry.tier != OPENED)
    }

    /// Puts the entries in order.
    ///
    /// # Errors
    /// [`Error::Twice`].
    fn sort(&mut self, shared: &ManagerShared) -> Result<(), Error> {
        self.entries.sort_unstable_by_key(|entry| entry.hash);
        for same in self.entries.chunk_by(|one, other| one.hash == other.hash).filter(|same| same.len() > 1) {
            let mut names = BTreeSet::new();
            for name in same.iter().filter_map(|entry| shared.with_dormant(*entry, |meta| meta.name.to_string())) {
                if let Some(twice) = names.replace(name) {
                    return Err(Error::Twice(twice));
                }
            }
        }
        Ok(())
    }
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
        let mut chunks = 0;
        for (&number, object) in objects {
            let unknown = || Error::Store(StoreError::BadOptions("the directory has objects of another program's"));
            // Managers assign object numbers in sequence from 1 on, so a number this large is another program's.
            let meta = BufferMeta::decode(&object.meta).filter(|_| number < u64::MAX / 2).ok_or_else(unknown)?;
            let name = || meta.name.into();
            if u64::from(meta.chunk) > most {
                return Err(Error::Chunks { name: name(), bytes: meta.chunk });
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
            let hash = self.dormant.hash(meta.name);
            self.dormant.entries.push(DormantBuffer { object: number, hash, tier });
        }
        Ok(())
    }

    /// Opens a dormant buffer, which has an id and a state from then on; `None` if no dormant buffer has this name.
    ///
    /// Its chunks are taken over one by one, in O(chunks).
    ///
    /// # Errors
    /// There are as many buffers as a ledger can have; then the buffer stays dormant.
    pub(super) fn wake(&mut self, shared: &Arc<ManagerShared>, name: &str) -> Result<Option<Arc<BufferState>>, Error> {
        let Some(at) = self.dormant.find(shared, name) else { return Ok(None) };
        let dormant = self.dormant.entries[at];
        let Some(object) = shared.store(dormant.tier)?.object(dormant.object) else { return Ok(None) };
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
        self.dormant.open(at);
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

    /// Calls `each` with every dormant buffer and its metadata, by tier and object; `None` for one that is not in its store.
    fn each_dormant(&self, shared: &ManagerShared, mut each: impl FnMut(Tier, Option<BufferMeta<'_>>)) {
        let mut all: Vec<_> = self.dormant.iter().collect();
        all.sort_unstable_by_key(|buffer| (buffer.tier, buffer.object));
        for buffers in all.chunk_by(|one, other| one.tier == other.tier) {
            let tier = buffers[0].tier;
            let Ok(store) = shared.store(tier) else { continue };
            store.with_objects(|objects| {
                let meta = |buffer: &DormantBuffer| BufferMeta::decode(&objects.get(&buffer.object)?.meta);
                buffers.iter().for_each(|buffer| each(tier, meta(buffer)));
            });
        }
    }

    /// The dormant buffers, as lists show them.
    pub(super) fn listed_dormant(&self, shared: &ManagerShared) -> Vec<BufferInfo> {
        let mut listed = Vec::with_capacity(self.dormant.len());
        self.each_dormant(shared, |tier, meta| {
            let info = |BufferMeta { name, bytes, .. }| BufferInfo {
                name: Some(name.into()),
                file: None,
                bytes,
                tier,
                durable: true,
                leased: false,
            };
            listed.extend(meta.map(info));
        });
        listed
    }

    /// Checks that each dormant buffer is in its store, and that the ledger and the account of metadata count it.
    pub(super) fn check_dormant(&self, shared: &ManagerShared) -> Result<(), String> {
        let (mut found, mut bytes, mut metadata) = (0, 0, 0);
        self.each_dormant(shared, |_, meta| {
            let Some(meta) = meta else { return };
            found += 1;
            bytes += meta.bytes;
            metadata += shared.metadata_bytes(meta.bytes, meta.chunk as usize, Some(meta.name));
        });
        if found != self.dormant.len() {
            return Err(format!("of {} dormant buffers {found} are in their stores", self.dormant.len()));
        }
        let opened: u64 = self.buffers.values().map(|buffer| buffer.metadata_bytes).sum();
        let asked: u64 = self.allocations.values().map(|waiter| waiter.metadata_bytes).sum();
        let counted = self.ledger.dormant_bytes() == bytes && self.metadata == metadata + opened + asked;
        if counted { Ok(()) } else { Err("dormant buffers count as those that are open".into()) }
    }
}

impl ManagerShared {
    /// What `read` returns, given a dormant buffer's metadata; `None` for one that was opened.
    fn with_dormant<T>(&self, buffer: DormantBuffer, read: impl FnOnce(&BufferMeta<'_>) -> T) -> Option<T> {
        let object = |object: &Object| Some(read(&BufferMeta::decode(&object.meta)?));
        self.store(buffer.tier).ok()?.with_object(buffer.object, object).flatten()
    }

    /// Finds the buffers of all stores, even beyond capacities, with chunks of at most `most` bytes: they are dormant.
    /// Must be called before buffers are allocated.
    pub(super) fn recover(self: &Arc<Self>, most: u64) -> Result<(), Error> {
        let stores = || self.tiers().filter_map(|tier| Some((tier, self.store(tier).ok()?)));
        let mut state = self.state();
        state.dormant.entries.reserve_exact(stores().map(|(_, store)| store.stats().objects).sum());
        for (tier, store) in stores() {
            let cap = store.stats().cap;
            store.with_objects(|objects| state.recover(self, (tier, cap), objects, most))?;
            // The ledger reports the tier's pressure, and memory has as much less room as describes the buffers.
            let capacity = state.allowed(self, tier);
            state.handle(self, LedgerEvent::Resize { tier, capacity })?;
        }
        let sorted = state.dormant.sort(self);
        self.unlock(state);
        sorted
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
        second.open("a").expect("it is there");
        let entries = |manager: &Manager| manager.shared.state().dormant.entries.capacity();
        assert_eq!((known(), entries(&second)), ((0, 2, 2, 2), 0), "the last one gives the memory of all back");
    }
}
