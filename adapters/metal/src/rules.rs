//! What Metal's documentation says in numbers and names.
//!
//! Promises upward: plain functions.
//! Asks from below: nothing.

use terrace_device::{Capabilities, Fault, FaultReason};

/// A region of memory begins at a multiple of this: [`Backend::take`](terrace_device::Backend::take) promises it.
const REGION_ALIGN: u64 = 256;

/// On macOS, offsets and sizes of a blit encoder's copies and fills are multiples of this.
const BLIT_ALIGN: u64 = 4;

/// What each device of Apple's own can do.
///
/// The host sees writes to shared storage once a command buffer is done: host and device take turns with managed memory.
pub const CAPABILITIES: Capabilities = Capabilities::INTEGRATED
    .union(Capabilities::MANAGED)
    .union(Capabilities::PINNED)
    .union(Capabilities::STREAM_NAMES)
    .union(Capabilities::BATCHES);

/// Whether a buffer at `address` may be a region.
pub fn is_region(address: u64) -> bool {
    address != 0 && address.is_multiple_of(REGION_ALIGN)
}

/// Whether a blit encoder takes these offsets, and this size in bytes.
pub fn is_blit(offsets: &[u64], bytes: u64) -> bool {
    bytes.is_multiple_of(BLIT_ALIGN) && offsets.iter().all(|offset| offset.is_multiple_of(BLIT_ALIGN))
}

/// The fault for a command buffer that ended with an error of this `MTLCommandBufferError`.
///
/// What the work should have written is unknown, and other work may have read it: the device counts as lost.
pub fn command_fault(code: i32) -> Fault {
    let name = match code {
        1 => "MTLCommandBufferErrorInternal",
        2 => "MTLCommandBufferErrorTimeout",
        3 => "MTLCommandBufferErrorPageFault",
        4 => "MTLCommandBufferErrorAccessRevoked",
        7 => "MTLCommandBufferErrorNotPermitted",
        8 => "MTLCommandBufferErrorOutOfMemory",
        9 => "MTLCommandBufferErrorInvalidResource",
        10 => "MTLCommandBufferErrorMemoryless",
        11 => "MTLCommandBufferErrorDeviceRemoved",
        12 => "MTLCommandBufferErrorStackOverflow",
        _ => "",
    };
    Fault { call: "commit", code, name, reason: FaultReason::Lost }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_device::Visibility;

    #[test]
    fn the_host_sees_writes_once_the_work_is_done() {
        assert_eq!(CAPABILITIES.visibility(), Visibility::Device);
        assert!(!CAPABILITIES.contains(Capabilities::SYNCHRONOUS), "work is in flight after its call");
    }

    #[test]
    fn a_blit_takes_whole_words_only() {
        assert!(is_blit(&[0, 4, 1 << 40], 12));
        for (offsets, bytes) in [([0, 4], 13), ([0, 2], 12), ([1, 0], 12), ([0, 0], 2)] {
            assert!(!is_blit(&offsets, bytes), "{offsets:?} {bytes}");
        }
    }

    #[test]
    fn a_region_begins_at_a_multiple_of_256() {
        assert!(is_region(256) && is_region(0x1_0000_0300));
        assert!(!is_region(0) && !is_region(128) && !is_region(0x1_0000_0310));
    }

    #[test]
    fn work_that_failed_is_fatal_and_told_by_metal_s_name() {
        let fault = command_fault(3);
        assert!(fault.is_fatal() && fault.to_string().contains("MTLCommandBufferErrorPageFault, code 3"), "{fault}");
        let unknown = command_fault(99);
        assert!(unknown.is_fatal() && unknown.to_string().contains("commit") && unknown.code == 99, "{unknown}");
    }
}
