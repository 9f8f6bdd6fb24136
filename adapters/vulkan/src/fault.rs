//! Vulkan's result codes as faults.
//!
//! Promises upward: every code has a reason, known or not; the names of the codes that this crate can meet are told.
//! Asks from below: nothing.

use ash::vk;
use terrace_device::{Fault, FaultReason};

/// A refused call as a fault.
pub(crate) fn fault(call: &'static str, result: vk::Result) -> Fault {
    let (name, reason) = match result {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY => ("VK_ERROR_OUT_OF_HOST_MEMORY", FaultReason::OutOfMemory),
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => ("VK_ERROR_OUT_OF_DEVICE_MEMORY", FaultReason::OutOfMemory),
        // As many memory objects as there may be: freeing some helps.
        vk::Result::ERROR_TOO_MANY_OBJECTS => ("VK_ERROR_TOO_MANY_OBJECTS", FaultReason::OutOfMemory),
        vk::Result::ERROR_MEMORY_MAP_FAILED => ("VK_ERROR_MEMORY_MAP_FAILED", FaultReason::OutOfMemory),
        vk::Result::ERROR_DEVICE_LOST => ("VK_ERROR_DEVICE_LOST", FaultReason::Lost),
        vk::Result::ERROR_INITIALIZATION_FAILED => ("VK_ERROR_INITIALIZATION_FAILED", FaultReason::Other),
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => ("VK_ERROR_INCOMPATIBLE_DRIVER", FaultReason::Unsupported),
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => ("VK_ERROR_EXTENSION_NOT_PRESENT", FaultReason::Unsupported),
        vk::Result::ERROR_FEATURE_NOT_PRESENT => ("VK_ERROR_FEATURE_NOT_PRESENT", FaultReason::Unsupported),
        vk::Result::ERROR_LAYER_NOT_PRESENT => ("VK_ERROR_LAYER_NOT_PRESENT", FaultReason::Unsupported),
        vk::Result::TIMEOUT => ("VK_TIMEOUT", FaultReason::Transient),
        vk::Result::NOT_READY => ("VK_NOT_READY", FaultReason::Transient),
        _ => ("", FaultReason::Other),
    };
    Fault { call, code: result.as_raw(), name, reason }
}

#[cfg(test)]
mod tests {
    use super::fault;
    use ash::vk;
    use terrace_device::FaultReason;

    #[test]
    fn a_code_has_a_reason_and_is_told() {
        let reason = |result| fault("vkAllocateMemory", result).reason;
        assert_eq!(reason(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY), FaultReason::OutOfMemory);
        assert_eq!(reason(vk::Result::ERROR_TOO_MANY_OBJECTS), FaultReason::OutOfMemory);
        assert_eq!(reason(vk::Result::ERROR_DEVICE_LOST), FaultReason::Lost);
        let unknown = fault("vkQueueSubmit", vk::Result::from_raw(-77)).to_string();
        assert_eq!(unknown, "vkQueueSubmit: failed (code -77)");
        let known = fault("vkAllocateMemory", vk::Result::ERROR_OUT_OF_DEVICE_MEMORY).to_string();
        assert_eq!(known, "vkAllocateMemory: out of memory (VK_ERROR_OUT_OF_DEVICE_MEMORY, code -2)");
    }
}
