//! Copies between tiers, a chunk at a time, several at once.
//!
//! Promises upward: a copy that was begun ends, and the ledger is told; one that fails leaves the buffer as it was;
//! chunks whose bytes are in the target already are not moved.
//! Asks from below: stores, and frames to go through.

use super::block::{Block, InPlace, Lent};
use super::body::{Body, Copied, Pieces};
use super::error::Error;
use super::gpu::{Gpu, There};
use super::window::Window;
use super::{Place, Shared};
use crate::ledger::{Event, Outcome, TierKind};
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_device::DeviceError;
use terrace_file::{Frame, Store, StoreError};

/// Chunks on their way at once: 8 of 1 MiB keep a disk of 7 GB/s busy for a millisecond.
const CHUNKS: usize = 8;

/// Where a copy begins.
#[derive(Clone)]
enum Source {
    Memory(Window),
    Device(Arc<There>),
    Pieces(Arc<Pieces>, Store),
}

/// One that panics has failed: the ledger and those who wait are told as of any other failure.
async fn caught<T>(copy: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    #[cfg(test)]
    let copy = async {
        tests::panic_if_told();
        copy.await
    };
    AssertUnwindSafe(copy).catch_unwind().await.unwrap_or(Err(Error::Panicked))
}

impl Shared {
    /// Memory for a new buffer, all zeros.
    pub(super) fn make(self: &Arc<Self>, body: Arc<Body>, tier: Tier, told: oneshot::Sender<Result<Arc<Body>, Error>>) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let made = caught(shared.zeros(&body, tier)).await;
            let failed = made.is_err();
            // Where there is no room the ledger knows.
            let refused = made.as_ref().err().filter(|error| !matches!(error, Error::NoRoom { .. }));
            let refused = refused.map(|error| shared.refused(tier, error.clone()));
            let mut state = shared.state();
            state.busy.remove(&body.id);
            let outcome = made.map(|brought| {
                state.returns.add(body.copies().put(tier, brought));
                state.ended(&shared, body.id);
                Arc::clone(&body)
            });
            // Nobody waits any more, or there is no memory: it is freed. Who has opened it by name since may hold a
            // lease.
            let _ = match told.send(outcome).is_err() || failed {
                true => state.free(&shared, &body),
                false => state.handle(&shared, Event::Released { id: body.id }),
            };
            if let Some(refused) = refused {
                state.refused.insert(tier, refused);
                let _ = state.handle(&shared, Event::Refused { tier });
            }
            shared.unlock(state);
        }));
    }

    /// A copy of a buffer that nobody wrote.
    async fn zeros(self: &Arc<Self>, body: &Body, tier: Tier) -> Result<Copied, Error> {
        if let Some(Place::Device(gpu)) = self.place(tier) {
            let there = self.take_from_device(|| gpu.take(body.bytes, &self.tasks)).await?;
            there.zero().await?;
            return Ok(Copied::Device(there));
        }
        let block = self.block(tier, body.bytes).await?;
        let window = block.window();
        // SAFETY: the block was just taken, and is nobody else's.
        unsafe { window.zero(0, body.bytes as usize) };
        Ok(Copied::Memory(block))
    }

    /// Memory in a tier, which the ledger has counted. Where what is free is in pieces, buffers leave until it fits.
    async fn block(self: &Arc<Self>, tier: Tier, bytes: u64) -> Result<Block, Error> {
        let frames = match self.place(tier) {
            Some(Place::Memory(frames)) => frames,
            Some(Place::Joint(gpu)) => {
                let block = self.take_from_device(|| gpu.pinned(bytes)).await?;
                return Ok(Block::Pinned(Box::new(block)));
            }
            _ => return Err(Error::NoTier("in memory")),
        };
        let len = usize::try_from(bytes).map_err(|_| Error::Memory(ErrorKind::OutOfMemory))?;
        if let Ok(frame) = frames.take_packed(len) {
            return Ok(Block::Frame(frame));
        }
        loop {
            // Listened for before looking, so that nothing is missed.
            let moved = self.moved.listen();
            if let Ok(frame) = frames.take_packed(len) {
                self.cleared(tier);
                return Ok(Block::Frame(frame));
            }
            if !self.clear(tier, bytes) {
                // From now on it is known how much there really is.
                self.settle_memory();
                return Err(Error::NoRoom { tier });
            }
            moved.await;
        }
    }

    /// Copies a buffer whose word is closed, or shared for the copy.
    pub(super) fn copy(self: &Arc<Self>, body: Arc<Body>, from: Tier, to: Tier) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let brought = caught(shared.bring(&body, from, to)).await;
            let outcome = match &brought {
                Ok(_) => Outcome::Done,
                // Nothing is wrong with the target.
                Err(Error::Freed | Error::NoRoom { .. }) => Outcome::Busy,
                // Where it came from: the target need not rest for that.
                Err(Error::Device(_)) if shared.gpu(to).is_none() => Outcome::Unread,
                Err(Error::Store(_)) if shared.kind(to) != TierKind::File => Outcome::Unread,
                Err(Error::Store(StoreError::Full { .. }) | Error::Memory(_)) => Outcome::Full,
                Err(Error::Device(DeviceError::OutOfMemory(_))) => Outcome::Full,
                Err(_) => Outcome::Failed,
            };
            let refused = brought.as_ref().err().filter(|_| matches!(outcome, Outcome::Full | Outcome::Failed));
            let refused = refused.map(|error| (to, shared.refused(to, error.clone())));
            let mut state = shared.state();
            state.refused.extend(refused);
            match brought {
                Ok(brought) => state.returns.add(body.copies().put(to, brought)),
                // Who waits for it learns why, instead of waiting until it is tried again.
                Err(error) => state.settled(body.id, &Err(error)),
            }
            let _ = state.handle(&shared, Event::Moved { id: body.id, from, to, outcome });
            shared.unlock(state);
        }));
    }

    async fn bring(self: &Arc<Self>, body: &Arc<Body>, from: Tier, to: Tier) -> Result<Copied, Error> {
        let source = self.source(body, from)?;
        match self.place(to) {
            Some(Place::Memory(_) | Place::Joint(_)) => self.to_memory(body, source, to).await.map(Copied::Memory),
            Some(Place::Device(gpu)) => self.to_device(body, source, (gpu, to)).await.map(Copied::Device),
            Some(Place::File(store)) => self.to_files(body, source, (store, to)).await.map(Copied::Pieces),
            None => Err(Error::NoTier("to copy to")),
        }
    }

    /// Where to copy from: where the ledger says, but from memory rather than from a device that has the same.
    fn source(&self, body: &Body, from: Tier) -> Result<Source, Error> {
        let residence = self.state().ledger.view(body.id)?.residence;
        let from = match self.kind(from) {
            TierKind::Device => self.newest(&residence, TierKind::Memory).unwrap_or(from),
            _ => from,
        };
        let copies = body.copies();
        if let Some(block) = copies.memory(from) {
            return Ok(Source::Memory(block.window()));
        }
        if let Some(there) = copies.device(from) {
            return Ok(Source::Device(Arc::clone(there)));
        }
        let pieces = copies.pieces(from).cloned().ok_or(Error::NoTier("to copy from"))?;
        Ok(Source::Pieces(Arc::new(pieces), self.store(from)?.clone()))
    }

    /// To memory. What the tier has of older bytes is written over.
    async fn to_memory(self: &Arc<Self>, body: &Arc<Body>, source: Source, to: Tier) -> Result<Block, Error> {
        let old = body.copies().take(to);
        let block = match old {
            Some(Copied::Memory(block)) => block,
            _ => self.block(to, body.bytes).await?,
        };
        let window = block.window();
        if body.copies().is_untouched() {
            // SAFETY: the block is this copy's alone until it has ended.
            unsafe { window.zero(0, body.bytes as usize) };
            return Ok(block);
        }
        if let Source::Device(there) = source {
            return Ok(there.download(0, Lent::block(block, body.bytes as usize)).await?.into_owner());
        }
        let chunks = body.chunks(0, body.bytes).map(|chunk| {
            let (shared, body, source) = (Arc::clone(self), Arc::clone(body), source.clone());
            async move {
                let (at, bytes) = (chunk * body.chunk, body.chunk_bytes(chunk));
                let frame = shared.chunk(&body, source, chunk).await?;
                // SAFETY: the block is this copy's alone until it has ended, and no two chunks overlap.
                unsafe { window.write(at, &frame[..bytes]) };
                Ok::<_, Error>(())
            }
        });
        stream::iter(chunks).buffer_unordered(CHUNKS).try_collect::<()>().await?;
        Ok(block)
    }

    /// To a device. What it has of older bytes is written over.
    async fn to_device(
        self: &Arc<Self>,
        body: &Arc<Body>,
        source: Source,
        (gpu, to): (&Gpu, Tier),
    ) -> Result<Arc<There>, Error> {
        let old = body.copies().take(to);
        let there = match old {
            Some(Copied::Device(there)) => there,
            _ => self.take_from_device(|| gpu.take(body.bytes, &self.tasks)).await?,
        };
        if body.copies().is_untouched() {
            there.zero().await?;
            return Ok(there);
        }
        if let Source::Memory(window) = source {
            // SAFETY: the word is closed until the copy has ended: nobody writes the memory or gives it back.
            let bytes = unsafe { InPlace::new(window, Arc::clone(body)) };
            there.upload(0, bytes).await?;
            return Ok(there);
        }
        let chunks = body.chunks(0, body.bytes).map(|chunk| {
            let (shared, body) = (Arc::clone(self), Arc::clone(body));
            let (source, there) = (source.clone(), Arc::clone(&there));
            async move {
                let frame = shared.chunk(&body, source, chunk).await?;
                let frame = Lent::frame(frame, body.chunk_bytes(chunk));
                there.upload(chunk * body.chunk, frame).await.map(drop)
            }
        });
        stream::iter(chunks).buffer_unordered(CHUNKS).try_collect::<()>().await?;
        Ok(there)
    }

    /// To files: what the target does not have yet.
    async fn to_files(
        self: &Arc<Self>,
        body: &Arc<Body>,
        source: Source,
        (store, to): (&Store, Tier),
    ) -> Result<Pieces, Error> {
        let (versions, old) = {
            let copies = body.copies();
            (copies.versions.clone(), copies.pieces(to).cloned())
        };
        let chunks = versions.into_iter().enumerate().map(|(chunk, version)| {
            let kept = old.as_ref().and_then(|old| old[chunk].clone()).filter(|(_, has)| *has == version);
            let (shared, body) = (Arc::clone(self), Arc::clone(body));
            let (source, store) = (source.clone(), store.clone());
            async move {
                // Version 0: zeros, which nobody wrote.
                if kept.is_some() || version == 0 {
                    return Ok(kept);
                }
                let frame = shared.chunk(&body, source, chunk).await?;
                Ok(Some((store.put(frame, body.chunk_bytes(chunk)).await.result?, version)))
            }
        });
        stream::iter(chunks).buffered(CHUNKS).try_collect().await
    }

    /// The bytes of a chunk, in a frame.
    async fn chunk(&self, body: &Arc<Body>, source: Source, chunk: usize) -> Result<Frame, Error> {
        let (at, bytes) = (chunk * body.chunk, body.chunk_bytes(chunk));
        if let Source::Pieces(pieces, store) = &source
            && let Some((piece, _)) = &pieces[chunk]
        {
            return Ok(store.get(piece).await?);
        }
        let mut frame = self.frame(bytes).await?;
        match source {
            Source::Pieces(..) => frame[..bytes].fill(0),
            // SAFETY: the word is closed, or shared for the copy, until that has ended: nobody writes the memory or
            // gives it back.
            Source::Memory(window) => unsafe { window.read(at, &mut frame[..bytes]) },
            Source::Device(there) => return Ok(there.download(at, Lent::frame(frame, bytes)).await?.into_owner()),
        }
        Ok(frame)
    }

    /// A frame to go through.
    pub(super) async fn frame(&self, bytes: usize) -> Result<Frame, Error> {
        self.frames.wait(bytes).await.map_err(|_| Error::Memory(ErrorKind::OutOfMemory))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Manager, Options};
    use super::*;
    use std::cell::Cell;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};
    use terrace_file::{Directory, EngineKind, Executor, StoreOptions};

    thread_local! {
        /// Whether copies of this thread's tasks panic.
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn panic_if_told() {
        assert!(!PANICS.get(), "in a copy, on purpose");
    }

    /// Runs tasks until a future has ended.
    fn drive<F: Future>(tasks: &Executor, future: F) -> F::Output {
        let (mut future, begun) = (std::pin::pin!(future), Instant::now());
        while begun.elapsed() < Duration::from_secs(20) {
            if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return ended;
            }
            tasks.run(Duration::MAX);
            std::thread::yield_now();
        }
        panic!("it does not end");
    }

    #[test]
    fn a_copy_that_panics_is_a_failed_copy() {
        let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Executor::new());
        let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
        let builder = Manager::builder().memory(4 << 20).disk(Arc::new(files), StoreOptions::new(64 << 20));
        let built = builder.tasks(&tasks).upkeep(Duration::ZERO).build_async().expect("it begins");
        let manager = drive(&tasks, built).expect("it is built");
        let named = |name: &str| Options { name: Some(name.into()), ..Options::default() };
        let buffer = drive(&tasks, manager.allocate_async(1 << 20, named("a"))).expect("room");
        drive(&tasks, buffer.write_async(0, vec![7; 1 << 20])).expect("written");
        PANICS.set(true);
        assert_eq!(drive(&tasks, manager.sync_async(&buffer)), Err(Error::Panicked));
        assert_eq!(drive(&tasks, manager.allocate_async(1 << 20, named("b"))).map(drop), Err(Error::Panicked));
        PANICS.set(false);
        manager.check().expect("sound");
        // A tier that failed rests until then.
        manager.tick(1_000_000);
        drop(drive(&tasks, manager.allocate_async(1 << 20, named("b"))).expect("room, and the name is free"));
        drive(&tasks, manager.sync_async(&buffer)).expect("durable");
        drive(&tasks, manager.demote_async(&buffer, 1)).expect("moved");
        PANICS.set(true);
        assert_eq!(drive(&tasks, buffer.lease_best_async()).map(drop), Err(Error::Panicked));
        PANICS.set(false);
        manager.tick(2_000_000);
        assert!(drive(&tasks, buffer.lease_best_async()).expect("brought up").iter().all(|byte| *byte == 7));
        manager.check().expect("sound");
    }
}
