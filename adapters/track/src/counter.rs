//! Counters that one thread writes without atomic operations, and gauges of live bytes that all threads share.
//!
//! Promises upward: counting costs a few plain loads and stores; sums over all threads are exact once the threads rest.
//! Asks from below: an answer to one question, whether the caller is the only writer.
//!
//! A thread tells the shared gauge of its live bytes when they differ from what the gauge knows by more than a batch: 64
//! KiB, or a 256th of the peak where that is more. So a peak may be off by a batch for each thread, in either direction.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Least bytes that a thread keeps to itself.
///
/// 64 KiB: blocks of 1 KiB touch the shared line once in 64 calls.
pub const BATCH: u64 = 64 << 10;

/// The part of the peak that a thread keeps to itself where that is more than [`BATCH`].
///
/// A 256th: 0.4 % for each thread, and blocks that come and go touch the shared line rarely, as long as each is smaller than that.
pub const BATCH_PART: u64 = 256;

/// Live bytes of all threads, and the most there were.
#[derive(Debug, Default)]
pub(crate) struct PeakGauge {
    live: AtomicI64,
    peak: AtomicI64,
    /// Live bytes at the last restart.
    base: AtomicI64,
}

/// Counters at the last restart: allocations, frees, allocated and freed bytes.
#[derive(Debug, Default)]
pub(crate) struct Baseline([AtomicU64; 4]);

impl Baseline {
    pub(crate) fn take(&self, counts: [u64; 4]) {
        self.0.iter().zip(counts).for_each(|(at, count)| at.store(count, Ordering::Relaxed));
    }

    pub(crate) fn read(&self) -> [u64; 4] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl PeakGauge {
    /// Adds to the live bytes; returns the peak beyond those at the last restart.
    fn shift(&self, by: i64) -> u64 {
        let live = self.live.fetch_add(by, Ordering::Relaxed).wrapping_add(by);
        if live > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
        self.peak()
    }

    /// The most live bytes beyond those at the last restart.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).wrapping_sub(self.base.load(Ordering::Relaxed)).max(0) as u64
    }

    /// Begins again with what is live.
    pub(crate) fn restart(&self) {
        let live = self.live.load(Ordering::Relaxed);
        self.base.store(live, Ordering::Relaxed);
        self.peak.store(live, Ordering::Relaxed);
    }
}

/// How much of a thread's live bytes a gauge knows.
#[derive(Debug, Default)]
pub(crate) struct KnownBytes {
    known: AtomicI64,
    /// The least live bytes of which the gauge need not be told: a batch below `known`.
    low: AtomicI64,
    /// Twice the batch: up to `low + width` the gauge need not be told either. Zero until the first call.
    width: AtomicU64,
}

impl KnownBytes {
    /// Whether the gauge must be told of a thread's live bytes.
    #[inline]
    pub(crate) fn is_due(&self, live: i64) -> bool {
        live.wrapping_sub(self.low.load(Ordering::Relaxed)) as u64 > self.width.load(Ordering::Relaxed)
    }

    /// Sets the batch around what the gauge knows.
    ///
    /// Two threads that do it at once in a shared lane may leave the bounds of both: then the gauge is told sooner or
    /// later than it need be, of the right number.
    fn set_batch(&self, known: i64, batch: u64) {
        self.low.store(known.wrapping_sub(batch as i64), Ordering::Relaxed);
        self.width.store(2 * batch, Ordering::Relaxed);
    }

    /// Tells the gauge of a thread's live bytes.
    #[cold]
    pub(crate) fn tell(&self, live: i64, gauge: &PeakGauge) {
        let known = self.known.load(Ordering::Relaxed);
        let more = live.wrapping_sub(known);
        if more.unsigned_abs() <= BATCH && self.width.load(Ordering::Relaxed) == 0 {
            return self.set_batch(known, BATCH);
        }
        // In a shared lane another thread may tell the gauge at the same time: one of them does.
        if self.known.compare_exchange(known, live, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let peak = gauge.shift(more);
            self.set_batch(live, BATCH.max(peak / BATCH_PART));
        }
    }
}

/// What was allocated and freed by one thread under one tag. One cache line, whose place costs a shift.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Traffic {
    allocations: AtomicU64,
    frees: AtomicU64,
    bytes: AtomicU64,
    freed: AtomicU64,
    known: KnownBytes,
}

/// Adds to a counter. `own`: the caller is the only writer, so a load and a store are enough. Returns the sum.
#[inline]
fn add(counter: &AtomicU64, by: u64, own: bool) -> u64 {
    if own {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
        counter.store(sum, Ordering::Relaxed);
        sum
    } else {
        counter.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
    }
}

/// As [`add`], for a number with a sign.
#[inline]
pub(crate) fn shift(counter: &AtomicI64, by: i64, own: bool) -> i64 {
    if own {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
        counter.store(sum, Ordering::Relaxed);
        sum
    } else {
        counter.fetch_add(by, Ordering::Relaxed).wrapping_add(by)
    }
}

impl Traffic {
    /// Counts an allocation; true if the gauge must be told.
    #[inline]
    pub(crate) fn allocated(&self, bytes: u64, own: bool) -> bool {
        add(&self.allocations, 1, own);
        let all = add(&self.bytes, bytes, own);
        self.known.is_due(all.wrapping_sub(self.freed.load(Ordering::Relaxed)) as i64)
    }

    /// Counts a free; true if the gauge must be told.
    #[inline]
    pub(crate) fn freed(&self, bytes: u64, own: bool) -> bool {
        add(&self.frees, 1, own);
        let freed = add(&self.freed, bytes, own);
        self.known.is_due(self.bytes.load(Ordering::Relaxed).wrapping_sub(freed) as i64)
    }

    /// Tells the gauge of the tag's live bytes in this thread.
    pub(crate) fn tell(&self, gauge: &PeakGauge) {
        let live = self.bytes.load(Ordering::Relaxed).wrapping_sub(self.freed.load(Ordering::Relaxed));
        self.known.tell(live as i64, gauge);
    }

    /// Allocations, frees, allocated bytes and freed bytes.
    pub(crate) fn read(&self) -> [u64; 4] {
        // Frees are read first: a block that is freed meanwhile counts as live, not as freed before it was allocated.
        let (frees, freed) = (self.frees.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed));
        [self.allocations.load(Ordering::Relaxed), frees, self.bytes.load(Ordering::Relaxed), freed]
    }
}
