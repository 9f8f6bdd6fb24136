//! What a device can do, found by trying, and which sides see its memory.
//!
//! Promises upward: one table of bits for every backend; nothing above asks a driver whether it can.
//! Asks from below: a backend tries each once, when it is opened.

use bitflags::bitflags;

bitflags! {
    /// One bit for each thing a device was seen to do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Address space can be reserved and pages mapped under it, moved and unmapped.
        const PAGES = 1;
        /// The driver has pools of its own, in stream order.
        const DRIVER_POOL = 1 << 1;
        /// Managed memory: one address for host and device.
        const MANAGED = 1 << 2;
        /// Host and device may use managed memory at the same time; it can be prefetched.
        const CONCURRENT_MANAGED = 1 << 3;
        /// Host memory that the device reads and writes itself.
        const PINNED = 1 << 4;
        /// The user's own memory can be pinned.
        const REGISTRATION = 1 << 5;
        /// At least one other device can be reached without going through the host.
        const PEERS = 1 << 6;
        /// The device has no memory of its own: it shares the host's.
        const INTEGRATED = 1 << 7;
        /// Any host address can be used on the device, without registration.
        const PAGEABLE = 1 << 8;
        /// Atomics of host and device on the same memory are atomic to each other.
        const HOST_ATOMICS = 1 << 9;
        /// Free memory is the system's `MemAvailable`: what the driver calls free counts the page cache as used.
        const FREE_IS_AVAILABLE = 1 << 10;
        /// Streams have names that are never used twice.
        const STREAM_NAMES = 1 << 11;
        /// Work is done in order of call, before the call returns: nothing is ever in flight.
        const SYNCHRONOUS = 1 << 12;
        /// Many copies are one call of the driver.
        const BATCHES = 1 << 13;
    }
}

/// How far a write is seen without a copy.
///
/// What a kernel wrote is seen by others after a fence in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// By host and devices alike, while kernels run.
    System,
    /// By host and device, but not at the same time: after the stream is done.
    Device,
    /// By the device alone: bytes are copied.
    Copies,
}

impl Capabilities {
    /// Which sides see managed memory of the device without a copy.
    ///
    /// # Example
    /// ```
    /// use terrace_device::{Capabilities, Visibility};
    /// assert_eq!(Capabilities::MANAGED.visibility(), Visibility::Device);
    /// assert_eq!(Capabilities::empty().visibility(), Visibility::Copies);
    /// ```
    pub const fn visibility(self) -> Visibility {
        if self.contains(Self::SYNCHRONOUS) || self.contains(Self::CONCURRENT_MANAGED) {
            Visibility::System
        } else if self.contains(Self::MANAGED) {
            Visibility::Device
        } else {
            Visibility::Copies
        }
    }
}

/// What a backend is, found out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// MemoryKind of backend: `cuda`, `host`.
    pub backend: &'static str,
    /// Which of its devices.
    pub ordinal: u32,
    /// The device's own name.
    pub name: String,
    /// Driver and its version, as people say it: `CUDA 12.8`.
    pub driver: String,
    /// Bytes of memory in all.
    pub total: u64,
    /// Bytes of a page where pages can be mapped, a power of two; 0 elsewhere.
    pub page_bytes: u64,
    /// Other devices of the backend that can use this one's memory, by ordinal.
    pub peers: Vec<u32>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Why it cannot do the rest: a sentence each, for people.
    pub notes: Vec<String>,
}

/// Memory of a device as of now. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What could still be had.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_two_capabilities_makes_memory_visible_to_the_system() {
        let managed = Capabilities::MANAGED;
        for system in [Capabilities::SYNCHRONOUS, Capabilities::CONCURRENT_MANAGED] {
            assert_eq!(system.visibility(), Visibility::System);
            assert_eq!((managed | system).visibility(), Visibility::System);
        }
        assert_eq!(managed.visibility(), Visibility::Device);
        assert_eq!(Capabilities::PAGES.visibility(), Visibility::Copies);
    }
}
