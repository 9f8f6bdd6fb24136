//! Reading and writing a buffer wherever it is.
//!
//! Promises upward: a read returns what was written last, or an error; a write is seen whole by later reads, or, when it fails in
//! a file tier, not at all.
//!
//! In memory, calls take their turn and hold a lease for as long as they copy. In files, a write puts new pieces beside the old
//! ones and then changes all of them at once.

use super::Shared;
use super::body::Body;
use super::error::Error;
use super::window::Window;
use crate::ledger::{Event, Id, TierKind};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use terrace_core::lease::Refused;
use terrace_core::residence::Tier;
use terrace_file::Piece;

/// Where the newest bytes are, at this moment.
pub(super) enum Seat {
    /// In memory: the word is open.
    Memory,
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

    /// Copies out of memory, at once. `None`: the bytes are not there.
    pub(super) fn read_memory(&self, body: &Body, offset: u64, to: &mut [u8]) -> Result<Option<()>, Error> {
        let _turn = body.turn.read().unwrap_or_else(PoisonError::into_inner);
        let _call = body.call();
        let Some(start) = self.share(body, u64::MAX)? else { return Ok(None) };
        // SAFETY: a shared lease is held; the range was looked at by the caller.
        unsafe { Window::new(start, body.bytes as usize).read(offset as usize, to) };
        self.unshare(body);
        self.uncount(body);
        Ok(Some(()))
    }

    /// Copies into memory, at once. `None`: the bytes are not there.
    pub(super) fn write_memory(self: &Arc<Self>, body: &Body, offset: u64, from: &[u8]) -> Result<Option<()>, Error> {
        let _turn = body.turn.write().unwrap_or_else(PoisonError::into_inner);
        let _call = body.call();
        let range = (offset, from.len() as u64);
        let Some(start) = self.exclude(body, range, u64::MAX)? else { return Ok(None) };
        // SAFETY: the exclusive lease is held; the range was looked at by the caller.
        unsafe { Window::new(start, body.bytes as usize).write(offset as usize, from) };
        self.include(body);
        self.uncount(body);
        Ok(Some(()))
    }

    /// A call is not refused for the cap of leases, as it gives its own back at once: what it counted above the cap is taken
    /// off again.
    fn uncount(&self, body: &Body) {
        if !self.over_cap.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if state.pinned > self.pinned_cap && body.lease.uncount() == Ok(true) {
            state.pinned -= body.bytes;
        }
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
    }

    /// Counts a buffer as leased; `cap` is no limit for calls.
    fn pin(&self, body: &Body, cap: u64) -> Result<(), Error> {
        let mut state = self.state();
        state.pin(body, cap)?;
        self.over_cap.store(state.pinned > self.pinned_cap, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a shared lease, counted as long as the cap allows. `None`: the bytes are not in memory, or are being moved.
    pub(super) fn share(&self, body: &Body, cap: u64) -> Result<Option<*mut u8>, Error> {
        loop {
            match body.lease.share() {
                Ok(()) => return Ok(Some(body.best.load(Ordering::Relaxed))),
                Err(Refused::Uncounted) => self.pin(body, cap)?,
                Err(Refused::Closed) if body.is_freed() => return Err(Error::Freed),
                Err(Refused::Closed) => return Ok(None),
                Err(Refused::Busy | Refused::TooMany) => return Err(Error::Leased),
            }
        }
    }

    /// Gives a shared lease back.
    pub(super) fn unshare(&self, body: &Body) {
        if body.lease.unshare() {
            self.released(body.id);
        }
    }

    /// Takes the exclusive lease, and says that these bytes will be others. `None` as for [`share`](Self::share).
    pub(super) fn exclude(
        self: &Arc<Self>,
        body: &Body,
        (offset, bytes): (u64, u64),
        cap: u64,
    ) -> Result<Option<*mut u8>, Error> {
        loop {
            match body.lease.exclude() {
                Ok(()) => break,
                Err(Refused::Uncounted) => self.pin(body, cap)?,
                Err(Refused::Closed) if body.is_freed() => return Err(Error::Freed),
                Err(Refused::Closed) => return Ok(None),
                Err(Refused::Busy | Refused::TooMany) => return Err(Error::Leased),
            }
        }
        let mut state = self.state();
        // The lease keeps motions away.
        let best = state.ledger.view(body.id).map(|view| view.residence.best());
        let wrote = best.and_then(|tier| state.handle(self, Event::Wrote { id: body.id, tier }));
        self.unlock(state);
        match wrote {
            Ok(()) => {
                body.copies().wrote(body.chunks(offset, bytes));
                Ok(Some(body.best.load(Ordering::Relaxed)))
            }
            Err(rejected) => {
                self.include(body);
                Err(rejected.into())
            }
        }
    }

    /// Gives the exclusive lease back.
    pub(super) fn include(&self, body: &Body) {
        if body.lease.include() {
            self.released(body.id);
        }
    }

    /// A lease that stood in the way is given back: the ledger goes on, on a task, since who drops a lease should not wait.
    pub(super) fn released(&self, id: Id) {
        let Some(shared) = self.own.upgrade() else { return };
        let tasks = self.tasks.clone();
        drop(tasks.spawn(async move {
            let mut state = shared.state();
            let _ = state.handle(&shared, Event::Released { id });
            shared.unlock(state);
        }));
    }

    /// Where the bytes are.
    pub(super) fn seat(&self, body: &Body) -> Result<Seat, Error> {
        let state = self.state();
        let view = state.ledger.view(body.id)?;
        let best = view.residence.best();
        Ok(match self.kind(best) {
            _ if view.moving || state.busy.contains(&body.id) => Seat::Moving,
            TierKind::Memory => Seat::Memory,
            TierKind::File => Seat::File(best),
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
            let changed = body.changed.listen();
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            changed.await;
        }
    }

    /// Reads from wherever the bytes are.
    pub(super) async fn read(self: &Arc<Self>, body: &Body, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        Self::inside(body, offset, to.len() as u64)?;
        let parts = {
            let to = &mut *to;
            self.until(body, || {
                if self.read_memory(body, offset, to)?.is_some() {
                    return Ok(Some(None));
                }
                Ok(match self.seat(body)? {
                    Seat::File(tier) => self.parts(body, tier, body.chunks(offset, to.len() as u64)).map(Some),
                    Seat::Memory | Seat::Moving => None,
                })
            })
            .await?
        };
        let Some((tier, parts)) = parts else { return Ok(()) };
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

    /// The pieces of these chunks in a tier. `None`: they are not there any more.
    fn parts(&self, body: &Body, tier: Tier, chunks: Range<usize>) -> Option<(Tier, Vec<Part>)> {
        let copies = body.copies();
        let pieces = copies.pieces[usize::from(tier)].as_ref()?;
        let part = |chunk: usize| Part { chunk, piece: pieces[chunk].as_ref().map(|(piece, _)| Arc::clone(piece)) };
        Some((tier, chunks.map(part).collect()))
    }

    /// Writes to wherever the bytes are.
    pub(super) async fn write(self: &Arc<Self>, body: &Arc<Body>, offset: u64, from: &[u8]) -> Result<(), Error> {
        Self::inside(body, offset, from.len() as u64)?;
        if from.is_empty() {
            return Ok(());
        }
        let tier = self
            .until(body, || {
                if self.write_memory(body, offset, from)?.is_some() {
                    return Ok(Some(None));
                }
                Ok(self.claim(body)?.map(Some))
            })
            .await?;
        let Some(tier) = tier else { return Ok(()) };
        let written = self.write_pieces(body, tier, offset, from).await;
        let mut state = self.state();
        if let Ok(pieces) = written.as_ref() {
            let mut copies = body.copies();
            copies.wrote(body.chunks(offset, from.len() as u64));
            for (chunk, piece) in pieces {
                let version = copies.versions[*chunk];
                if let Some(all) = &mut copies.pieces[usize::from(tier)] {
                    all[*chunk] = Some((Arc::clone(piece), version));
                }
            }
            drop(copies);
            let _ = state.handle(self, Event::Wrote { id: body.id, tier });
        }
        state.busy.remove(&body.id);
        let _ = state.handle(self, Event::Released { id: body.id });
        body.changed.notify(usize::MAX);
        self.unlock(state);
        written.map(drop)
    }

    /// Keeps motions and other writers away from a buffer that is in files only. `None`: it is not, or somebody is there.
    fn claim(&self, body: &Body) -> Result<Option<Tier>, Error> {
        let mut state = self.state();
        let view = state.ledger.view(body.id)?;
        let best = view.residence.best();
        if view.moving || self.kind(best) == TierKind::Memory || !state.busy.insert(body.id) {
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
        let Some((_, parts)) = self.parts(body, tier, body.chunks(offset, from.len() as u64)) else {
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
