//! State of one buffer: its lease word and its copies.
//!
//! Promises upward: while a lease is held, `best` is the address of all bytes of the buffer, and these are the newest;
//! it is null where only a device addresses them.
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
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_core::lease::LeaseWord;
use terrace_core::residence::Tier;
use terrace_file::{MappedFile, Notify, Piece};

/// The state of one buffer, shared by its handles, the manager and tasks.
#[derive(Debug)]
pub(super) struct BufferState {
    pub id: BufferId,
    pub bytes: u64,
    /// The buffer's name and durability; `None` for a buffer without a name, which cannot be made durable.
    pub named: Option<Box<NameRecord>>,
    /// Bytes of a chunk; the last chunk may be shorter.
    pub chunk: usize,
    /// Bytes that the buffer's metadata counts for in the manager's account of memory.
    pub metadata_bytes: u64,
    /// The mapped file that has the bytes, if the buffer is one: then the ledger does not know it, and it has no
    /// copies.
    pub mapped: Option<Box<MappedFile>>,
    pub lease: LeaseWord,
    pub best: AtomicPtr<u8>,
    pub freed: AtomicBool,
    copies: Mutex<BufferCopies>,
    /// Calls that read hold this lock shared, calls that write hold it exclusively, so that calls wait for each other.
    /// A call does not wait for a lease that a user holds: it is refused.
    pub call_lock: RwLock<()>,
    /// Number of calls that have begun; each call releases its lease before it ends.
    begun: AtomicUsize,
    /// Number of calls that have ended.
    ended: AtomicUsize,
    /// Number of beginnings and ends of shared copies: copies to another tier, made while others read, each under a
    /// shared lease of its own. Odd while one is in progress. Changed under the manager's lock, before the lease is
    /// acquired and after it is released.
    shared_copies: AtomicUsize,
    /// Notified when a migration has ended. The manager's lock is held then, so only tasks may listen. Created by the
    /// first listener.
    changed: OnceLock<Box<Notify>>,
}

/// The name of a named buffer, and what makes it durable.
#[derive(Debug)]
pub(super) struct NameRecord {
    pub name: String,
    /// Number of the buffer's object in the store.
    pub object: u64,
    /// Serialises syncs and removal, so that an earlier state never overwrites a later one in the store.
    pub sync_lock: async_lock::Mutex<()>,
    /// The tier for the buffer's durable bytes; set before any byte becomes durable.
    pub durable_tier: OnceLock<Tier>,
}

/// The copy of a buffer in a file tier: for each chunk its piece and the piece's version.
pub(super) type Pieces = Vec<Option<(Arc<Piece>, u64)>>;

/// The version of each chunk; most buffers have one chunk.
pub(super) type Versions = SmallVec<[u64; 2]>;

/// The copy of a buffer in one tier.
#[derive(Debug)]
pub(super) enum TierCopy {
    Memory(Arc<HostBlock>),
    /// Memory of a buffer that was never written, which has the bytes of its previous holder: the first use writes or
    /// zeroes it. The lease word is closed.
    Blank(Arc<HostBlock>),
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
    /// The version of each chunk that is durable in the store's log; `None` if nothing is durable.
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

    /// The numbers of the chunks that a range of bytes overlaps.
    pub(super) fn chunks(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let chunk = self.chunk as u64;
        (offset / chunk) as usize..(offset + bytes).div_ceil(chunk) as usize
    }

    /// The part of a chunk, from its beginning on, that lies in this range of the buffer.
    pub(super) fn overlap(&self, chunk: usize, range: Range<u64>) -> Range<usize> {
        let start = chunk as u64 * self.chunk as u64;
        let end = range.end.min(start + self.chunk_bytes(chunk) as u64);
        (range.start.max(start) - start) as usize..(end - start) as usize
    }

    /// Length of a chunk in bytes.
    pub(super) fn chunk_bytes(&self, chunk: usize) -> usize {
        let left = self.bytes - chunk as u64 * self.chunk as u64;
        left.min(self.chunk as u64) as usize
    }

    /// Opens the lease word over the newest bytes, in a memory tier or else on a device, if there is a copy. The word
    /// must be closed; only after a shared copy (one made while others read) it is open already, and stays open.
    pub(super) fn open(&self, memory: Option<Tier>, device: Option<Tier>) {
        let copies = self.copies();
        let start = memory.and_then(|tier| copies.memory(tier)).map(|block| block.pointer());
        let copy = device.is_some_and(|tier| copies.device(tier).is_some());
        if start.is_some() || copy {
            // Release: a reader on a device may hold a shared lease and then see this address; it must also see the
            // bytes there.
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
        // A thread that sees the lease that this call acquires next must also see this count.
        fence(Ordering::SeqCst);
        Call(&self.ended)
    }

    /// Number of calls that have ended so far.
    pub(super) fn ended_calls(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether a call was active since the time when `ended` calls had ended. If so, the lease that caused a refusal
    /// may have been that call's.
    pub(super) fn had_call_since(&self, ended: usize) -> bool {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) != ended
    }

    /// Waits until the active calls have ended.
    pub(super) async fn wait_for_calls(&self) {
        drop(self.call_lock.write().await);
    }

    /// Acquires the shared lease of a copy to another tier that is made while others read; returns false if it is
    /// refused.
    pub(super) fn begin_shared_copy(&self) -> bool {
        self.shared_copies.fetch_add(1, Ordering::SeqCst);
        // A thread that sees the lease that the copy acquires next must also see this count.
        fence(Ordering::SeqCst);
        let shared = self.lease.acquire_shared().is_ok();
        if !shared {
            self.shared_copies.fetch_add(1, Ordering::SeqCst);
        }
        shared
    }

    /// Releases the lease of a shared copy (one made while others read), if one is in progress; returns whether that
    /// lease blocked a migration.
    pub(super) fn end_shared_copy(&self) -> bool {
        if !self.has_shared_copy() {
            return false;
        }
        let wanted = self.lease.release_shared();
        self.shared_copies.fetch_add(1, Ordering::SeqCst);
        wanted
    }

    /// The current count of shared copies, as a mark for [`had_shared_copy_since`](Self::had_shared_copy_since).
    pub(super) fn shared_copies(&self) -> usize {
        self.shared_copies.load(Ordering::SeqCst)
    }

    /// Whether a shared copy (one made while others read) is in progress.
    pub(super) fn has_shared_copy(&self) -> bool {
        self.shared_copies() % 2 == 1
    }

    /// Whether a shared copy (one made while others read) was active since the mark `since`. If so, the lease that
    /// caused a refusal may have been that copy's.
    pub(super) fn had_shared_copy_since(&self, since: usize) -> bool {
        fence(Ordering::SeqCst);
        since % 2 == 1 || self.shared_copies() != since
    }

    /// The notification that a migration of the buffer has ended.
    pub(super) fn changed(&self) -> &Notify {
        self.changed.get_or_init(Box::default)
    }

    /// Notifies listeners that a migration has ended. A caller that begins to listen only now misses nothing: it checks
    /// the buffer's state afterwards, under the manager's lock.
    pub(super) fn notify_changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed.notify();
        }
    }

    /// Name of the buffer, if it has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.named.as_ref().map(|named| named.name.as_str())
    }

    /// Waits until no shared copy (one made while others read) is in progress.
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

    pub(super) fn memory(&self, tier: Tier) -> Option<&Arc<HostBlock>> {
        if let Some(TierCopy::Memory(block)) = self.get(tier) { Some(block) } else { None }
    }

    /// The tier and the memory of a buffer that was never written, if it has such memory. Once the buffer was written
    /// elsewhere, its blank memory is a stale copy.
    pub(super) fn blank(&self) -> Option<(Tier, Arc<HostBlock>)> {
        if !self.is_untouched() {
            return None;
        }
        self.copies.iter().find_map(|(tier, copy)| match copy {
            TierCopy::Blank(block) => Some((*tier, Arc::clone(block))),
            _ => None,
        })
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
