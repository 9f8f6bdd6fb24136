//! State of one buffer: its phase, its lease word and its copies.
//!
//! Promises upward: while a lease is held, `best` is the address of all bytes of the buffer, and these are the newest;
//! it is null where only a device addresses them.
//! Asks from below: [`phase`](super::phase), the state machine, which says when the word is closed.
//!
//! Invariants:
//! - while anything but a lease changes `best`, a copy in memory or on a device, or its bytes, the word is closed
//! - chunk `i` of a tier's pieces is the newest if its version is `versions[i]`; version 0 was never written, and is
//!   zeros

use super::block::{BlankBlock, HostBlock};
use super::device_tier::DeviceCopy;
use super::phase::{BufferPhase, PhaseCell};
use super::tracking::BufferStamp;
use crate::ledger::BufferId;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
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
    /// What the tracker's free of the buffer needs.
    pub stamp: BufferStamp,
    pub phase: PhaseCell,
    pub lease: LeaseWord,
    pub best: AtomicPtr<u8>,
    copies: Mutex<BufferCopies>,
    /// Notified when a copy or a claim has ended, and when brief leases have that a caller waits for. The manager's lock
    /// is held then, so only tasks may listen. Created by the first listener.
    changed: OnceLock<Box<Notify>>,
}

/// The name of a named buffer, and what makes it durable.
#[derive(Debug)]
pub(super) struct NameRecord {
    pub name: Arc<str>,
    /// Number of the buffer's object in the store.
    pub object: u64,
    /// Serialises syncs and removal, so that an earlier state never overwrites a later one in the store.
    pub sync_lock: async_lock::Mutex<()>,
    /// The tier for the buffer's durable bytes; set before any byte becomes durable.
    pub durable_tier: OnceLock<Tier>,
}

/// The copy of a buffer in a file tier: for each chunk its piece and the piece's version.
pub(super) type Pieces = SmallVec<[Option<(Arc<Piece>, u64)>; 1]>;

/// The version of each chunk; most buffers have one chunk.
pub(super) type Versions = SmallVec<[u64; 2]>;

/// The copy of a buffer in one tier.
#[derive(Debug)]
pub(super) enum TierCopy {
    Memory(Arc<HostBlock>),
    /// Memory of a buffer that was never written, which has the bytes of its previous holder: the first use writes or
    /// zeroes it. The lease word is closed.
    Blank(BlankBlock),
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
    pub(super) fn new(id: BufferId, bytes: u64, chunk: usize, name: Option<(Arc<str>, u64)>) -> Self {
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
            stamp: BufferStamp::default(),
            phase: PhaseCell::new(),
            lease: LeaseWord::closed(),
            best: AtomicPtr::default(),
            copies: Mutex::new(copies),
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

    /// The address of the newest bytes, null if only a device has them; `None` if they cannot be leased. `memory` and
    /// `device` are the tiers that have the newest bytes.
    pub(super) fn leasable(&self, memory: Option<Tier>, device: Option<Tier>) -> Option<*mut u8> {
        let copies = self.copies();
        let start = memory.and_then(|tier| copies.memory(tier)).map(|block| block.pointer());
        start.or_else(|| device.and_then(|tier| copies.device(tier)).map(|_| std::ptr::null_mut()))
    }

    /// Opens the lease word over the newest bytes, which are at this address.
    pub(super) fn open(&self, start: *mut u8) {
        // Release: a reader on a device may hold a shared lease and then see this address; it must also see the
        // bytes there.
        self.best.store(start, Ordering::Release);
        self.lease.reopen();
    }

    /// The notification that a copy or a claim of the buffer has ended, or brief leases.
    pub(super) fn changed(&self) -> &Notify {
        self.changed.get_or_init(Box::default)
    }

    /// Notifies listeners of a change. A caller that begins to listen only now misses nothing: it checks the buffer's
    /// state afterwards.
    pub(super) fn notify_changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed.notify();
        }
    }

    /// Name of the buffer, if it has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.named.as_ref().map(|named| &*named.name)
    }

    /// Waits until the brief leases that are held have ended. Any thread may hold one, but none waits for another's.
    pub(super) async fn brief_leases_end(&self) {
        // Listens before it checks, so that no notification is missed.
        let changed = self.changed().listen();
        if self.lease.want_brief() {
            changed.await;
        }
    }

    /// Whether a user's lease stands in the way of a move: not while a claim does, which ends by itself.
    pub(super) fn is_kept(&self) -> bool {
        self.lease.is_kept() && !self.phase.get().is_claimed()
    }

    pub(super) fn is_freed(&self) -> bool {
        self.phase.get() == BufferPhase::Freed
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
            TierCopy::Blank(blank) => Some((*tier, Arc::clone(blank.block()))),
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
