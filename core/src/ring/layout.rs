//! The layout of a ring: number and size of its slots.

use super::error::RingError;

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u32>();
/// Bytes of a [`Header`](super::Header); `control` checks them at compile time.
pub(super) const HEADER_BYTES: usize = 256;

/// Number and size of the slots of a ring, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Number of slots: a power of two, at most [`RingLayout::MOST_SLOTS`].
    slots: u32,
    /// Bytes of a slot: a multiple of 4, from 8 to [`RingLayout::MOST_SLOT_BYTES`].
    slot_bytes: u32,
}

impl RingLayout {
    /// Maximum number of slots of a ring.
    ///
    /// Valid 32-bit counters are at most `slots` apart: with 2^30 slots, three quarters of all wrong values are
    /// detected.
    pub const MOST_SLOTS: u32 = 1 << 30;
    /// Maximum bytes of a slot: 1 GiB, so that the words of a slot fit into 32 bits.
    pub const MOST_SLOT_BYTES: u32 = 1 << 30;

    /// A ring of `slots` messages of at most `slot_bytes - 4` bytes: four bytes of a slot are the length.
    ///
    /// # Errors
    /// [`RingError::BadLayout`].
    pub const fn new(slots: u32, slot_bytes: u32) -> Result<Self, RingError> {
        if !slots.is_power_of_two() || slots > Self::MOST_SLOTS {
            return Err(RingError::BadLayout("the number of slots is a power of two, at most 2^30"));
        }
        if !slot_bytes.is_multiple_of(WORD as u32) || slot_bytes < 8 || slot_bytes > Self::MOST_SLOT_BYTES {
            return Err(RingError::BadLayout("a slot has a multiple of 4 bytes, from 8 to 2^30"));
        }
        Ok(Self { slots, slot_bytes })
    }

    /// Number of slots.
    pub const fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Bytes of the longest message.
    pub const fn longest(self) -> usize {
        self.slot_bytes as usize - WORD
    }

    /// Words of a slot.
    pub(super) const fn slot_words(self) -> usize {
        self.slot_bytes as usize / WORD
    }

    /// Words of all slots.
    pub const fn words(self) -> u64 {
        self.slots as u64 * self.slot_words() as u64
    }

    /// Bytes of header and slots.
    pub const fn bytes(self) -> u64 {
        HEADER_BYTES as u64 + self.words() * WORD as u64
    }

    /// Index of the slot for the message with number `counter`.
    pub(super) const fn index(self, counter: u32) -> usize {
        (counter & (self.slots - 1)) as usize
    }

    /// Checks that there are enough words for all slots.
    pub(super) const fn fits(self, words: usize) -> Result<(), RingError> {
        if self.words() > words as u64 {
            return Err(RingError::BadLayout("there are fewer words than the slots need"));
        }
        Ok(())
    }
}
