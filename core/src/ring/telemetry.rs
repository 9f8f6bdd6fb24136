//! What a side did, in 64 bytes of its own: written by that side alone, read by any thread at any time.
//!
//! Promises upward: a snapshot is of one moment, or there is none; reading never waits, whatever the writer does.
//! Asks from below: one writer.
//!
//! `sequence` is odd while the writer is inside. Numbers are stored with Release and loaded with Acquire: a reader of
//! one of a later round also sees that the round had begun, and the second look at the sequence tells.

use crate::sync::{AtomicU32, Ordering, spin_hint};

/// What the numbers carry: that the round that wrote them had begun.
#[cfg(not(terrace_seeded_bug = "ring_telemetry_relaxed"))]
const NUMBER: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "ring_telemetry_relaxed")]
const NUMBER: Ordering = Ordering::Relaxed;

/// Numbers in a block.
const NUMBERS: usize = 5;
/// Tries of a snapshot: the writer is inside for some ten stores, so one that is in the way eight times in a row is a
/// device that lies, or one that writes more often than a reader can read. Loom tries every moment for one look.
#[cfg(not(loom))]
const TRIES: u32 = 8;
#[cfg(loom)]
const TRIES: u32 = 1;

/// One line of numbers.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Telemetry {
    /// Byte 0. Rounds of writing, two for each: even at rest.
    pub sequence: AtomicU32,
    /// Bytes 4 to 7: nothing.
    _pad: u32,
    /// Bytes 8 to 47. Messages, bytes, drops, waits, time of the last message: low word, high word.
    pub numbers: [[AtomicU32; 2]; NUMBERS],
    /// Bytes 48 to 63: nothing.
    _rest: [u32; 4],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Telemetry>() == Telemetry::BYTES && align_of::<Telemetry>() == 64);
    assert!(core::mem::offset_of!(Telemetry, numbers) == 8 && core::mem::offset_of!(Telemetry, _rest) == 48);
};

/// What a side did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Messages sent, or read.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages given up: sent into a full ring, or skipped unread.
    pub drops: u64,
    /// Times it slept for the other side.
    pub waits: u64,
    /// When the last message went through, by the clock of the side that told it (see
    /// [`Producer::at`](super::Producer::at)).
    pub last: u64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl Telemetry {
    /// Bytes of it: a line.
    pub const BYTES: usize = 64;

    words_new! {
        /// All zero.
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

    /// Writes all numbers. For the one writer.
    pub(super) fn write(&self, counted: &RingCounters) {
        let round = self.sequence.load(Ordering::Relaxed) & !1;
        self.sequence.store(round.wrapping_add(1), Ordering::Relaxed);
        let RingCounters { messages, bytes, drops, waits, last } = *counted;
        for (number, value) in self.numbers.iter().zip([messages, bytes, drops, waits, last]) {
            number[0].store(value as u32, NUMBER);
            number[1].store((value >> 32) as u32, NUMBER);
        }
        self.sequence.store(round.wrapping_add(2), Ordering::Release);
    }

    /// All numbers, of one moment. `None`: a write came between at each try.
    pub fn snapshot(&self) -> Option<RingCounters> {
        (0..TRIES).find_map(|_| {
            let seen = self.look();
            if seen.is_none() {
                spin_hint();
            }
            seen
        })
    }

    /// One try.
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
