//! What a device can do, found by trying each function, and which processors see writes to its memory.
//!
//! Promises upward: one set of bits for every backend; code above never asks a driver whether it can do something.
//! Asks from below: a backend tries each function once, when it is opened.

use bitflags::bitflags;

bitflags! {
    /// One bit for each function that was seen to work on the device.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// The backend can reserve address space, and map, move and unmap pages in it.
        const PAGES = 1;
        /// The driver has memory pools of its own, ordered by streams.
        const DRIVER_POOL = 1 << 1;
        /// Managed memory: one address for host and device.
        const MANAGED = 1 << 2;
        /// Host and device may use managed memory at the same time; it can be prefetched.
        const CONCURRENT_MANAGED = 1 << 3;
        /// Pinned host memory, which the device reads and writes without a copy.
        const PINNED = 1 << 4;
        /// The device can pin the user's own memory in place.
        const REGISTRATION = 1 << 5;
        /// This device can access the memory of at least one other device without going through the host.
        const PEERS = 1 << 6;
        /// The device has no memory of its own: it shares the host's.
        const INTEGRATED = 1 << 7;
        /// The device can access memory at any host address, without registration.
        const PAGEABLE = 1 << 8;
        /// Atomics of host and device on the same memory are atomic to each other.
        const HOST_ATOMICS = 1 << 9;
        /// Free memory is the system's `MemAvailable`, since the driver's figure counts the page cache as used.
        const FREE_IS_AVAILABLE = 1 << 10;
        /// Streams have ids that the driver never reuses.
        const STREAM_NAMES = 1 << 11;
        /// Work is done in order of call, before the call returns: nothing is ever in flight.
        const SYNCHRONOUS = 1 << 12;
        /// One call of the driver can put many copies on a stream.
        const BATCHES = 1 << 13;
        /// The device is the host's own processors, under whatever name.
        const PROCESSOR = 1 << 14;
    }
}

/// Where a write to managed memory is visible without a copy.
///
/// In each case, other processors see a kernel's writes only after a memory fence. It follows from what the device's driver says and
/// does when it is opened:
///
/// | machine | visibility | because |
/// | --- | --- | --- |
/// | Linux, a GPU with memory of its own | [`System`](Self::System) | host and device may use managed memory at once |
/// | Linux, Thor, GB10, Grace | `System` | the device reads the host's page tables |
/// | Jetson up to Orin | [`Device`](Self::Device) | they take turns with managed memory |
/// | Jetson whose GPU does not read the processor's caches | `Device` | as above; the program's own memory cannot be pinned either |
/// | WSL2, Windows | `Device` | as above: the system's driver moves memory |
/// | macOS (Metal), OpenCL's coarse-grained memory | `Device` | the host sees what a finished command wrote |
/// | a part of a GPU in a virtual machine | [`Copies`](Self::Copies) | there is no managed memory |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// On host and devices, even while kernels run.
    System,
    /// On host and device, but not at the same time: on the host once the stream is done.
    Device,
    /// On the device alone: bytes must be copied.
    Copies,
}

impl Capabilities {
    /// Where a write to managed memory of the device is visible without a copy.
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

/// What a device is and can do, found out once, when its backend is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Kind of backend: `cuda`, `host`.
    pub backend: &'static str,
    /// Number of the device within its backend.
    pub ordinal: u32,
    /// The device's name.
    pub name: String,
    /// Driver and its version, as shown to users: `CUDA 12.8`.
    pub driver: String,
    /// Total memory in bytes.
    pub total: u64,
    /// Size of a page in bytes where pages can be mapped, a power of two; 0 elsewhere.
    pub page_bytes: u64,
    /// Ordinals of the backend's other devices that can access this one's memory.
    pub peers: Vec<u32>,
    /// Ordinals of those that cannot.
    pub strangers: Vec<u32>,
    /// What the device can do.
    pub capabilities: Capabilities,
    /// Why the device lacks other capabilities: one sentence each, for users.
    pub notes: Vec<String>,
}

/// Free and total memory of a device at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that could still be allocated.
    pub free: u64,
    /// Bytes in total.
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
