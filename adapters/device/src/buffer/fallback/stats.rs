//! What a buffer did.
//!
//! Promises upward: copies are counted when they were put on the stream; a hit costs no clock.
//! Asks from below: one number for all buffers of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Moves of all buffers so far. A number of its own: nothing else is ordered by it.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// Counters of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallbackStats {
    /// Bytes copied to the device.
    pub bytes_to_device: u64,
    /// Bytes copied to the host.
    pub bytes_to_host: u64,
    /// Copies to the device: one for each range.
    pub copies_to_device: u64,
    /// Copies to the host.
    pub copies_to_host: u64,
    /// Accesses that found the newest bytes where they were wanted, with nothing to wait for.
    pub hits: u64,
    /// Times the device used the host's memory because it had no room.
    pub fallbacks: u64,
    /// When it was last used: the moves that buffers of the process had made by then. Of two buffers, the one with the
    /// smaller number was used less recently.
    pub last_access: u64,
}

impl FallbackStats {
    /// An access that moved nothing.
    #[inline]
    pub(super) fn hit(&mut self) {
        self.hits += 1;
        self.last_access = MOVES.load(Ordering::Relaxed);
    }

    /// An access that may move something: a new moment.
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
