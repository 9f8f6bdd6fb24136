//! Counters that one thread writes without atomic operations, and gauges of live bytes that all threads share.
//!
//! Promises upward: counting costs a few plain loads and stores; sums over all threads are exact once the threads rest.
//! Asks from below: an answer to one question, whether the caller is the only writer.
//!
//! A thread keeps what it allocated and freed to itself until that reaches a batch: 64 KiB, or a 256th of the peak where
//! that is more. Then it passes the sum on to the shared gauge. So a peak may be off by a batch for each thread, in
//! either direction.

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
}

impl PeakGauge {
    /// Adds to the live bytes; returns the peak.
    fn shift(&self, by: i64) -> u64 {
        let live = self.live.fetch_add(by, Ordering::Relaxed).wrapping_add(by);
        let peak = self.peak.load(Ordering::Relaxed);
        if live > peak { self.peak.fetch_max(live, Ordering::Relaxed).max(live) as u64 } else { peak as u64 }
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(0) as u64
    }
}

/// Bytes of one thread that a gauge does not know yet.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes {
    /// Allocated bytes less freed ones.
    bytes: AtomicI64,
    /// The gauge is told when there are more bytes than this, in either direction.
    most: AtomicU64,
}

impl PendingBytes {
    /// Adds bytes; true if the gauge must be told.
    #[inline]
    pub(crate) fn add(&self, by: i64, own: bool) -> bool {
        shift(&self.bytes, by, own).unsigned_abs() > self.most.load(Ordering::Relaxed)
    }

    /// Tells the gauge.
    #[cold]
    pub(crate) fn pass_on(&self, own: bool, gauge: &PeakGauge) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes.unsigned_abs() <= BATCH && self.most.load(Ordering::Relaxed) == 0 {
            // The first call of this thread: from now on it keeps a batch to itself.
            self.most.store(BATCH, Ordering::Relaxed);
            return;
        }
        // In a shared lane another thread may have passed the bytes on already.
        let bytes = if own { bytes } else { self.bytes.swap(0, Ordering::Relaxed) };
        if own {
            self.bytes.store(0, Ordering::Relaxed);
        }
        let peak = gauge.shift(bytes);
        self.most.store(BATCH.max(peak / BATCH_PART), Ordering::Relaxed);
    }
}

/// What was allocated and freed by one thread under one tag.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    allocations: AtomicU64,
    frees: AtomicU64,
    bytes: AtomicU64,
    freed: AtomicU64,
    pub(crate) pending: PendingBytes,
}

/// Adds to a counter. `own`: the caller is the only writer, so a load and a store are enough.
#[inline]
fn add(counter: &AtomicU64, by: u64, own: bool) {
    if own {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    } else {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// As [`add`], for a number with a sign; returns the sum.
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
        add(&self.bytes, bytes, own);
        self.pending.add(bytes as i64, own)
    }

    /// Counts a free; true if the gauge must be told.
    #[inline]
    pub(crate) fn freed(&self, bytes: u64, own: bool) -> bool {
        add(&self.frees, 1, own);
        add(&self.freed, bytes, own);
        self.pending.add((bytes as i64).wrapping_neg(), own)
    }

    /// Allocations, frees, allocated bytes and freed bytes.
    pub(crate) fn read(&self) -> [u64; 4] {
        // Frees are read first: a block that is freed meanwhile counts as live, not as freed before it was allocated.
        let (frees, freed) = (self.frees.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed));
        [self.allocations.load(Ordering::Relaxed), frees, self.bytes.load(Ordering::Relaxed), freed]
    }
}
