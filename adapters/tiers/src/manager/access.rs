//! Reading and writing a buffer wherever it is.
//!
//! Promises upward: a read returns what was written last, or an error; a write is seen whole by later reads, or, when
//! it fails in a file tier, not at all.
//!
//! In memory, calls take their turn and hold a lease for as long as they copy. In files, a write puts new pieces beside
//! the old ones and then changes all of them at once. On a device, reads copy what they want; a write first has the
//! bytes in memory, or in files, since a copy to a device that fails on its way leaves a mixture.

use super::Shared;
use super::block::Lent;
use super::body::Body;
use super::error::Error;
use super::gpu::There;
use super::window::Window;
use crate::ledger::{Event, Id, TierKind};
use std::ops::Range;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::Piece;

/// Where the newest bytes are, at this moment.
pub(super) enum Seat {
    /// In memory: the word is open.
    Memory,
    /// On a device, and not in memory: the word is open.
    Device,
    /// In files only.
    File(Tier),
    /// Something is under way: look again when it has ended.
    Moving,
}

/// One part of a read from files.
struct Part {
    chunk: usize,
    piece: Option<Arc<Piece>>,
}

impl Shared {
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub(super) fn inside(body: &Body, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.checked_add(bytes).filter(|end| *end <= body.bytes);
        end.map(drop).ok_or(Error::OutOfBounds { offset, bytes, of: body.bytes })
    }

    /// Copies out of memory, at once; it is the caller's turn. `None`: the bytes are not there.
    pub(super) fn read_memory(&self, body: &Body, offset: u64, to: &mut [u8]) -> Result<Option<()>, Error> {
        let _call = body.call();
        let Some(start) = self.share_memory(body, u64::MAX)? else { return Ok(None) };
        // SAFETY: a shared lease is held; the range was looked at by the caller.
        unsafe { Window::new(start, body.bytes as usize).read(offset as usize, to) };
        self.unshare(body);
        self.uncount(body);
        Ok(Some(()))
    }

    /// Copies into memory, at once; it is the caller's turn. `None`: the bytes are not there.
    pub(super) fn write_memory(self: &Arc<Self>, body: &Body, offset: u64, from: &[u8]) -> Result<Option<()>, Error> {
        let _call = body.call();
        let range = (offset, from.len() as u64);
        let Some(start) = self.exclude_memory(body, range, u64::MAX)? else { return Ok(None) };
        // SAFETY: the exclusive lease is held; the range was looked at by the caller.
        unsafe { Window::new(start, body.bytes as usize).write(offset as usize, from) };
        self.include(body);
        self.uncount(body);
        Ok(Some(()))
    }

    /// Where the bytes are.
    pub(super) fn seat(&self, body: &Body) -> Result<Seat, Error> {
        if body.mapped.is_some() {
            return Ok(Seat::Memory);
        }
        let state = self.state();
        let view = state.ledger.view(body.id)?;
        if view.moving || state.busy.contains(&body.id) {
            return Ok(Seat::Moving);
        }
        if self.newest(&view.residence, TierKind::Memory).is_some() {
            return Ok(Seat::Memory);
        }
        Ok(match self.newest(&view.residence, TierKind::Device) {
            Some(_) => Seat::Device,
            None => Seat::File(view.residence.best()),
        })
    }

    /// Waits until `attempt` finds what it needs, looking again when something under way with the buffer has ended.
    pub(super) async fn until<T>(
        &self,
        body: &Body,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            // Listened for before looking again, so that nothing is missed.
            let changed = body.changed().listen();
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            changed.await;
        }
    }

    /// Reads from wherever the bytes are.
    pub(super) async fn read(self: &Arc<Self>, body: &Body, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        Self::inside(body, offset, to.len() as u64)?;
        let (tier, parts) = loop {
            let turn = body.turn.read().await;
            // Listened for before looking, so that nothing is missed.
            let changed = body.changed().listen();
            if self.read_memory(body, offset, to)?.is_some() {
                return Ok(());
            }
            match self.seat(body)? {
                Seat::File(tier) => {
                    if let Some(parts) = self.parts(body, tier, body.chunks(offset, to.len() as u64)) {
                        break (tier, parts);
                    }
                }
                Seat::Device => {
                    let _call = body.call();
                    if let Some(_held) = self.hold(body)?
                        && let Some(there) = self.there(body)
                    {
                        return self.read_device(body, &there, offset, to).await;
                    }
                }
                Seat::Memory | Seat::Moving => {}
            }
            drop(turn);
            changed.await;
        };
        self.touch(body.id);
        for Part { chunk, piece } in parts {
            let (range, target) = overlap(body, chunk, offset, to);
            match piece {
                Some(piece) => target.copy_from_slice(&self.store(tier)?.get(&piece).await?[range]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    /// The copy on a device, if it is the newest. A lease is held.
    fn there(&self, body: &Body) -> Option<Arc<There>> {
        let residence = self.state().ledger.view(body.id).ok()?.residence;
        let tier = self.newest(&residence, TierKind::Device)?;
        body.copies().device(tier).cloned()
    }

    /// Copies from a device, by frames. A lease is held.
    async fn read_device(&self, body: &Body, there: &Arc<There>, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let mut at = offset as usize;
        for part in to.chunks_mut(body.chunk) {
            let frame = Lent::frame(self.frame(part.len()).await?, part.len());
            part.copy_from_slice(&there.download(at, frame).await?.into_owner()[..part.len()]);
            at += part.len();
        }
        Ok(())
    }

    /// The pieces of these chunks in a tier. `None`: they are not there any more.
    fn parts(&self, body: &Body, tier: Tier, chunks: Range<usize>) -> Option<Vec<Part>> {
        let copies = body.copies();
        let pieces = copies.pieces(tier)?;
        let part = |chunk: usize| Part { chunk, piece: pieces[chunk].as_ref().map(|(piece, _)| Arc::clone(piece)) };
        Some(chunks.map(part).collect())
    }

    /// Writes to wherever the bytes are.
    pub(super) async fn write(self: &Arc<Self>, body: &Arc<Body>, offset: u64, from: &[u8]) -> Result<(), Error> {
        Self::inside(body, offset, from.len() as u64)?;
        if from.is_empty() {
            return Ok(());
        }
        let tier = loop {
            let turn = body.turn.write().await;
            let (copies, changed) = (body.copies_beside(), body.changed().listen());
            match self.write_memory(body, offset, from) {
                Ok(None) => {}
                Err(Error::Leased) if body.was_copied(copies) => {
                    drop(turn);
                    body.copy_over().await;
                    continue;
                }
                written => return written.map(drop),
            }
            if let Some(tier) = self.claim(body)? {
                break tier;
            }
            let seat = self.seat(body)?;
            drop(turn);
            match seat {
                Seat::Device => self.fetch(body).await?,
                _ => changed.await,
            }
        };
        let written = self.write_pieces(body, tier, offset, from).await;
        let mut state = self.state();
        if let Ok(pieces) = written.as_ref() {
            let mut copies = body.copies();
            copies.wrote(body.chunks(offset, from.len() as u64));
            for (chunk, piece) in pieces {
                copies.put_piece(tier, *chunk, piece);
            }
            drop(copies);
            let _ = state.handle(self, Event::Wrote { id: body.id, tier });
        }
        state.busy.remove(&body.id);
        let _ = state.handle(self, Event::Released { id: body.id });
        body.has_changed();
        self.unlock(state);
        written.map(drop)
    }

    /// Has what is on a device only in memory too; where that has no room, in files instead.
    async fn fetch(self: &Arc<Self>, body: &Arc<Body>) -> Result<(), Error> {
        match self.raise_up(body).await {
            Err(Error::NoRoom { .. } | Error::Resting { .. } | Error::NoTier(_)) => {
                let to = self.tiers().find(|tier| self.kind(*tier) == TierKind::File);
                let to = to.ok_or(Error::NoTier("that a processor writes in"))?;
                self.wish(body, Event::Demote { id: body.id, to }, to).await
            }
            fetched => fetched,
        }
    }

    /// Keeps motions and other writers away from a buffer that is in files only. `None`: it is not, or somebody is
    /// there.
    fn claim(&self, body: &Body) -> Result<Option<Tier>, Error> {
        let mut state = self.state();
        let view = state.ledger.view(body.id)?;
        let best = view.residence.best();
        if view.moving || self.kind(best) != TierKind::File || !state.busy.insert(body.id) {
            return Ok(None);
        }
        Ok(Some(best))
    }

    /// New pieces for the chunks of a range, beside those that are there.
    async fn write_pieces(
        &self,
        body: &Arc<Body>,
        tier: Tier,
        offset: u64,
        from: &[u8],
    ) -> Result<Vec<(usize, Arc<Piece>)>, Error> {
        let (store, mut written) = (self.store(tier)?, Vec::new());
        let Some(parts) = self.parts(body, tier, body.chunks(offset, from.len() as u64)) else {
            return Err(Error::Freed);
        };
        for Part { chunk, piece } in parts {
            let bytes = body.chunk_bytes(chunk);
            let start = chunk as u64 * body.chunk as u64;
            let first = offset.max(start);
            let last = (offset + from.len() as u64).min(start + bytes as u64);
            let part = &from[(first - offset) as usize..(last - offset) as usize];
            let range = (first - start) as usize..(last - start) as usize;
            let mut frame = match piece {
                Some(piece) if range.len() < bytes => store.get(&piece).await?,
                _ => {
                    let mut frame = self.frame(bytes).await?;
                    frame[..bytes].fill(0);
                    frame
                }
            };
            frame[range].copy_from_slice(part);
            written.push((chunk, store.put(frame, bytes).await.result?));
        }
        Ok(written)
    }

    /// A buffer was used where it is slow.
    pub(super) fn touch(self: &Arc<Self>, id: Id) {
        let mut state = self.state();
        let _ = state.handle(self, Event::Touch { id });
        self.unlock(state);
    }
}

/// The part of a chunk that a read wants, and where it goes.
fn overlap<'a>(body: &Body, chunk: usize, offset: u64, to: &'a mut [u8]) -> (Range<usize>, &'a mut [u8]) {
    let start = chunk as u64 * body.chunk as u64;
    let first = offset.max(start);
    let last = (offset + to.len() as u64).min(start + body.chunk_bytes(chunk) as u64);
    let target = &mut to[(first - offset) as usize..(last - offset) as usize];
    ((first - start) as usize..(last - start) as usize, target)
}
