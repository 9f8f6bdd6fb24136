//! Counters of a fallback buffer.
//!
//! Promises upward: a copy is counted once it is put on the stream; counting a hit reads no clock.
//! Asks from below: one counter for all buffers of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Moves of all fallback buffers so far: a logical clock. Relaxed: it orders no other memory access.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// Counters of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct FallbackStats {
    /// Bytes copied to the device.
    pub bytes_to_device: u64,
    /// Bytes copied to the host.
    pub bytes_to_host: u64,
    /// Number of copies to the device: one for each range.
    pub copies_to_device: u64,
    /// Number of copies to the host.
    pub copies_to_host: u64,
    /// Number of accesses that found the newest bytes where they needed them, and waited for nothing.
    pub hits: u64,
    /// Number of times the device used the host memory because the device had no room.
    pub fallbacks: u64,
    /// Time of the last access: the number of moves that all buffers of the process had made by then. Of two buffers,
    /// the one with the smaller number was used less recently.
    pub last_access: u64,
}

impl FallbackStats {
    /// Counts an access that moved nothing.
    #[inline]
    pub(super) fn hit(&mut self) {
        self.hits += 1;
        self.last_access = MOVES.load(Ordering::Relaxed);
    }

    /// Counts an access that may move bytes: advances the logical clock.
    pub(super) fn touch(&mut self) {
        self.last_access = MOVES.fetch_add(1, Ordering::Relaxed) + 1;
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes_to_device += bytes;
        self.copies_to_device += 1;
    }

    pub(super) fn fetched(&mut self, bytes: u64) {
        self.bytes_to_host += bytes;
        self.copies_to_host += 1;
    }
}
