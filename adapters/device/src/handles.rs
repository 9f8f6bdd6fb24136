//! How a driver's streams, events, pages and memory are named.
//!
//! Promises upward: plain values; what they name is its maker's to keep alive.
//!
//! In this crate each has one owner, which destroys it when nothing here knows it any more: a stream its `StreamCore` (or the
//! adopter, which promised the same) or its lane, an event its `EventTable`, lane or mark, a page its `MappedPages`.

/// A stream as the driver names it: a handle, which a driver may reuse after a destroy.
///
/// Any code can make one of any number, and a driver may follow it as a pointer. So calls of a [`Backend`](crate::Backend) that
/// take handles are `unsafe`: each must be *live*, that is, given by this backend, and not destroyed or released since. A call
/// that was refused destroyed nothing. A stream of the same device that others made, or the driver itself, is live as long as
/// they keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// An event as the driver names it. See [`RawStream`] for when it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent(pub u64);

/// One page of physical memory as the driver names it. See [`RawStream`] for when it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page(pub u64);

/// Two ranges of addresses to copy between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The first byte that is written.
    pub to: u64,
    /// The first byte that is read.
    pub from: u64,
    /// How many.
    pub bytes: u64,
}

/// Kinds of memory that come in whole regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The device's own.
    Device,
    /// The device's own, by way of the driver's pool.
    Pool,
    /// The host's, which the device can reach.
    Pinned,
    /// Either's, one address.
    Managed,
}
