//! The type [`OpenClBackend`]: a device, and what is allocated and queued on it.
//!
//! Promises upward: clones are the same device. The last one that is dropped lets go of queues and context; the drop never
//! panics, and does nothing in a forked child.
//! Asks from below: the connection, queues and the address space.

use crate::connection::Connection;
use crate::layouts::ClHandle;
use crate::memory::OpenClMemory;
use crate::queues::Queues;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use terrace_device::{Description, ObjectSpace};

/// An OpenCL device and a context of it.
///
/// A clone is the same device. A program keeps one beside its [`Device`](terrace_device::Device), for contexts and views.
///
/// The caller must free all memory, streams and events before the last clone is dropped. What is not freed stays allocated.
#[derive(Clone)]
pub struct OpenClBackend {
    pub(crate) inner: Arc<OpenClState>,
}

/// What clones share.
pub struct OpenClState {
    pub connection: Connection,
    pub memory: OpenClMemory,
    /// The version of OpenCL that the device offers: major, minor.
    pub version: (u32, u32),
    /// Flags of fine-grained memory: with atomics, where the device has them.
    pub fine: u64,
    /// Most bytes of one allocation.
    pub largest: u64,
    /// Sub-buffers begin at multiples of it.
    pub align: u64,
    /// A queue for maps and moves of fresh memory, each of which is waited for.
    pub queue: u64,
    pub queues: Queues,
    pub space: ObjectSpace<RegionMemory>,
    /// Bytes of the device's memory that are allocated.
    pub taken: AtomicU64,
    pub description: Description,
}

/// How a region is allocated; numbers as [`number`](crate::connection::number) makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionMemory {
    /// A buffer, at an address that no pointer has.
    Buffer { buffer: u64 },
    /// A buffer in the host's memory, mapped as long as it lives: known by the host's pointer. Its first byte is at `start`, which
    /// need not be aligned as regions are.
    Mapped { buffer: u64, start: u64 },
    /// Shared virtual memory, from `start` on.
    Svm { start: u64 },
}

impl std::fmt::Debug for OpenClBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenClBackend").field(&self.inner.memory).field(&self.inner.description).finish()
    }
}

impl OpenClBackend {
    /// What the device's memory is.
    pub fn memory_kind(&self) -> OpenClMemory {
        self.inner.memory
    }

    /// The context (`cl_context`), for programs and kernels. A caller that keeps it retains it.
    pub fn context(&self) -> ClHandle {
        self.inner.connection.context()
    }

    /// The device (`cl_device_id`).
    pub fn device_id(&self) -> ClHandle {
        self.inner.connection.device()
    }

    /// Sub-buffers begin at multiples of this many bytes.
    ///
    /// It is the least granule of a device with [`OpenClMemory::Buffers`].
    pub fn align(&self) -> u64 {
        self.inner.align
    }
}

impl Drop for OpenClState {
    fn drop(&mut self) {
        self.queues.close(&self.connection);
    }
}
