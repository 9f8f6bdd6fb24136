//! A message ring in shared memory, between two cores, or a host and a device.
//!
//! Promises upward: one producer, one consumer; the consumer that peeks a message sees all writes before its commit. No
//! value from the peer is a loop bound or an index before it was checked: impossible counters and lengths are
//! [`RingError::Corrupt`]. A call costs a few instructions and one copy, or none ([`Producer::claim`],
//! [`Consumer::peek`]). Nothing is allocated.
//! Asks from below: `sync`; the caller lends the memory ([`RingMemory`]).
//!
//! ```text
//! byte 0        producer's line   written | states | magic version slots slot_bytes    \
//!      64       consumer's line   read                                                  > Header, 256 bytes
//!      128, 192 telemetry         of the producer, of the consumer                     /
//!      256      slots             [length|bytes......] [length|bytes......] ...
//!                                      ^ read % slots           ^ written % slots
//! ```
//!
//! `written` and `read` count messages modulo 2^32. A ring is empty when they are equal and full when they are `slots`
//! apart, so no slot is lost; `slots` is a power of two, so that the slot index is continuous when a counter wraps. All
//! words are in the byte order of the processor, which host and device share.
//!
//! Slots are atomic words, not bytes, because a device may write them at any time, and a `&[u8]` that changes while it is
//! read is undefined behaviour. The words are accessed with relaxed ordering; the counters order them.
//!
//! Where producer and consumer share no memory, each has its own, and a [`bridge`] copies between them.
//!
//! Invariants, at any time, if both sides use this module:
//! - `written - read <= slots`, modulo 2^32
//! - slots from `read` on, `written - read` of them, are the consumer's; all others are the producer's

/// Defines a `new` that is const, except under loom, whose atomics cannot be created at compile time.
macro_rules! words_new {
    ($(#[$about:meta])* pub fn new() -> Self $body:block) => {
        $(#[$about])*
        #[cfg(not(loom))]
        pub const fn new() -> Self $body

        $(#[$about])*
        #[cfg(loom)]
        pub fn new() -> Self $body
    };
}

mod backoff;
pub mod bridge;
mod consumer;
mod control;
mod error;
mod layout;
mod payload;
mod producer;
mod telemetry;

pub use backoff::{Backoff, Delay, NoDelay};
pub use consumer::{Consumer, Message};
pub use control::{Control, EndpointState, Header, MAGIC, VERSION};
pub use error::RingError;
pub use layout::RingLayout;
pub use producer::{Claim, Producer};
pub use telemetry::{RingCounters, Telemetry};

use crate::sync::{AtomicU32, Ordering};

/// The memory of a ring, which both sides can access.
///
/// Every call must return the same header and the same words; otherwise calls of the ring fail or panic.
pub trait RingMemory {
    /// The header.
    fn header(&self) -> &Header;

    /// The words of the slots, and after them those that a [`bridge`] needs.
    fn words(&self) -> &[AtomicU32];
}

impl<M: RingMemory + ?Sized> RingMemory for &M {
    fn header(&self) -> &Header {
        (**self).header()
    }

    fn words(&self) -> &[AtomicU32] {
        (**self).words()
    }
}

/// The memory of a ring in two lent pieces.
#[derive(Clone, Copy, Debug)]
pub struct LentRing<'a> {
    /// Counters and telemetry.
    pub header: &'a Header,
    /// The words of the slots.
    pub words: &'a [AtomicU32],
}

impl RingMemory for LentRing<'_> {
    fn header(&self) -> &Header {
        self.header
    }

    fn words(&self) -> &[AtomicU32] {
        self.words
    }
}

/// Initializes an empty ring in memory of any contents. Caller must be the only user of the memory.
///
/// # Errors
/// [`RingError::BadLayout`] when there are fewer words than the layout needs.
///
/// # Example
/// ```
/// use terrace_core::ring::{Consumer, Header, LentRing, Producer, RingLayout, create};
/// use terrace_core::sync::AtomicU32;
/// static HEADER: Header = Header::new();
/// static WORDS: [AtomicU32; 4 * 16] = [const { AtomicU32::new(0) }; 4 * 16];
/// let memory = LentRing { header: &HEADER, words: &WORDS };
/// create(&memory, RingLayout::new(4, 64)?)?;
/// let (mut producer, mut consumer) = (Producer::open(memory)?, Consumer::open(memory)?);
/// std::thread::spawn(move || producer.push(b"a message")).join().expect("no panic")?;
/// let mut bytes = [0; 60];
/// let length = consumer.pop(&mut bytes)?;
/// assert_eq!(&bytes[..length], b"a message");
/// # Ok::<(), terrace_core::ring::RingError>(())
/// ```
pub fn create(memory: &impl RingMemory, layout: RingLayout) -> Result<(), RingError> {
    layout.fits(memory.words().len())?;
    let header = memory.header();
    header.control.reset(layout);
    header.telemetry.iter().for_each(Telemetry::reset);
    // The magic is stored last, with Release: a side that loads it sees all writes above.
    header.control.magic.store(MAGIC, Ordering::Release);
    Ok(())
}

/// Reads the layout of a ring from its header, and checks it.
///
/// # Errors
/// [`RingError::Corrupt`] when there is no ring or one of another version; [`RingError::BadLayout`].
pub fn layout_of(memory: &impl RingMemory) -> Result<RingLayout, RingError> {
    let layout = memory.header().control.layout()?;
    layout.fits(memory.words().len())?;
    Ok(layout)
}
