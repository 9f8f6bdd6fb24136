//! Copies between tiers, a chunk at a time, several at once.
//!
//! Promises upward: a copy that was begun ends, and the ledger is told; one that fails leaves the buffer as it was; chunks whose
//! bytes are in the target already are not moved.
//! Asks from below: stores, and frames to go through.

use super::body::{Body, Pieces};
use super::error::Error;
use super::window::Window;
use super::{Place, Shared};
use crate::ledger::{Event, Outcome};
use futures_channel::oneshot;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Frame, Frames, Piece, Store, StoreError};

/// Chunks on their way at once: 8 of 1 MiB keep a disk of 7 GB/s busy for a millisecond.
const CHUNKS: usize = 8;

/// What a copy brings, to be put in under the lock.
enum Brought {
    Memory(Frame),
    Pieces(Pieces),
}

/// Where a copy down begins.
enum Source {
    Memory(Window),
    Pieces(Pieces, Tier),
}

/// Where a chunk of it comes from.
enum Origin {
    /// It is there already, or it is zeros.
    Kept(Option<(Arc<Piece>, u64)>),
    Memory(Window),
    Piece(Arc<Piece>, Store),
}

impl Shared {
    /// Memory for a new buffer, all zeros.
    pub(super) fn make(self: &Arc<Self>, body: Arc<Body>, tier: Tier, told: oneshot::Sender<Result<Arc<Body>, Error>>) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let made = shared.block(tier, body.bytes).inspect(|frame| {
                // SAFETY: the frame was just taken, and is nobody else's.
                unsafe { Window::new(frame.pointer(), frame.len()).zero(0, frame.len()) };
            });
            let mut state = shared.state();
            state.busy.remove(&body.id);
            let outcome = made.map(|frame| {
                body.copies().memory[usize::from(tier)] = Some(frame);
                state.ended(&shared, body.id);
                Arc::clone(&body)
            });
            let failed = outcome.is_err();
            // Nobody waits any more, or there is no memory: it is freed. Who has opened it by name since may hold a lease.
            let _ = match told.send(outcome).is_err() || failed {
                true => state.free(&shared, &body),
                false => state.handle(&shared, Event::Released { id: body.id }),
            };
            shared.unlock(state);
        }));
    }

    /// Memory in a tier. The ledger has counted it: should the tier's own memory be in pieces, it is taken beside it.
    fn block(&self, tier: Tier, bytes: u64) -> Result<Frame, Error> {
        let memory = |kind| Error::Memory(kind);
        let Place::Memory(frames) = &self.places[usize::from(tier)] else { return Err(Error::NoTier("in memory")) };
        let bytes = usize::try_from(bytes).map_err(|_| memory(std::io::ErrorKind::OutOfMemory))?;
        if let Ok(frame) = frames.take(bytes) {
            return Ok(frame);
        }
        let own = Frames::new(bytes).map_err(|error| memory(error.kind()))?;
        own.take(bytes).map_err(|_| memory(std::io::ErrorKind::OutOfMemory))
    }

    /// Copies a buffer whose word is closed.
    pub(super) fn copy(self: &Arc<Self>, body: Arc<Body>, from: Tier, to: Tier) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let brought = shared.bring(&body, from, to).await;
            let outcome = match &brought {
                Ok(_) => Outcome::Done,
                Err(Error::Store(StoreError::Full { .. }) | Error::Memory(_)) => Outcome::Full,
                Err(_) => Outcome::Failed,
            };
            let mut state = shared.state();
            match brought {
                Ok(Brought::Memory(frame)) => body.copies().memory[usize::from(to)] = Some(frame),
                Ok(Brought::Pieces(pieces)) => body.copies().pieces[usize::from(to)] = Some(pieces),
                // Who waits for it learns why, instead of waiting until it is tried again.
                Err(error) => state.settled(body.id, &Err(error)),
            }
            let _ = state.handle(&shared, Event::Moved { id: body.id, from, to, outcome });
            shared.unlock(state);
        }));
    }

    async fn bring(self: &Arc<Self>, body: &Arc<Body>, from: Tier, to: Tier) -> Result<Brought, Error> {
        let (from_memory, pieces) = {
            let copies = body.copies();
            let memory = copies.memory[usize::from(from)].as_ref();
            (memory.map(|frame| Window::new(frame.pointer(), frame.len())), copies.pieces[usize::from(from)].clone())
        };
        match (&self.places[usize::from(to)], from_memory, pieces) {
            (Place::Memory(_), None, Some(pieces)) => {
                self.raise(body, &pieces, from, self.block(to, body.bytes)?).await.map(Brought::Memory)
            }
            (Place::File(store), Some(memory), _) => {
                self.lower(body, Source::Memory(memory), (store, to)).await.map(Brought::Pieces)
            }
            (Place::File(store), None, Some(pieces)) => {
                self.lower(body, Source::Pieces(pieces, from), (store, to)).await.map(Brought::Pieces)
            }
            // Between two memories: there is one so far.
            _ => Err(Error::NoTier("to copy from")),
        }
    }

    /// From files to memory.
    async fn raise(&self, body: &Arc<Body>, pieces: &Pieces, from: Tier, block: Frame) -> Result<Frame, Error> {
        let window = Window::new(block.pointer(), block.len());
        let store = self.store(from)?;
        let mut chunks = Vec::new();
        for (chunk, piece) in pieces.iter().enumerate() {
            let piece = piece.as_ref().map(|(piece, _)| Arc::clone(piece));
            chunks.push(raise_chunk(store.clone(), Arc::clone(body), (chunk, piece), window));
        }
        let moved: Vec<()> = stream::iter(chunks).buffer_unordered(CHUNKS).try_collect().await?;
        debug_assert_eq!(moved.len(), pieces.len());
        Ok(block)
    }

    /// From memory, or other files, to files: what the target does not have yet.
    async fn lower(
        self: &Arc<Self>,
        body: &Arc<Body>,
        source: Source,
        (store, to): (&Store, Tier),
    ) -> Result<Pieces, Error> {
        let (versions, old) = {
            let copies = body.copies();
            (copies.versions.clone(), copies.pieces[usize::from(to)].clone())
        };
        let mut chunks = Vec::new();
        for (chunk, version) in versions.into_iter().enumerate() {
            let kept = old.as_ref().and_then(|old| old[chunk].clone()).filter(|(_, has)| *has == version);
            let from = match (&source, version) {
                // Zeros, which nobody wrote.
                (_, 0) => Origin::Kept(None),
                _ if kept.is_some() => Origin::Kept(kept),
                (Source::Memory(window), _) => Origin::Memory(*window),
                (Source::Pieces(pieces, from), _) => match &pieces[chunk] {
                    Some((piece, _)) => Origin::Piece(Arc::clone(piece), self.store(*from)?.clone()),
                    None => Origin::Kept(None),
                },
            };
            chunks.push(lower_chunk(Arc::clone(self), Arc::clone(body), (chunk, version), from, store.clone()));
        }
        stream::iter(chunks).buffered(CHUNKS).try_collect().await
    }

    /// A frame to go through.
    pub(super) async fn frame(&self, bytes: usize) -> Result<Frame, Error> {
        self.frames.wait(bytes).await.map_err(|_| Error::Memory(std::io::ErrorKind::OutOfMemory))
    }
}

async fn raise_chunk(
    store: Store,
    body: Arc<Body>,
    (chunk, piece): (usize, Option<Arc<Piece>>),
    to: Window,
) -> Result<(), Error> {
    let (at, bytes) = (chunk * body.chunk, body.chunk_bytes(chunk));
    match piece {
        Some(piece) => {
            let frame = store.get(&piece).await?;
            // SAFETY: the block is this copy's alone until it has ended, and no two chunks overlap.
            unsafe { to.write(at, &frame[..bytes]) };
        }
        // SAFETY: as above.
        None => unsafe { to.zero(at, bytes) },
    }
    Ok(())
}

async fn lower_chunk(
    shared: Arc<Shared>,
    body: Arc<Body>,
    (chunk, version): (usize, u64),
    from: Origin,
    store: Store,
) -> Result<Option<(Arc<Piece>, u64)>, Error> {
    let bytes = body.chunk_bytes(chunk);
    let frame = match from {
        Origin::Kept(kept) => return Ok(kept),
        Origin::Piece(piece, store) => store.get(&piece).await?,
        Origin::Memory(window) => {
            let mut frame = shared.frame(bytes).await?;
            // SAFETY: the word is closed until the copy has ended: nobody writes the memory or gives it back.
            unsafe { window.read(chunk * body.chunk, &mut frame[..bytes]) };
            frame
        }
    };
    Ok(Some((store.put(frame, bytes).await.result?, version)))
}
