//! Messages between two that share memory and little else: two cores, or a host and a device.
//!
//! Promises upward: one producer, one consumer; what was written before a commit is read after the peek that finds it.
//! No call here loops on what the peer wrote or indexes by it: counters and lengths that cannot be are
//! [`RingError::Corrupt`]. A call costs a handful of instructions and one copy, or none ([`Producer::claim`],
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
//! apart, so no slot is lost; `slots` is a power of two, so that the slot of a counter does not jump when it wraps. All
//! words are in the order of the processor, which host and device share.
//!
//! Why slots are atomic words and not bytes: a device may write to them at any time, and a `&[u8]` that changes while
//! it is read is undefined behaviour. Words are read and written one by one, without order among each other; the
//! counters give the order.
//!
//! Where two do not see the same memory, each has its own and a [`bridge`] copies between them.
//!
//! Invariants, at any time, while both sides are ours:
//! - `written - read <= slots`, modulo 2^32
//! - slots from `read` on, `written - read` of them, are the consumer's; all others are the producer's

/// A `new` that is const, but not under loom, whose atomics are made at run time.
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

/// The memory of a ring: what both sides reach.
///
/// It gives the same header and the same words at every call; one that does not makes errors or a panic, nothing worse.
pub trait RingMemory {
    /// Counters and telemetry.
    fn header(&self) -> &Header;

    /// The slots, and behind them what a [`bridge`] needs.
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

/// Memory lent in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct LentRing<'a> {
    /// Counters and telemetry.
    pub header: &'a Header,
    /// The slots.
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

/// Makes a ring of memory, empty, whatever it was before. Caller must be its only user.
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
    // Last, and with all of the above: a side that finds the magic finds a ring.
    header.control.magic.store(MAGIC, Ordering::Release);
    Ok(())
}

/// The layout of a ring, as its header says, if it can be.
///
/// # Errors
/// [`RingError::Corrupt`] when there is no ring or one of another version; [`RingError::BadLayout`].
pub fn layout_of(memory: &impl RingMemory) -> Result<RingLayout, RingError> {
    let layout = memory.header().control.layout()?;
    layout.fits(memory.words().len())?;
    Ok(layout)
}
