//! Records of live blocks, by key.
//!
//! Promises upward: threads that use different keys rarely wait for each other; a free finds the record that another
//! thread made; a key without a record is harmless.
//! Asks from below: a hash table with memory from an allocator. Where that has none, the record is refused, not the
//! allocation that it describes.
//!
//! Invariants:
//! - a key has at most one record
//! - a record lies in the shard that bits 32 to 37 of its key's hash name; the table itself uses the bits at both ends

use crate::tag::Tag;
use alloc::vec::Vec;
use allocator_api2::alloc::Allocator;
use core::array;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use spin::mutex::SpinMutex;

/// Number of shards, each with a lock. 64: with as many threads as that at work, one in some ten calls meets another.
/// Under Miri few, since each tracker makes them all.
const SHARDS: usize = if cfg!(miri) { 2 } else { 64 };

/// What is known of a live block. 48 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackRecord {
    /// Address of the block, or the number by which its owner knows it.
    pub(crate) key: u64,
    /// Unique among all records of the tracker; set when the record is kept.
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds of the tracker's clock.
    pub(crate) born: u64,
    /// Number of the call stack; zero for none.
    pub(crate) site: u32,
    pub(crate) tag: Tag,
    /// Index in the tracker's list of places.
    pub(crate) place: u8,
}

/// A part of the records. Two cache lines, so that neighbours' locks share none.
#[repr(align(128))]
struct RecordShard<A: Allocator> {
    state: SpinMutex<ShardState<A>>,
}

struct ShardState<A: Allocator> {
    table: HashTable<TrackRecord, A>,
    /// Number of records that were kept so far.
    kept: u64,
}

/// The records of all live blocks of a tracker.
pub(crate) struct RecordTable<A: Allocator> {
    shards: [RecordShard<A>; SHARDS],
}

#[inline]
fn hash_of(key: u64) -> u64 {
    FixedState::default().hash_one(key)
}

impl<A: Allocator + Clone> RecordTable<A> {
    pub(crate) fn new(memory: &A) -> Self {
        let shard = |_| {
            let state = ShardState { table: HashTable::new_in(memory.clone()), kept: 0 };
            RecordShard { state: SpinMutex::new(state) }
        };
        Self { shards: array::from_fn(shard) }
    }

    #[inline]
    fn shard(&self, hash: u64) -> (usize, &SpinMutex<ShardState<A>>) {
        let at = (hash >> 32) as usize % SHARDS;
        (at, &self.shards[at].state)
    }

    /// Keeps a record, in place of an older one with the same key, which is returned.
    ///
    /// # Errors
    /// There is no memory for it.
    #[inline]
    pub(crate) fn insert(&self, mut record: TrackRecord) -> Result<Option<TrackRecord>, ()> {
        let hash = hash_of(record.key);
        let (at, shard) = self.shard(hash);
        let mut state = shard.lock();
        let ShardState { table, kept } = &mut *state;
        if table.try_reserve(1, |other| hash_of(other.key)).is_err() {
            return Err(());
        }
        record.id = *kept * SHARDS as u64 + at as u64;
        *kept += 1;
        match table.find_mut(hash, |other| other.key == record.key) {
            Some(older) => Ok(Some(core::mem::replace(older, record))),
            None => {
                table.insert_unique(hash, record, |other| hash_of(other.key));
                Ok(None)
            }
        }
    }

    /// Removes the record of a key, if there is one.
    #[inline]
    pub(crate) fn remove(&self, key: u64) -> Option<TrackRecord> {
        let hash = hash_of(key);
        let mut state = self.shard(hash).1.lock();
        let found = state.table.find_entry(hash, |record| record.key == key).ok()?;
        Some(found.remove().0)
    }

    /// Removes all records, and passes each on. No lock is held then.
    pub(crate) fn drain(&self, mut to: impl FnMut(TrackRecord)) {
        for shard in &self.shards {
            let mut state = shard.state.lock();
            let empty = HashTable::new_in(state.table.allocator().clone());
            let removed = core::mem::replace(&mut state.table, empty);
            drop(state);
            removed.iter().for_each(|record| to(*record));
        }
    }

    /// Passes on each record. The lock of its shard is held then: `look` must not allocate.
    pub(crate) fn visit(&self, mut look: impl FnMut(&TrackRecord)) {
        for shard in &self.shards {
            shard.state.lock().table.iter().for_each(&mut look);
        }
    }

    /// All records that `wanted` accepts, in no order. Each shard is copied at one moment, the shards one by one.
    pub(crate) fn collect(&self, wanted: impl Fn(&TrackRecord) -> bool) -> Vec<TrackRecord> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let mut room = 16;
            loop {
                // Memory is asked for without the lock: the allocator may be one that this tracker watches.
                found.reserve(room);
                let state = shard.state.lock();
                if state.table.len() <= found.capacity() - found.len() {
                    found.extend(state.table.iter().filter(|record| wanted(record)));
                    break;
                }
                room = state.table.len() + state.table.len() / 8;
            }
        }
        found
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.state.lock().table.len()).sum()
    }
}
