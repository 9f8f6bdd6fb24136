//! What one thread counted for a tracker.
//!
//! Promises upward: counting writes only to the thread's own memory until a batch is full; scopes of the thread see what
//! lies between their begin and their end, in whichever order they end.
//! Asks from below: [`Traffic`].
//!
//! Invariant: `peak` is the most of `live` since the innermost open scope began, or since any scope below it ended.

use crate::counter::{KnownBytes, PeakGauge, Traffic, shift};
use crate::growing::GrowingTable;
use crate::tag::Tag;
use alloc::vec::Vec;
use allocator_api2::alloc::Allocator;
use core::fmt;
use core::sync::atomic::{AtomicI64, Ordering};
use spin::mutex::SpinMutex;

/// The counters of one thread; see [`Tracker::lane_of`](crate::Tracker::lane_of).
///
/// No other thread's lie in the same cache line.
#[repr(align(64))]
pub struct ThreadLane<A: Allocator> {
    /// By the tag's index.
    tags: GrowingTable<Traffic, A>,
    /// What the gauge of all tags knows of `live`.
    known: KnownBytes,
    /// Bytes that the thread allocated less those that it freed; may be below zero.
    live: AtomicI64,
    peak: AtomicI64,
    scopes: SpinMutex<OpenScopes>,
}

/// The open scopes of a thread, innermost last.
#[derive(Default)]
struct OpenScopes {
    serial: u64,
    open: Vec<OpenScope>,
}

struct OpenScope {
    serial: u64,
    /// The peak below this scope: the most since the one below began, until this one did.
    under: i64,
}

/// Gauges of live bytes that all threads share, and memory for tables.
pub(crate) struct Gauges<A: Allocator> {
    pub(crate) total: PeakGauge,
    /// By the tag's index.
    pub(crate) tags: GrowingTable<PeakGauge, A>,
    pub(crate) memory: A,
}

/// Adds two rows of counters.
pub(crate) fn sum(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    core::array::from_fn(|at| a[at].wrapping_add(b[at]))
}

/// Subtracts a row of counters.
pub(crate) fn difference(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    core::array::from_fn(|at| a[at].wrapping_sub(b[at]))
}

/// What a scope remembers of its begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeBegin {
    serial: u64,
    counts: [u64; 4],
    live: i64,
}

impl<A: Allocator + Clone> fmt::Debug for ThreadLane<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadLane").field("counts", &self.read(None)).finish_non_exhaustive()
    }
}

impl<A: Allocator> Default for ThreadLane<A> {
    fn default() -> Self {
        let (live, peak, scopes) = (AtomicI64::new(0), AtomicI64::new(0), SpinMutex::default());
        Self { tags: GrowingTable::default(), known: KnownBytes::default(), live, peak, scopes }
    }
}

impl<A: Allocator + Clone> ThreadLane<A> {
    /// The counters of a tag, where they are made and cost the least to find.
    #[inline(always)]
    pub(crate) fn made(&self, tag: Tag) -> Option<&Traffic> {
        self.tags.get_first(tag.index())
    }

    /// Makes the counters of a tag, if they are not made.
    pub(crate) fn make(&self, tag: Tag, gauges: &Gauges<A>) -> Option<&Traffic> {
        self.tags.get_or_make(tag.index(), &gauges.memory)
    }

    /// Counts an allocation of this thread under the tag with these counters; true if a gauge must be told.
    #[inline(always)]
    pub(crate) fn allocated_under(&self, traffic: &Traffic, bytes: u64, own: bool) -> bool {
        let tag_is_due = traffic.allocated(bytes, own);
        let live = shift(&self.live, bytes as i64, own);
        if live > self.peak.load(Ordering::Relaxed) {
            self.peak.store(live, Ordering::Relaxed);
        }
        tag_is_due || self.known.is_due(live)
    }

    /// As [`allocated_under`](Self::allocated_under), of a free.
    #[inline(always)]
    pub(crate) fn freed_under(&self, traffic: &Traffic, bytes: u64, own: bool) -> bool {
        let tag_is_due = traffic.freed(bytes, own);
        let live = shift(&self.live, (bytes as i64).wrapping_neg(), own);
        tag_is_due || self.known.is_due(live)
    }

    /// Counts an allocation. `own`: no other thread counts here.
    pub(crate) fn allocated(&self, tag: Tag, bytes: u64, own: bool, gauges: &Gauges<A>) {
        let traffic = self.tags.get_or_make(tag.index(), &gauges.memory);
        if traffic.is_some_and(|traffic| self.allocated_under(traffic, bytes, own)) {
            self.tell(tag, gauges);
        }
    }

    /// Counts a free.
    pub(crate) fn freed(&self, tag: Tag, bytes: u64, own: bool, gauges: &Gauges<A>) {
        let traffic = self.tags.get_or_make(tag.index(), &gauges.memory);
        if traffic.is_some_and(|traffic| self.freed_under(traffic, bytes, own)) {
            self.tell(tag, gauges);
        }
    }

    /// Tells the gauges: of the tag, and of all tags.
    #[cold]
    pub(crate) fn tell(&self, tag: Tag, gauges: &Gauges<A>) {
        let gauge = gauges.tags.get_or_make(tag.index(), &gauges.memory);
        if let (Some(gauge), Some(traffic)) = (gauge, self.tags.get(tag.index())) {
            traffic.tell(gauge);
        }
        self.known.tell(self.live.load(Ordering::Relaxed), &gauges.total);
    }

    /// Allocations, frees, allocated and freed bytes: of the tag at an index, or of all.
    pub(crate) fn read(&self, tag: Option<usize>) -> [u64; 4] {
        match tag {
            Some(index) => self.tags.get(index).map_or([0; 4], Traffic::read),
            None => self.tags.iter().map(Traffic::read).fold([0; 4], sum),
        }
    }

    /// One more than the highest index of a tag that may have been used here.
    pub(crate) fn used_tags(&self) -> usize {
        self.tags.end()
    }

    /// Opens a scope.
    pub(crate) fn begin(&self) -> ScopeBegin {
        let mut scopes = self.scopes.lock();
        let live = self.live.load(Ordering::Relaxed);
        scopes.serial += 1;
        let serial = scopes.serial;
        let under = self.peak.swap(live, Ordering::Relaxed);
        scopes.open.push(OpenScope { serial, under });
        ScopeBegin { serial, counts: self.read(None), live }
    }

    /// What was counted since a scope began: allocations, frees, allocated and freed bytes; and the peak of live bytes
    /// above those at its begin.
    pub(crate) fn since(&self, begin: &ScopeBegin) -> ([u64; 4], u64) {
        let scopes = self.scopes.lock();
        let now = self.read(None);
        let inner = scopes.open.iter().filter(|scope| scope.serial > begin.serial).map(|scope| scope.under);
        let peak = inner.fold(self.peak.load(Ordering::Relaxed), i64::max);
        (difference(now, begin.counts), peak.wrapping_sub(begin.live).max(0) as u64)
    }

    /// Closes a scope.
    pub(crate) fn end(&self, begin: &ScopeBegin) {
        let mut scopes = self.scopes.lock();
        let Some(at) = scopes.open.iter().position(|scope| scope.serial == begin.serial) else { return };
        let closed = scopes.open.remove(at);
        match scopes.open.get_mut(at) {
            // The scope above now covers the one below.
            Some(above) => above.under = above.under.max(closed.under),
            None => _ = self.peak.fetch_max(closed.under, Ordering::Relaxed),
        }
    }
}
