//! Handles of a driver's streams, events and memory.
//!
//! Promises upward: plain values; the maker of the object behind a handle must keep it alive.
//!
//! In this crate each object has one owner, which destroys it when no code here uses it any more: a stream its
//! `StreamCore` (or the adopter, which promised the same) or its lane, an event its `EventTable`, lane or mark, physical
//! memory its `MappedPages`.

/// A driver's handle of a stream. A driver may reuse the handle after the stream is destroyed.
///
/// Any code can make a handle from any number, and a driver may dereference it as a pointer. So calls of a
/// [`Backend`](crate::Backend) that take handles are `unsafe`: each handle must be *live*, that is, returned by this
/// backend, and not destroyed or released since. A refused call destroyed nothing. A stream of the same device that
/// other code or the driver itself created is live as long as that code keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// A driver's handle of an event. See [`RawStream`] for when it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent(pub u64);

/// A driver's handle of physical memory, one page or many. See [`RawStream`] for when it is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PhysicalHandle(pub u64);

/// A byte of memory as the driver's own calls name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryPlace {
    /// The driver's handle of the memory object; 0 where memory has addresses.
    pub object: u64,
    /// Offset in the object; the address, where memory has addresses.
    pub offset: u64,
}

/// A copy: two address ranges of the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Address of the first byte that is written.
    pub to: u64,
    /// Address of the first byte that is read.
    pub from: u64,
    /// Size of each range in bytes.
    pub bytes: u64,
}

/// Kinds of memory that a backend allocates in whole regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The device's own memory.
    Device,
    /// The device's own memory, from the driver's memory pool.
    Pool,
    /// Pinned host memory, which the device can access.
    Pinned,
    /// Managed memory: one address for host and device.
    Managed,
}
