//! The header that both sides share: 128 bytes of counters and states, and 64 bytes of telemetry for each side.
//!
//! Promises upward: sizes and offsets as documented here, checked at compile time; every bit pattern is valid, so any memory
//! can be read as a header; zeroed memory is not a ring.
//!
//! Each counter is on a cache line that only one side writes, so that a side loads the other's line only to read its
//! counter. The states are written twice in the life of a ring.

use super::error::{RingError, corrupt};
use super::layout::{HEADER_BYTES, RingLayout};
use super::telemetry::Telemetry;
use crate::sync::{AtomicU32, Ordering, seeded};

/// The magic number: "ring" as little-endian bytes.
pub const MAGIC: u32 = u32::from_le_bytes(*b"ring");
/// Version of this layout.
pub const VERSION: u32 = 1;

/// The state of a side: the producer or the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EndpointState {
    /// No endpoint is attached to the side.
    Free = 0,
    /// An endpoint is attached to the side.
    Taken = 1,
    /// The side has closed the ring.
    Closed = 2,
}

/// Release: publishes the messages that were sent before the side was closed.
#[inline(always)]
fn close_order() -> Ordering {
    if seeded("ring_close_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Counters, states and layout: two lines of 64 bytes.
///
/// A device reads and writes the fields by their offsets.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Control {
    /// Byte 0. Number of messages written, modulo 2^32; stored by the producer.
    pub written: AtomicU32,
    /// Byte 4. [`EndpointState`] of the producer.
    pub producer: AtomicU32,
    /// Byte 8. [`EndpointState`] of the consumer; on the producer's line, because the producer loads it for every message.
    pub consumer: AtomicU32,
    /// Byte 12. [`MAGIC`] if the memory has a ring.
    pub magic: AtomicU32,
    /// Byte 16. [`VERSION`].
    pub version: AtomicU32,
    /// Byte 20. Number of slots, a power of two.
    pub slots: AtomicU32,
    /// Byte 24. Bytes of a slot.
    pub slot_bytes: AtomicU32,
    /// Bytes 28 to 63: padding.
    _first: [u32; 9],
    /// Byte 64. Number of messages read, modulo 2^32; stored by the consumer.
    pub read: AtomicU32,
    /// Bytes 68 to 127: padding.
    _second: [u32; 15],
}

/// The header of a ring, before the slots.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Header {
    /// Counters, states and layout.
    pub control: Control,
    /// Telemetry of the producer and of the consumer.
    pub telemetry: [Telemetry; 2],
}

// Under loom, whose atomics are larger, the layout does not matter.
#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Control>() == 128 && align_of::<Control>() == 128);
    assert!(offset_of!(Control, written) == 0 && offset_of!(Control, read) == 64);
    assert!(offset_of!(Control, producer) == 4 && offset_of!(Control, consumer) == 8);
    assert!(offset_of!(Control, magic) == 12 && offset_of!(Control, version) == 16);
    assert!(offset_of!(Control, slots) == 20 && offset_of!(Control, slot_bytes) == 24);
    assert!(Control::BYTES + 2 * Telemetry::BYTES == HEADER_BYTES);
    assert!(size_of::<Header>() == HEADER_BYTES && offset_of!(Header, telemetry) == 128);
};

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

impl Control {
    /// Size in bytes.
    pub const BYTES: usize = 128;

    words_new! {
        /// Zeroed words, which are no ring yet.
        pub fn new() -> Self {
            Self {
                written: AtomicU32::new(0),
                producer: AtomicU32::new(0),
                consumer: AtomicU32::new(0),
                magic: AtomicU32::new(0),
                version: AtomicU32::new(0),
                slots: AtomicU32::new(0),
                slot_bytes: AtomicU32::new(0),
                _first: [0; 9],
                read: AtomicU32::new(0),
                _second: [0; 15],
            }
        }
    }

    /// Initializes all fields but the magic.
    pub(super) fn reset(&self, layout: RingLayout) {
        self.magic.store(0, Ordering::Relaxed);
        for word in [&self.written, &self.producer, &self.consumer, &self.read] {
            word.store(0, Ordering::Relaxed);
        }
        self.version.store(VERSION, Ordering::Relaxed);
        self.slots.store(layout.slots(), Ordering::Relaxed);
        self.slot_bytes.store(layout.slot_bytes(), Ordering::Relaxed);
    }

    /// Reads and checks the layout.
    pub(super) fn layout(&self) -> Result<RingLayout, RingError> {
        let magic = self.magic.load(Ordering::Acquire);
        let version = self.version.load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(corrupt("no ring was made here", magic));
        }
        if version != VERSION {
            return Err(corrupt("a ring of another version", version));
        }
        RingLayout::new(self.slots.load(Ordering::Relaxed), self.slot_bytes.load(Ordering::Relaxed))
    }
}

impl Default for Header {
    fn default() -> Self {
        Self::new()
    }
}

impl Header {
    /// Size in bytes: control, and telemetry of both sides.
    pub const BYTES: usize = HEADER_BYTES;

    words_new! {
        /// Zeroed words, which are no ring yet.
        pub fn new() -> Self {
            Self { control: Control::new(), telemetry: [Telemetry::new(), Telemetry::new()] }
        }
    }
}

/// Attaches an endpoint to a side. Acquire: it sees the writes of the endpoint that was attached before.
pub(super) fn attach(state: &AtomicU32) -> Result<(), RingError> {
    let taken = state.compare_exchange(
        EndpointState::Free as u32,
        EndpointState::Taken as u32,
        Ordering::Acquire,
        Ordering::Relaxed,
    );
    match taken {
        Ok(_) => Ok(()),
        Err(found) if found == EndpointState::Closed as u32 => Err(RingError::Closed),
        Err(_) => Err(RingError::Taken),
    }
}

/// Detaches the endpoint from a side, unless the side is closed.
pub(super) fn detach(state: &AtomicU32) {
    // Fails if the side is closed, and leaves it closed.
    let _ = state.compare_exchange(
        EndpointState::Taken as u32,
        EndpointState::Free as u32,
        Ordering::Release,
        Ordering::Relaxed,
    );
}

/// Marks a side as closed.
pub(super) fn close(state: &AtomicU32) {
    state.store(EndpointState::Closed as u32, close_order());
}

/// Whether a side is closed; if so, the writes of its endpoint before are visible.
pub(super) fn closed(state: &AtomicU32) -> bool {
    state.load(Ordering::Acquire) == EndpointState::Closed as u32
}
