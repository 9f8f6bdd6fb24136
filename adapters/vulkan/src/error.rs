//! The errors of both faces.
//!
//! Promises upward: an error names what failed and what to do about it, and can be shown without a driver.
//! Asks from below: faults of calls.

use crate::table::MemoryUse;
use std::fmt;
use terrace_device::Fault;

/// Why memory could not be allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocationError {
    /// The request breaks a rule, which the text states.
    BadRequest(&'static str),
    /// None of the memory types that the resource may have serves the usage.
    NoMemoryType {
        /// The types that the resource may have: one bit each.
        type_bits: u32,
        /// From where it is to be used.
        usage: MemoryUse,
    },
    /// No memory type that serves has as much left.
    OutOfMemory {
        /// Bytes requested.
        asked: u64,
        /// The last memory type that was tried.
        type_index: u32,
        /// The largest free block in memory of that type which the allocator holds.
        largest_free: u64,
        /// What was refused: a call, or the limit that it would exceed.
        fault: Option<Fault>,
    },
    /// Vulkan refused a call for another reason.
    Driver(Fault),
}

impl fmt::Display for AllocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRequest(rule) => write!(f, "bad request: {rule}"),
            Self::NoMemoryType { type_bits, usage } => write!(
                f,
                "no memory type among the bits {type_bits:#b} serves {usage:?}; ask for another usage, or create the resource \
                 with another usage or tiling"
            ),
            Self::OutOfMemory { asked, type_index, largest_free, fault } => {
                write!(
                    f,
                    "out of memory: asked for {asked} bytes, the largest free block of memory type {type_index} has {largest_free}"
                )?;
                match fault {
                    Some(fault) => write!(f, "; more was refused: {fault}"),
                    None => Ok(()),
                }
            }
            Self::Driver(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for AllocationError {}

impl From<Fault> for AllocationError {
    fn from(fault: Fault) -> Self {
        Self::Driver(fault)
    }
}

/// Why a Vulkan device could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VulkanError {
    /// The Vulkan library is missing, cannot be loaded, or is another library.
    NoLibrary {
        /// What the system's loader said.
        detail: String,
    },
    /// The library or the driver lacks a function that every device needs.
    MissingFunction {
        /// Its name.
        name: &'static str,
    },
    /// The Vulkan library is older than version 1.2.
    OldLibrary {
        /// Its version: the first number.
        major: u32,
        /// The second number.
        minor: u32,
    },
    /// There is a Vulkan library, and no driver for it.
    NoDriver,
    /// The drivers have no such device.
    NoDevice {
        /// The requested ordinal.
        ordinal: u32,
        /// Number of devices that there are.
        found: u32,
    },
    /// The device lacks what terrace needs: Vulkan 1.2, timeline semaphores, a queue that computes.
    TooOld {
        /// Name of the device.
        device: String,
        /// What it lacks.
        lacks: &'static str,
    },
    /// A call was refused.
    Driver(Fault),
}

/// What to do about a missing library or driver.
const INSTALL: &str = "install the Vulkan loader and a driver (Debian: libvulkan1 and mesa-vulkan-drivers, or the package of the GPU's \
    vendor; VK_ICD_FILENAMES names the drivers that the loader takes)";

impl fmt::Display for VulkanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { detail } => write!(f, "no Vulkan library: {detail}; {INSTALL}, or use the host backend"),
            Self::MissingFunction { name } => {
                write!(f, "the Vulkan library or its driver has no function {name}; {INSTALL}")
            }
            Self::OldLibrary { major, minor } => {
                write!(f, "the Vulkan library is of version {major}.{minor}, and terrace needs 1.2; {INSTALL}")
            }
            Self::NoDriver => write!(f, "the Vulkan library finds no driver; {INSTALL}, or use the host backend"),
            Self::NoDevice { found: 0, .. } => {
                write!(f, "the Vulkan drivers see no device; {INSTALL}, or use the host backend")
            }
            Self::NoDevice { ordinal, found } => {
                write!(f, "there is no Vulkan device {ordinal}: the drivers see {found}, the last one is {}", found - 1)
            }
            Self::TooOld { device, lacks } => {
                write!(f, "{device} lacks {lacks}, which terrace needs; install a newer driver")
            }
            Self::Driver(fault) => write!(f, "the Vulkan device could not be opened: {fault}"),
        }
    }
}

impl std::error::Error for VulkanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Driver(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<Fault> for VulkanError {
    fn from(fault: Fault) -> Self {
        Self::Driver(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::{AllocationError, VulkanError};
    use crate::table::MemoryUse;
    use terrace_device::{Fault, FaultReason};

    #[test]
    fn messages_say_what_to_do() {
        let none = VulkanError::NoDevice { ordinal: 0, found: 0 }.to_string();
        assert!(none.contains("see no device") && none.contains("mesa-vulkan-drivers"), "{none}");
        let other = VulkanError::NoDevice { ordinal: 3, found: 2 }.to_string();
        assert_eq!(other, "there is no Vulkan device 3: the drivers see 2, the last one is 1");
        let none = AllocationError::NoMemoryType { type_bits: 0b101, usage: MemoryUse::Upload }.to_string();
        assert!(none.contains("bits 0b101 serves Upload"), "{none}");
        let fault = Some(Fault::of("maxMemoryAllocationCount", FaultReason::OutOfMemory));
        let full = AllocationError::OutOfMemory { asked: 4096, type_index: 1, largest_free: 256, fault }.to_string();
        assert!(
            full.contains("4096 bytes") && full.contains("memory type 1 has 256") && full.contains("AllocationCount"),
            "{full}"
        );
    }
}
