//! Durable buffers: named ones, which a manager that is built on the same directory finds.
//!
//! Promises upward: after [`sync`](ManagerShared::sync) returned Ok, a restart finds the bytes that the buffer had when
//! `sync` was called, or bytes of a later sync; a restart does not find a removed buffer.
//!
//! The store's metadata of a buffer's object: version 1 | 0 | tenant 2 | chunk 4 | bytes 8 | name (UTF-8).

use super::ManagerShared;
use super::buffer_state::{BufferState, NameRecord, Versions};
use super::error::Error;
use super::tombstones::removed;
use crate::ledger::LedgerEvent;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::store::{MAX_META_BYTES, MAX_PARTS};
use terrace_file::{ALIGN, Change, Object, Store};

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
pub(super) struct BufferMeta<'a> {
    pub tenant: u16,
    pub bytes: u64,
    pub chunk: u32,
    pub name: &'a str,
}

impl<'a> BufferMeta<'a> {
    fn encode(&self) -> Vec<u8> {
        let mut meta = vec![VERSION, 0];
        meta.extend(self.tenant.to_le_bytes());
        meta.extend(self.chunk.to_le_bytes());
        meta.extend(self.bytes.to_le_bytes());
        meta.extend(self.name.as_bytes());
        meta
    }

    /// `None` for metadata of another program, or of a later version.
    pub(super) fn decode(meta: &'a [u8]) -> Option<Self> {
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
        sound.then_some(Self { tenant, bytes, chunk, name })
    }

    pub(super) fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk.into())
    }

    /// Whether each part of a stored object is a chunk of the buffer and has that chunk's length.
    pub(super) fn fits(&self, object: &Object) -> bool {
        let left = |part: u32| self.bytes.checked_sub(u64::from(part) * u64::from(self.chunk)).filter(|left| *left > 0);
        object
            .parts
            .iter()
            .all(|(part, piece)| left(part).is_some_and(|left| piece.bytes() as u64 == left.min(self.chunk.into())))
    }
}

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
            let (tenant, bytes, chunk) = (view.tenant, buffer.bytes, buffer.chunk as u32);
            changes.push(Change::Meta { object, meta: BufferMeta { tenant, bytes, chunk, name }.encode() });
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
