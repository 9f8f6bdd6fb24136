//! How a driver's streams, events, pages and memory are named.
//!
//! Promises upward: plain values; what they name is its maker's to keep alive.

/// A stream as the driver names it: a handle, which a driver may use again after the stream is destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// An event as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent(pub u64);

/// One page of physical memory as the driver names it.
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
pub enum Kind {
    /// The device's own.
    Device,
    /// The device's own, by way of the driver's pool.
    Pool,
    /// The host's, which the device can reach.
    Pinned,
    /// Either's, one address.
    Managed,
}
