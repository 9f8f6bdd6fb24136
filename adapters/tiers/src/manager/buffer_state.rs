//! State of one buffer: its lease word and its copies.
//!
//! Promises upward: while a lease is held, `best` is the address of all its bytes, and these are the newest; null where
//! only a device addresses them.
//!
//! Invariants:
//! - the word is closed whenever only files have the newest bytes, and while anything but a lease changes `best`, a
//!   copy in memory or on a device, or its bytes
//! - chunk `i` of a tier's pieces is the newest if its version is `versions[i]`; version 0 was never written, and is
//!   zeros

use super::block::HostBlock;
use super::device_tier::DeviceCopy;
use crate::ledger::BufferId;
use async_lock::RwLock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_core::lease::LeaseWord;
use terrace_core::residence::Tier;
use terrace_file::{MappedFile, Notify, Piece};

/// State of a buffer, shared by its handles, the manager and tasks.
#[derive(Debug)]
pub(super) struct BufferState {
    pub id: BufferId,
    pub bytes: u64,
    /// `None`: it cannot be made durable.
    pub named: Option<Box<NameRecord>>,
    /// Bytes of a chunk; the last chunk may be shorter.
    pub chunk: usize,
    /// Bytes of memory that its metadata counts for.
    pub metadata_bytes: u64,
    /// The mapped file whose bytes they are: then no ledger knows the buffer, and it has no copies.
    pub mapped: Option<Box<MappedFile>>,
    pub lease: LeaseWord,
    pub best: AtomicPtr<u8>,
    pub freed: AtomicBool,
    copies: Mutex<BufferCopies>,
    /// Readers share it and writers hold it alone, so that calls wait for each other; a lease that a user holds refuses
    /// them instead.
    pub call_lock: RwLock<()>,
    /// Calls so far: each releases its lease before it ends.
    begun: AtomicUsize,
    /// Of these, the calls that have ended.
    ended: AtomicUsize,
    /// Counts begins and ends of copies beside readers, which hold a shared lease as those do: odd while one is in
    /// progress. Changed under the manager's lock, before such a lease is taken and after it is released.
    shared_copies: AtomicUsize,
    /// Notified when a migration has ended, under the manager's lock: only tasks may listen. Created by the first
    /// listener.
    changed: OnceLock<Box<Notify>>,
}

/// What a named buffer has in addition.
#[derive(Debug)]
pub(super) struct NameRecord {
    pub name: String,
    /// Its object number in the store.
    pub object: u64,
    /// Serialises syncs and removal: an earlier state never overwrites a later one.
    pub sync_lock: async_lock::Mutex<()>,
    /// The tier that has its durable bytes, once there may be some.
    pub durable_tier: OnceLock<Tier>,
}

/// The copy of a buffer in a file tier: for each chunk its piece and the piece's version.
pub(super) type Pieces = Vec<Option<(Arc<Piece>, u64)>>;

/// A version for each chunk; most buffers have one chunk.
pub(super) type Versions = SmallVec<[u64; 2]>;

/// The copy of a buffer in one tier.
#[derive(Debug)]
pub(super) enum TierCopy {
    Memory(HostBlock),
    Device(Arc<DeviceCopy>),
    Pieces(Pieces),
}

/// The copies of a buffer, by tier.
#[derive(Debug)]
pub(super) struct BufferCopies {
    /// Most buffers have one copy.
    copies: SmallVec<[(Tier, TierCopy); 1]>,
    /// The newest version of each chunk.
    pub versions: Versions,
    /// The versions of chunks that the store's log has. `None`: nothing is durable.
    pub durable: Option<Box<Versions>>,
    latest: u64,
}

impl BufferState {
    /// State of a buffer without copies.
    pub(super) fn new(id: BufferId, bytes: u64, chunk: usize, name: Option<(String, u64)>) -> Self {
        let named = |(name, object)| {
            let (sync_lock, durable_tier) = (async_lock::Mutex::new(()), OnceLock::new());
            Box::new(NameRecord { name, object, sync_lock, durable_tier })
        };
        let chunks = bytes.div_ceil(chunk as u64) as usize;
        let copies = BufferCopies {
            copies: SmallVec::new(),
            versions: SmallVec::from_elem(0, chunks),
            durable: None,
            latest: 0,
        };
        Self {
            id,
            bytes,
            named: name.map(named),
            chunk,
            metadata_bytes: 0,
            mapped: None,
            lease: LeaseWord::closed(),
            best: AtomicPtr::default(),
            freed: AtomicBool::new(false),
            copies: Mutex::new(copies),
            call_lock: RwLock::new(()),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            shared_copies: AtomicUsize::new(0),
            changed: OnceLock::new(),
        }
    }

    pub(super) fn copies(&self) -> MutexGuard<'_, BufferCopies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunks that a range of bytes touches.
    pub(super) fn chunks(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let chunk = self.chunk as u64;
        (offset / chunk) as usize..(offset + bytes).div_ceil(chunk) as usize
    }

    /// Length of a chunk in bytes.
    pub(super) fn chunk_bytes(&self, chunk: usize) -> usize {
        let left = self.bytes - chunk as u64 * self.chunk as u64;
        left.min(self.chunk as u64) as usize
    }

    /// Opens the lease word over the newest bytes in a memory tier, or else on a device, if they are there. The word
    /// must be closed.
    pub(super) fn open(&self, memory: Option<Tier>, device: Option<Tier>) {
        let copies = self.copies();
        let start = memory.and_then(|tier| copies.memory(tier)).map(HostBlock::pointer);
        let copy = device.is_some_and(|tier| copies.device(tier).is_some());
        if start.is_some() || copy {
            // A reader on a device may hold a shared lease: it may then see the bytes behind the address.
            self.best.store(start.unwrap_or(std::ptr::null_mut()), Ordering::Release);
            self.lease.reopen();
        }
    }

    /// Registers a call until the returned value is dropped. The caller must hold `call_lock`.
    pub(super) fn call(&self) -> impl Drop + '_ {
        struct Call<'a>(&'a AtomicUsize);
        impl Drop for Call<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        // A thread that sees the lease taken next sees this too.
        fence(Ordering::SeqCst);
        Call(&self.ended)
    }

    /// Number of calls that have ended so far.
    pub(super) fn ended_calls(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether a call was active since so many had ended: a lease that was refused for may have been its.
    pub(super) fn had_call_since(&self, ended: usize) -> bool {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) != ended
    }

    /// Waits until the active calls have ended.
    pub(super) async fn wait_for_calls(&self) {
        drop(self.call_lock.write().await);
    }

    /// Takes a shared lease for a copy beside readers. False: it was refused.
    pub(super) fn begin_shared_copy(&self) -> bool {
        self.shared_copies.fetch_add(1, Ordering::SeqCst);
        // A thread that sees the lease sees this too.
        fence(Ordering::SeqCst);
        let shared = self.lease.acquire_shared().is_ok();
        if !shared {
            self.shared_copies.fetch_add(1, Ordering::SeqCst);
        }
        shared
    }

    /// Releases that lease, if it is held. Returns whether it blocked a migration.
    pub(super) fn end_shared_copy(&self) -> bool {
        if !self.has_shared_copy() {
            return false;
        }
        let wanted = self.lease.release_shared();
        self.shared_copies.fetch_add(1, Ordering::SeqCst);
        wanted
    }

    /// A mark for [`had_shared_copy_since`](Self::had_shared_copy_since).
    pub(super) fn shared_copies(&self) -> usize {
        self.shared_copies.load(Ordering::SeqCst)
    }

    /// Whether a copy beside readers is in progress.
    pub(super) fn has_shared_copy(&self) -> bool {
        self.shared_copies() % 2 == 1
    }

    /// Whether such a copy was active since the mark: a lease that was refused for may have been its.
    pub(super) fn had_shared_copy_since(&self, since: usize) -> bool {
        fence(Ordering::SeqCst);
        since % 2 == 1 || self.shared_copies() != since
    }

    /// The notification of the end of a migration.
    pub(super) fn changed(&self) -> &Notify {
        self.changed.get_or_init(Box::default)
    }

    /// Notifies listeners that a migration has ended. A listener has checked the state under the manager's lock since,
    /// or sees what happens after this.
    pub(super) fn notify_changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed.notify();
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> Option<&str> {
        self.named.as_ref().map(|named| named.name.as_str())
    }

    /// Waits until no copy beside readers is in progress.
    pub(super) async fn wait_for_shared_copy(&self) {
        // Listens before it checks, so that no notification is missed.
        let changed = self.changed().listen();
        if self.has_shared_copy() {
            changed.await;
        }
    }

    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }
}

impl BufferCopies {
    fn get(&self, tier: Tier) -> Option<&TierCopy> {
        self.copies.iter().find(|(at, _)| *at == tier).map(|(_, copy)| copy)
    }

    pub(super) fn memory(&self, tier: Tier) -> Option<&HostBlock> {
        if let Some(TierCopy::Memory(block)) = self.get(tier) { Some(block) } else { None }
    }

    pub(super) fn device(&self, tier: Tier) -> Option<&Arc<DeviceCopy>> {
        if let Some(TierCopy::Device(copy)) = self.get(tier) { Some(copy) } else { None }
    }

    pub(super) fn pieces(&self, tier: Tier) -> Option<&Pieces> {
        if let Some(TierCopy::Pieces(pieces)) = self.get(tier) { Some(pieces) } else { None }
    }

    /// Records a new piece of a chunk, if the tier has a copy.
    pub(super) fn put_piece(&mut self, tier: Tier, chunk: usize, piece: &Arc<Piece>) {
        let version = self.versions[chunk];
        if let Some((_, TierCopy::Pieces(pieces))) = self.copies.iter_mut().find(|(at, _)| *at == tier) {
            pieces[chunk] = Some((Arc::clone(piece), version));
        }
    }

    /// Adds a copy; returns the one that it replaces.
    pub(super) fn put(&mut self, tier: Tier, copy: TierCopy) -> Option<TierCopy> {
        let old = self.take(tier);
        self.copies.push((tier, copy));
        old
    }

    pub(super) fn take(&mut self, tier: Tier) -> Option<TierCopy> {
        let at = self.copies.iter().position(|(at, _)| *at == tier)?;
        Some(self.copies.swap_remove(at).1)
    }

    /// Removes all copies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = TierCopy> + use<> {
        std::mem::take(&mut self.copies).into_iter().map(|(_, copy)| copy)
    }

    /// Whether the buffer was never written: all bytes are zero.
    pub(super) fn is_untouched(&self) -> bool {
        self.latest == 0
    }

    /// Records a write to these chunks.
    pub(super) fn wrote(&mut self, chunks: std::ops::Range<usize>) {
        self.latest += 1;
        self.versions[chunks].fill(self.latest);
    }
}
