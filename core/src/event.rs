//! Events of a recording (allocations, frees, transfers), and their encoding in bytes.
//!
//! Promises upward: one [`Event`] for replay, tracing, transfers and tiers; [`Encoder`] and [`Decoder`] turn it into 2
//! to [`EVENT_MAX`] bytes and back without loss. Decoding any bytes yields a record or a typed error.
//!
//!
//! A record in bytes (numbers are LEB128 varints, signed ones zigzag; [`VERSION`] 1):
//!
//! ```text
//! event   head  = kind | TIER << 4 | FROM << 5        (a flag set: the field follows)
//!         mask  = TIME ID ADDRESS BYTES ALIGN OWNER TAG SITE, bit 0 first
//!         then the fields whose bits are set, in that order, TIER and FROM last
//! text    head  = 15, id, length, UTF-8 bytes         (tags and call sites name texts by id)
//!
//! absent  TIME: same as the event before            ID: the newest block's (allocate: one more)
//!         ADDRESS: not known                        others: as in the last event of this kind
//! present TIME, ID, ADDRESS: difference             ALIGN: log2 + 1, 0 unknown    others: the value
//! ```
//!
//! Invariant: encoder and decoder have the same state after the same records; a refused call does not change that
//! state.

mod bytes;
mod codec;

use crate::allocator::Owner;
pub use bytes::{DecodeError, EncodeError};
pub use codec::{Decoder, Encoder};

/// Version of this encoding; a reader refuses all others.
pub const VERSION: u8 = 1;
/// Bytes of the longest event.
///
/// The sum: head, mask, four 64-bit varints (10 bytes each), three 32-bit (5), two 8-bit (2), the log2 (1).
pub const EVENT_MAX: usize = 2 + 4 * 10 + 3 * 5 + 2 * 2 + 1;
/// Maximum bytes of a text: a tag, or a call site with its path.
pub const TEXT_MAX: usize = 4096;
/// Bytes of the longest record: a text with its head and two varints of at most 5 bytes.
pub const RECORD_MAX: usize = 1 + 2 * 5 + TEXT_MAX;

/// The kind of an event. The number is its code in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A block was allocated; block ids count up from 0.
    #[default]
    Allocate = 0,
    /// A live block got a new size (and perhaps address); it keeps its id.
    Reallocate = 1,
    /// A block was freed.
    Free = 2,
    /// Bytes of a block were copied from tier `from_tier` to `tier`.
    Transfer = 3,
    /// A segment (`id`) was taken from the source.
    Take = 4,
    /// A segment was returned to the source.
    GiveBack = 5,
    /// Pages were mapped in an address range of a segment.
    Map = 6,
    /// Pages of an address range of a segment were unmapped.
    Unmap = 7,
    /// A moment to mark in a timeline; `tag` says which ("step 3").
    Mark = 8,
}

/// Number of kinds, which is also the lowest unused code.
const KINDS: usize = 9;

impl Kind {
    const ALL: [Self; KINDS] = [
        Self::Allocate,
        Self::Reallocate,
        Self::Free,
        Self::Transfer,
        Self::Take,
        Self::GiveBack,
        Self::Map,
        Self::Unmap,
        Self::Mark,
    ];
}

/// One event. Fields that do not apply to its kind are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the first event.
    pub time_us: u64,
    /// The kind of event.
    pub kind: Kind,
    /// Block id (segment id for `Take` to `Unmap`).
    pub id: u64,
    /// Address of the block or the range, where known.
    pub address: Option<u64>,
    /// Bytes requested, copied or mapped.
    pub bytes: u64,
    /// Alignment in bytes: a power of two, or 0 where not known.
    pub align: u64,
    /// The owner that caused the event: a thread, a core, a stream.
    pub owner: Owner,
    /// The block's tier after the event.
    pub tier: u8,
    /// The source tier of a transfer.
    pub from_tier: u8,
    /// Text id of the tag, 0 for none.
    pub tag: u32,
    /// Text id of the call site, 0 for none.
    pub site: u32,
}

/// One element of a recording: an event, or a text that events refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// An event.
    Event(Event),
    /// Defines `id` as the id of `text` in the events that follow.
    Text {
        /// The id that events refer to, from 1.
        id: u32,
        /// The text, at most [`TEXT_MAX`] bytes.
        text: &'a str,
    },
}
