//! An event for every call that changed something.
//!
//! Promises upward: the events of a `Traced` allocator, in order, are a trace that replays: ids count up from 0, a
//! reallocation keeps its id, a free names it. A refused call leaves no event.
//! Asks from below: tickets that no two blocks share (the allocator contract); one lent record for each live block.
//!
//! Invariant, checked: the id table holds exactly the live blocks.

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::event::{Event, Kind};
use crate::stats::Stats;
pub use ids::IdRecord;
use ids::Ids;

mod ids;

/// Where events go: an encoder, a ring, a counter. Time, tags and call sites are the sink's to add.
pub trait Sink {
    /// Takes one event. A sink that is full drops it and counts that.
    fn record(&mut self, event: Event);
}

impl<F: FnMut(Event)> Sink for F {
    fn record(&mut self, event: Event) {
        self(event);
    }
}

/// An allocator that tells a sink what it does.
///
/// `T` lends the id table (a `Vec`, an array, `&mut [_]`); when as many blocks are live as it has records, allocations
/// are refused with [`Cause::OutOfSlots`]. Probing stays short while a quarter of it is free.
///
/// # Example
/// ```
/// use terrace_core::event::{Event, Kind};
/// use terrace_core::layer::{IdRecord, Traced};
/// use terrace_core::pool::{Buckets, SizeClasses};
/// use terrace_core::sync::AtomicUsize;
/// use terrace_core::{Allocator, Owner, Request};
/// let words: Vec<_> = (0..Buckets::words(&[8])).map(|_| AtomicUsize::new(0)).collect();
/// let pool = Buckets::new(SizeClasses::new(64, 1)?, [8], 0, &words)?;
/// let mut seen = Vec::new();
/// let mut traced = Traced::new(pool, |event: Event| seen.push((event.kind, event.id)), [IdRecord::default(); 12]);
/// let block = traced.allocate(Request::new(50))?;
/// traced.free(block, Owner(0))?;
/// assert_eq!(seen, [(Kind::Allocate, 0), (Kind::Free, 0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Traced<A, K, T> {
    inner: A,
    sink: K,
    /// Ticket to id, for live blocks.
    ids: Ids<T>,
    /// Id of the next block.
    next: u64,
    /// Requests refused here, because no more ids can be kept.
    refused: u64,
}

impl<A: Allocator, K: Sink, T: AsRef<[IdRecord]> + AsMut<[IdRecord]>> Traced<A, K, T> {
    /// Traces an allocator nothing was taken from yet. The table is emptied.
    pub fn new(inner: A, sink: K, table: T) -> Self {
        Self { inner, sink, ids: Ids::new(table), next: 0, refused: 0 }
    }

    /// The allocator inside, to look at.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Takes the layer off.
    pub fn into_parts(self) -> (A, K) {
        (self.inner, self.sink)
    }
}

impl<A: Allocator, K: Sink, T: AsRef<[IdRecord]> + AsMut<[IdRecord]>> Allocator for Traced<A, K, T> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        if self.ids.is_full() {
            self.refused += 1;
            return Err(AllocError::new(Cause::OutOfSlots, request.bytes));
        }
        let block = self.inner.allocate(request)?;
        let id = self.next;
        self.next += 1;
        self.ids.insert(block.ticket, id);
        let Request { bytes, align, owner } = request;
        let address = Some(block.address);
        self.sink.record(Event { kind: Kind::Allocate, id, address, bytes, align, owner, ..Event::default() });
        Ok(block)
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        self.inner.free(block, owner)?;
        if let Some(id) = self.ids.remove(block.ticket) {
            let address = Some(block.address);
            self.sink.record(Event { kind: Kind::Free, id, address, bytes: block.bytes, owner, ..Event::default() });
        }
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let resized = self.inner.resize(block, bytes)?;
        if let Some(id) = self.ids.remove(block.ticket) {
            self.ids.insert(resized.ticket, id);
            let address = Some(resized.address);
            self.sink.record(Event { kind: Kind::Reallocate, id, address, bytes, ..Event::default() });
        }
        Ok(resized)
    }

    fn trim(&mut self) -> u64 {
        self.inner.trim()
    }

    /// The inner counters; `failed` includes what was refused here.
    fn stats(&self) -> Stats {
        let inner = self.inner.stats();
        Stats { failed: inner.failed + self.refused, ..inner }
    }

    fn check(&self) -> Result<(), Violation> {
        let live = self.inner.stats().live_blocks;
        ensure(self.ids.len() as u64 == live, "traced: the id table holds exactly the live blocks", live)?;
        self.ids.check()?;
        self.inner.check()
    }
}
