//! Telemetry: the counters of one side of a ring, in 64 bytes that only that side writes and any thread reads.
//!
//! Promises upward: a snapshot is consistent, or there is none; readers never wait for the writer.
//! Asks from below: one writer.
//!
//! This is a sequence lock: `sequence` is odd while the writer stores. Numbers are stored with Release and loaded with
//! Acquire, so a reader that loads a number of a later write also sees, in its second load of `sequence`, that this write
//! had begun.

use crate::sync::{AtomicU32, Ordering, seeded, spin_hint};

/// Release: a reader that loads a number of a write also sees that this write had begun.
#[inline(always)]
fn number_order() -> Ordering {
    if seeded("ring_telemetry_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Number of counters.
const NUMBERS: usize = 5;
/// Number of tries of a snapshot. A write is some ten stores, so a writer that interferes with eight tries one after
/// another is a faulty device, or writes faster than a reader can read. Loom explores all interleavings with one try.
#[cfg(not(loom))]
const TRIES: u32 = 8;
#[cfg(loom)]
const TRIES: u32 = 1;

/// The telemetry of one side of a ring: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Telemetry {
    /// Byte 0. Incremented at the begin and at the end of each write, so odd during a write.
    pub sequence: AtomicU32,
    /// Bytes 4 to 7: padding.
    _pad: u32,
    /// Bytes 8 to 47. Five 64-bit numbers, each as a low and a high word, in the order of the fields of
    /// [`RingCounters`].
    pub numbers: [[AtomicU32; 2]; NUMBERS],
    /// Bytes 48 to 63: padding.
    _rest: [u32; 4],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Telemetry>() == Telemetry::BYTES && align_of::<Telemetry>() == 64);
    assert!(core::mem::offset_of!(Telemetry, numbers) == 8 && core::mem::offset_of!(Telemetry, _rest) == 48);
};

/// The counters of one side of a ring: the producer or the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Number of messages sent by the producer, or read by the consumer.
    pub messages: u64,
    /// Total bytes of the messages sent or read.
    pub bytes: u64,
    /// Number of messages dropped: not sent because the ring was full, or skipped by the consumer.
    pub drops: u64,
    /// Number of sleeps while waiting for the other side of the ring.
    pub waits: u64,
    /// Time of the last message sent or read, as the caller set it (see [`Producer::at`](super::Producer::at)).
    pub last: u64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl Telemetry {
    /// Size in bytes: a cache line.
    pub const BYTES: usize = 64;

    words_new! {
        /// Telemetry that is all zero.
        pub fn new() -> Self {
            Self {
                sequence: AtomicU32::new(0),
                _pad: 0,
                numbers: [
                    [AtomicU32::new(0), AtomicU32::new(0)],
                    [AtomicU32::new(0), AtomicU32::new(0)],
                    [AtomicU32::new(0), AtomicU32::new(0)],
                    [AtomicU32::new(0), AtomicU32::new(0)],
                    [AtomicU32::new(0), AtomicU32::new(0)],
                ],
                _rest: [0; 4],
            }
        }
    }

    /// Zeroes all numbers. Caller must exclude writers.
    pub(super) fn reset(&self) {
        self.write(&RingCounters::default());
    }

    /// Writes all counters. Caller must be the only writer.
    pub(super) fn write(&self, counted: &RingCounters) {
        let round = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence.store(round.wrapping_add(1), Ordering::Relaxed);
        let RingCounters { messages, bytes, drops, waits, last } = *counted;
        for (number, value) in self.numbers.iter().zip([messages, bytes, drops, waits, last]) {
            number[0].store(value as u32, number_order());
            number[1].store((value >> 32) as u32, number_order());
        }
        self.sequence.store(round.wrapping_add(2), Ordering::Release);
    }

    /// Reads all counters consistently; `None` if a write interfered with each try.
    pub fn snapshot(&self) -> Option<RingCounters> {
        (0..TRIES).find_map(|_| {
            let seen = self.look();
            if seen.is_none() {
                spin_hint();
            }
            seen
        })
    }

    /// Tries once to read all counters consistently.
    fn look(&self) -> Option<RingCounters> {
        let round = self.sequence.load(Ordering::Acquire);
        let [messages, bytes, drops, waits, last] = [0, 1, 2, 3, 4].map(|at| {
            let [low, high] = &self.numbers[at];
            u64::from(low.load(Ordering::Acquire)) | u64::from(high.load(Ordering::Acquire)) << 32
        });
        let undisturbed = round.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == round;
        undisturbed.then_some(RingCounters { messages, bytes, drops, waits, last })
    }
}
