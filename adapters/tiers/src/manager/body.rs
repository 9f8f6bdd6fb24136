//! One buffer: its lease word, and where its copies are.
//!
//! Promises upward: while a lease is held, `best` is the address of all its bytes, and they are the newest; null where
//! only a device addresses them.
//!
//! Invariants:
//! - the word is closed whenever the newest bytes are in files only, and while anything but a lease changes `best`, a copy in
//!   memory or on a device, or its bytes
//! - chunk `i` of a tier's pieces is the newest if its version is `versions[i]`; version 0 was never written, and is zeros

use super::block::Block;
use super::gpu::There;
use crate::ledger::Id;
use async_lock::RwLock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_core::lease::LeaseWord;
use terrace_core::residence::Tier;
use terrace_file::{MappedFile, Notify, Piece};

/// A buffer, whoever holds it.
#[derive(Debug)]
pub(super) struct Body {
    pub id: Id,
    pub bytes: u64,
    /// `None`: it cannot be made durable.
    pub named: Option<Box<Named>>,
    /// Bytes of a chunk; the last one may have fewer.
    pub chunk: usize,
    /// Bytes of memory that count for what describes it.
    pub description: u64,
    /// The file whose bytes they are: then no ledger knows it, and it has no copies.
    pub mapped: Option<Box<MappedFile>>,
    pub lease: LeaseWord,
    pub best: AtomicPtr<u8>,
    pub freed: AtomicBool,
    copies: Mutex<Copies>,
    /// Calls that read take their turn with calls that write; leases that users hold are refused, not waited for.
    pub turn: RwLock<()>,
    /// Calls so far whose leases are given back at once, or when their turn is over.
    begun: AtomicUsize,
    /// Of these, those that have ended.
    ended: AtomicUsize,
    /// Copies that were begun beside somebody who reads, and so have a lease as those do, and those of them that have
    /// ended: odd while one is under way. Changed under the manager's lock, before such a lease is taken and after it
    /// is given back.
    beside: AtomicUsize,
    /// Told when a motion has ended, under the manager's lock: listened to by tasks only. There once one listened.
    changed: OnceLock<Box<Notify>>,
}

/// What a buffer with a name has more.
#[derive(Debug)]
pub(super) struct Named {
    pub name: String,
    /// Its number in the store.
    pub object: u64,
    /// Held by who makes it durable, or removes it: a later state is never followed by an earlier one.
    pub keeping: async_lock::Mutex<()>,
    /// The tier that keeps what is durable of it, once there may be something.
    pub keeper: OnceLock<Tier>,
}

/// What there is of a buffer in file tiers: a piece for each chunk, of some version.
pub(super) type Pieces = Vec<Option<(Arc<Piece>, u64)>>;

/// Of each chunk; most buffers have one.
pub(super) type Versions = SmallVec<[u64; 2]>;

/// What a tier has of a buffer.
#[derive(Debug)]
pub(super) enum Copied {
    Memory(Block),
    Device(Arc<There>),
    Pieces(Pieces),
}

/// Its copies, by tier.
#[derive(Debug)]
pub(super) struct Copies {
    /// One in each of some tiers: mostly in one.
    copies: SmallVec<[(Tier, Copied); 1]>,
    /// Of each chunk.
    pub versions: Versions,
    /// What the log has: versions of chunks. `None`: nothing of it.
    pub durable: Option<Box<Versions>>,
    latest: u64,
}

impl Body {
    /// A buffer of which nothing is anywhere.
    pub(super) fn new(id: Id, bytes: u64, chunk: usize, name: Option<(String, u64)>) -> Self {
        let named = |(name, object)| {
            let (keeping, keeper) = (async_lock::Mutex::new(()), OnceLock::new());
            Box::new(Named { name, object, keeping, keeper })
        };
        let chunks = bytes.div_ceil(chunk as u64) as usize;
        let copies =
            Copies { copies: SmallVec::new(), versions: SmallVec::from_elem(0, chunks), durable: None, latest: 0 };
        Self {
            id,
            bytes,
            named: name.map(named),
            chunk,
            description: 0,
            mapped: None,
            lease: LeaseWord::closed(),
            best: AtomicPtr::default(),
            freed: AtomicBool::new(false),
            copies: Mutex::new(copies),
            turn: RwLock::new(()),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            changed: OnceLock::new(),
        }
    }

    pub(super) fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chunks that a range touches.
    pub(super) fn chunks(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let chunk = self.chunk as u64;
        (offset / chunk) as usize..(offset + bytes).div_ceil(chunk) as usize
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_bytes(&self, chunk: usize) -> usize {
        let left = self.bytes - chunk as u64 * self.chunk as u64;
        left.min(self.chunk as u64) as usize
    }

    /// Lets leases in to the newest bytes in a tier of memory, or else on a device, where they are there. The word is
    /// closed.
    pub(super) fn open(&self, memory: Option<Tier>, device: Option<Tier>) {
        let copies = self.copies();
        let start = memory.and_then(|tier| copies.memory(tier)).map(Block::pointer);
        let there = device.is_some_and(|tier| copies.device(tier).is_some());
        if start.is_some() || there {
            // A shared lease may be held, of who reads on a device: its holder may see the bytes behind the address.
            self.best.store(start.unwrap_or(std::ptr::null_mut()), Ordering::Release);
            self.lease.reopen();
        }
    }

    /// Says that a call is here, until what is returned is dropped. Who calls has its turn.
    pub(super) fn call(&self) -> impl Drop + '_ {
        struct Call<'a>(&'a AtomicUsize);
        impl Drop for Call<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        // Who sees the lease that comes now sees this too.
        fence(Ordering::SeqCst);
        Call(&self.ended)
    }

    /// Calls that have ended so far.
    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether a call was here since so many had ended: a lease that stood in the way may have been its.
    pub(super) fn was_called(&self, ended: usize) -> bool {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) != ended
    }

    /// Waits until the calls that are here have ended.
    pub(super) async fn calls_over(&self) {
        drop(self.turn.write().await);
    }

    /// Takes a lease for a copy that begins beside others who read. False: it may not.
    pub(super) fn begin_beside(&self) -> bool {
        self.beside.fetch_add(1, Ordering::SeqCst);
        // Who sees the lease sees this too.
        fence(Ordering::SeqCst);
        let shared = self.lease.acquire_shared().is_ok();
        if !shared {
            self.beside.fetch_add(1, Ordering::SeqCst);
        }
        shared
    }

    /// Gives that lease back, if one is held. Whether it stood in somebody's way.
    pub(super) fn end_beside(&self) -> bool {
        if !self.is_copied() {
            return false;
        }
        let wanted = self.lease.release_shared();
        self.beside.fetch_add(1, Ordering::SeqCst);
        wanted
    }

    /// To be asked later whether [`was_copied`](Self::was_copied).
    pub(super) fn copies_beside(&self) -> usize {
        self.beside.load(Ordering::SeqCst)
    }

    /// Whether a copy beside readers is under way.
    pub(super) fn is_copied(&self) -> bool {
        self.copies_beside() % 2 == 1
    }

    /// Whether one was since: a lease that stood in the way may have been its.
    pub(super) fn was_copied(&self, since: usize) -> bool {
        fence(Ordering::SeqCst);
        since % 2 == 1 || self.copies_beside() != since
    }

    /// Listens for the end of a motion.
    pub(super) fn changed(&self) -> &Notify {
        self.changed.get_or_init(Box::default)
    }

    /// A motion has ended. Who listens looked under the manager's lock since, or sees what comes after this.
    pub(super) fn has_changed(&self) {
        if let Some(changed) = self.changed.get() {
            changed.notify();
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> Option<&str> {
        self.named.as_ref().map(|named| named.name.as_str())
    }

    /// Waits until none is.
    pub(super) async fn copy_over(&self) {
        // Listened for before looking, so that nothing is missed.
        let changed = self.changed().listen();
        if self.is_copied() {
            changed.await;
        }
    }

    pub(super) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }
}

impl Copies {
    fn get(&self, tier: Tier) -> Option<&Copied> {
        self.copies.iter().find(|(at, _)| *at == tier).map(|(_, copied)| copied)
    }

    pub(super) fn memory(&self, tier: Tier) -> Option<&Block> {
        if let Some(Copied::Memory(block)) = self.get(tier) { Some(block) } else { None }
    }

    pub(super) fn device(&self, tier: Tier) -> Option<&Arc<There>> {
        if let Some(Copied::Device(there)) = self.get(tier) { Some(there) } else { None }
    }

    pub(super) fn pieces(&self, tier: Tier) -> Option<&Pieces> {
        if let Some(Copied::Pieces(pieces)) = self.get(tier) { Some(pieces) } else { None }
    }

    /// A piece of a copy in files that is there.
    pub(super) fn put_piece(&mut self, tier: Tier, chunk: usize, piece: &Arc<Piece>) {
        let version = self.versions[chunk];
        if let Some((_, Copied::Pieces(pieces))) = self.copies.iter_mut().find(|(at, _)| *at == tier) {
            pieces[chunk] = Some((Arc::clone(piece), version));
        }
    }

    /// Adds a copy; returns the one that it replaces.
    pub(super) fn put(&mut self, tier: Tier, copied: Copied) -> Option<Copied> {
        let old = self.take(tier);
        self.copies.push((tier, copied));
        old
    }

    pub(super) fn take(&mut self, tier: Tier) -> Option<Copied> {
        let at = self.copies.iter().position(|(at, _)| *at == tier)?;
        Some(self.copies.swap_remove(at).1)
    }

    /// Removes all copies.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Copied> + use<> {
        std::mem::take(&mut self.copies).into_iter().map(|(_, copied)| copied)
    }

    /// Whether nobody has written anything yet: all is zeros.
    pub(super) fn is_untouched(&self) -> bool {
        self.latest == 0
    }

    /// These chunks have other bytes now.
    pub(super) fn wrote(&mut self, chunks: std::ops::Range<usize>) {
        self.latest += 1;
        self.versions[chunks].fill(self.latest);
    }
}
