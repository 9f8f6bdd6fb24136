//! Durable buffers: named ones, recovered when a manager is built on the same directory.
//!
//! Promises upward: after [`sync`](ManagerShared::sync) returned Ok, a restart finds the bytes that the buffer had when
//! `sync` was called, or bytes of a later sync; a restart does not find a removed buffer.
//!
//! The store's metadata of a buffer's object: version 1 | 0 | tenant 2 | chunk 4 | bytes 8 | name (UTF-8).

use super::ManagerShared;
use super::allocation::AllocationWaiter;
use super::buffer_state::{BufferState, NameRecord, Versions};
use super::error::Error;
use super::tombstones::removed;
use super::tracking::BufferOrigin;
use crate::ledger::LedgerEvent;
use futures_channel::oneshot;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::store::{MAX_META_BYTES, MAX_PARTS};
use terrace_file::{ALIGN, Change, Object, Store, StoreError};

/// The version of the metadata.
const VERSION: u8 = 1;

/// Bytes before the name.
const HEADER: usize = 16;

/// Most bytes of a name.
pub const MAX_NAME_BYTES: usize = MAX_META_BYTES - HEADER;

/// The changes to commit, the version of each chunk that is durable after the commit, and the number of writes to the
/// buffer that these include.
type CommitPlan = (Vec<Change>, Versions, u64);

/// A buffer's metadata in the store.
struct BufferMeta {
    tenant: u16,
    bytes: u64,
    chunk: u32,
    name: Arc<str>,
}

impl BufferMeta {
    fn encode(buffer: &BufferState, name: &str, tenant: u16) -> Vec<u8> {
        let mut meta = vec![VERSION, 0];
        meta.extend(tenant.to_le_bytes());
        meta.extend((buffer.chunk as u32).to_le_bytes());
        meta.extend(buffer.bytes.to_le_bytes());
        meta.extend(name.as_bytes());
        meta
    }

    /// `None` for metadata of another program, or of a later version.
    fn decode(meta: &[u8]) -> Option<Self> {
        let (header, name) = meta.split_first_chunk::<HEADER>()?;
        let tenant = u16::from_le_bytes(*header[2..].first_chunk()?);
        let chunk = u32::from_le_bytes(*header[4..].first_chunk()?);
        let bytes = u64::from_le_bytes(*header[8..].first_chunk()?);
        let name = std::str::from_utf8(name).ok()?;
        let sound = header[0] == VERSION
            && chunk > 0
            && chunk.is_multiple_of(ALIGN as u32)
            && bytes > 0
            && bytes.div_ceil(chunk.into()) <= MAX_PARTS.into();
        sound.then(|| Self { tenant, bytes, chunk, name: name.into() })
    }

    fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk.into())
    }

    /// Whether each part of a stored object is a chunk of the buffer and has that chunk's length.
    fn fits(&self, object: &Object) -> bool {
        let left = |part: u32| self.bytes.checked_sub(u64::from(part) * u64::from(self.chunk)).filter(|left| *left > 0);
        object
            .parts
            .iter()
            .all(|(part, piece)| left(part).is_some_and(|left| piece.bytes() as u64 == left.min(self.chunk.into())))
    }
}

/// At recovery, a store may have at most as many chunks as its cap in bytes divided by this. That bounds the memory for
/// records of chunks, whatever length the stored buffers claim. As chunks have at least 4 KiB, buffers of 64 times the
/// cap can be recovered.
const CHUNK_RECORDS: u64 = 64;

impl ManagerShared {
    /// Returns the tier for a buffer's durable bytes: the one that has durable bytes of the buffer, or of a removed
    /// buffer with its name; else the best file tier.
    ///
    /// # Errors
    /// [`Error::NoTier`].
    fn durable_tier(&self, named: &NameRecord) -> Result<(Tier, &Store), Error> {
        let kept = named.durable_tier.get().copied().or_else(|| self.state().tombstones.tier(&named.name));
        let tier = kept.or_else(|| self.tiers().find(|tier| self.store(*tier).is_ok()));
        let tier = *named.durable_tier.get_or_init(|| tier.unwrap_or_default());
        Ok((tier, self.store(tier)?))
    }

    /// Makes the bytes of a buffer durable.
    pub(super) async fn sync(self: &Arc<Self>, buffer: &Arc<BufferState>) -> Result<(), Error> {
        buffer.check_unmapped()?;
        let named = buffer.named.as_ref().ok_or(Error::Unnamed)?;
        let (name, object) = (&named.name, &named.object);
        let _sync = named.sync_lock.lock().await;
        let (tier, store) = self.durable_tier(named)?;
        let (changes, versions, written) = loop {
            // Waits while the buffer is being allocated, or written in files.
            self.wait_until(buffer, || Ok((!buffer.phase.get().is_claimed()).then_some(()))).await?;
            if let Some(ready) = self.commit_plan(buffer, tier, (name, *object))? {
                break ready;
            }
            self.request_move(buffer, LedgerEvent::Replicate { id: buffer.id, to: tier }, tier).await?;
        };
        let tombstones = removed(&changes);
        store.commit(changes).await?;
        let mut state = self.state();
        state.tombstones.removed(name, &tombstones);
        buffer.copies().durable = Some(Box::new(versions));
        // If the buffer was written during the commit, its copy is newer than the durable bytes, and must not count as
        // synced.
        if state.ledger.view(buffer.id).is_ok_and(|view| view.version == written) {
            let _ = state.handle(self, LedgerEvent::Synced { id: buffer.id, tier });
        }
        self.unlock(state);
        Ok(())
    }

    /// Returns the changes to commit; `None` if the tier does not have all newest bytes.
    fn commit_plan(
        &self,
        buffer: &BufferState,
        tier: Tier,
        (name, object): (&str, u64),
    ) -> Result<Option<CommitPlan>, Error> {
        let state = self.state();
        let view = state.ledger.view(buffer.id)?;
        if !view.residence.valid(tier) || buffer.phase.get().is_claimed() {
            return Ok(None);
        }
        let copies = buffer.copies();
        let Some(pieces) = copies.pieces(tier) else { return Ok(None) };
        let mut changes = Vec::new();
        if copies.durable.is_none() {
            changes.extend(state.tombstones.removals(name));
            changes.push(Change::Meta { object, meta: BufferMeta::encode(buffer, name, view.tenant) });
        }
        let durable = |chunk: usize| copies.durable.as_ref().map_or(0, |durable| durable[chunk]);
        for (chunk, piece) in pieces.iter().enumerate() {
            if let Some((piece, version)) = piece
                && durable(chunk) != *version
            {
                changes.push(Change::Piece { object, part: chunk as u32, piece: Arc::clone(piece) });
            }
        }
        Ok(Some((changes, copies.versions.clone(), view.version)))
    }

    /// Recovers the buffers of all stores, even beyond capacities, with chunks of at most `most` bytes. Must be called
    /// before other buffers are allocated.
    pub(super) fn adopt(self: &Arc<Self>, most: u64) -> Result<(), Error> {
        for (tier, store) in self.tiers().filter_map(|tier| Some((tier, self.store(tier).ok()?))) {
            let (mut chunks, cap) = (0, store.stats().cap);
            let numbers = store.objects();
            self.state().names.reserve(numbers.len());
            for number in numbers {
                let Some(object) = store.object(number) else { continue };
                let unknown = || Error::Store(StoreError::BadOptions("the directory has objects of another program's"));
                // Managers assign object numbers in sequence from 1 on, so a number this large is another program's.
                let meta = BufferMeta::decode(&object.meta).filter(|_| number < u64::MAX / 2).ok_or_else(unknown)?;
                if u64::from(meta.chunk) > most {
                    return Err(Error::Chunks { name: meta.name.as_ref().into(), bytes: meta.chunk });
                }
                if self.state().names.contains_key(&meta.name) {
                    return Err(Error::Twice(meta.name.as_ref().into()));
                }
                if !meta.fits(&object) {
                    return Err(Error::BadBuffer(meta.name.as_ref().into()));
                }
                chunks += meta.chunks();
                if chunks > cap / CHUNK_RECORDS {
                    return Err(Error::Store(StoreError::CapTooSmall { needs: chunks * CHUNK_RECORDS, cap }));
                }
                self.adopt_one(tier, number, meta, &object)?;
            }
        }
        Ok(())
    }

    fn adopt_one(self: &Arc<Self>, tier: Tier, number: u64, meta: BufferMeta, object: &Object) -> Result<(), Error> {
        let (sender, mut outcome) = oneshot::channel();
        let (chunk, metadata_bytes) =
            (meta.chunk as usize, self.metadata_bytes(meta.bytes, meta.chunk as usize, Some(&meta.name)));
        let (name, origin) = (Some((meta.name, number)), BufferOrigin::default());
        let waiter = AllocationWaiter { name, chunk, metadata_bytes, origin, sender };
        let mut state = self.state();
        state.check_metadata_room(self, metadata_bytes)?;
        state.next_object = state.next_object.max(number + 1);
        // There may be fewer tenants than when the buffer was made durable: then the first one gets it.
        let tenant = if state.ledger.tenant_bytes(meta.tenant).is_some() { meta.tenant } else { 0 };
        let ticket = state.ticket(waiter);
        state.handle(self, LedgerEvent::Adopt { ticket, bytes: meta.bytes, tenant, tier })?;
        let buffer = outcome.try_recv().ok().flatten().ok_or(Error::NoRoom { tier })??;
        let _ = buffer.named.as_ref().map(|named| named.durable_tier.set(tier));
        let mut copies = buffer.copies();
        for (part, piece) in object.parts.iter() {
            let chunk = part as usize;
            copies.wrote(chunk..chunk + 1);
            copies.put_piece(tier, chunk, piece);
        }
        copies.durable = Some(Box::new(copies.versions.clone()));
        drop(copies);
        state.handle(self, LedgerEvent::Synced { id: buffer.id, tier })?;
        self.unlock(state);
        Ok(())
    }

    /// Frees a buffer and its durable bytes.
    pub(super) async fn remove(self: &Arc<Self>, buffer: &BufferState) -> Result<(), Error> {
        let named = buffer.named.as_ref();
        let _sync = match named {
            Some(named) => Some(named.sync_lock.lock().await),
            None => None,
        };
        // Without files nothing is durable.
        let durable_tier = named.and_then(|named| self.durable_tier(named).ok());
        loop {
            let changed = buffer.changed().listen();
            let freed = {
                let mut state = self.state();
                let freed = state.free(self, buffer);
                if let (Ok(true), Some(named), Some((tier, _))) = (freed, named, durable_tier) {
                    state.tombstones.add(&named.name, tier, named.object);
                }
                self.unlock(state);
                freed?
            };
            match freed {
                true => break,
                // A claim, if there are no brief leases.
                false if buffer.phase.get().is_claimed() => changed.await,
                false => buffer.brief_leases_end().await,
            }
        }
        // Waits for the end of a copy in progress: the name is free only after that.
        self.wait_until(buffer, || Ok(buffer.is_freed().then_some(()))).await?;
        let (Some(NameRecord { name, .. }), Some((_, store))) = (named.map(Box::as_ref), durable_tier) else {
            return Ok(());
        };
        let changes: Vec<Change> = self.state().tombstones.removals(name).collect();
        let tombstones = removed(&changes);
        store.commit(changes).await?;
        self.state().tombstones.removed(name, &tombstones);
        Ok(())
    }
}
