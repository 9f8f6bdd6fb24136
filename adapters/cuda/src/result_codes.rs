//! CUDA's result codes: the name and the [`FaultReason`] of each.
//!
//! Promises upward: any number is accepted; a code of a driver newer than this table has no name and is [`FaultReason::Other`].
//! No function here calls the driver, so an error can be displayed after the driver has shut down.
//! Asks from below: nothing. Numbers and names are those of the header `cuda.h`; the tests compare them with cudarc's.

use std::ffi::c_int;
use terrace_device::{Fault, FaultReason};

/// The result of a driver function: 0 for success, else an error code.
///
/// Not an enum, because a newer driver may return a code that is not listed here.
pub type Code = c_int;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const NOT_INITIALIZED: Code = 3;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const NOT_READY: Code = 600;
pub const PEER_ACCESS_ALREADY_ENABLED: Code = 704;

/// Converts a size in bytes to the driver's `size_t`; a size that does not fit counts as out of memory.
pub fn size(call: &'static str, bytes: u64) -> Result<usize, Fault> {
    usize::try_from(bytes).map_err(|_| Fault::of(call, FaultReason::OutOfMemory))
}

/// The reason for which the driver returns a code.
pub fn reason_of(code: Code) -> FaultReason {
    match code {
        2 => FaultReason::OutOfMemory,
        // Peer access unsupported, operation not permitted, operation not supported.
        217 | 800 | 801 => FaultReason::Unsupported,
        36 => FaultReason::Missing,
        400 => FaultReason::BadHandle,
        // The driver shut down; in a forked child `DriverFunctions` says so.
        NOT_INITIALIZED | 4 => FaultReason::Lost,
        // What counts is said in our own context or without one, so an invalid context means that ours was destroyed.
        201 | 709 => FaultReason::Lost,
        // The device is unusable or its data unreliable: taken by another process, ECC or NVLink error, MPS client
        // terminated.
        46 | 214 | 220 | 226 | 911 | 810 => FaultReason::Lost,
        // A kernel fault, which destroys the context: bad address, timeout, assertion, stack overflow, bad instruction.
        700 | 702 | 710 | 714..=719 | 721 => FaultReason::Lost,
        900..=908 => FaultReason::Capturing,
        // Not ready (queued work, the system, the MPS server or the fabric), or a timeout.
        NOT_READY | 802 | 807 | 909 | 919 => FaultReason::Transient,
        _ => FaultReason::Other,
    }
}

/// Changes the reason of a fault with code "invalid value" to a bad handle.
///
/// For calls whose only values are handles and addresses: the driver does not know one of them.
pub fn as_bad_handle(fault: Fault) -> Fault {
    if fault.code == INVALID_VALUE { Fault { reason: FaultReason::BadHandle, ..fault } } else { fault }
}

/// Advice to the user for a code with which opening a device failed; empty if there is none.
pub fn advice(code: Code) -> &'static str {
    match code {
        2 => "the device has no memory left for a context: end another process that uses it",
        34 => "the library is the toolkit's stub: take its `stubs` folder out of the library path, install the driver",
        46 => "another process has the device for itself: see `nvidia-smi -q -d COMPUTE`",
        304 => "no access to the device files: look at the rights of /dev/nvidia*, or give the container its devices",
        802 => "a part of the system is not ready: on machines with NVSwitch, start nvidia-fabricmanager",
        803 => "the driver's library and its kernel module are of different versions: restart the machine",
        804 => "the compatibility package does not support this device: use the library that came with the driver",
        805..=809 => "the MPS server cannot be used: look at its log",
        999 => "the kernel module may be missing: try `nvidia-modprobe -u`, or restart the machine",
        _ => "",
    }
}

/// Codes and their names, sorted by code for binary search.
pub const NAMES: &[(Code, &str)] = &[
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (5, "CUDA_ERROR_PROFILER_DISABLED"),
    (6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED"),
    (7, "CUDA_ERROR_PROFILER_ALREADY_STARTED"),
    (8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED"),
    (34, "CUDA_ERROR_STUB_LIBRARY"),
    (36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (47, "CUDA_ERROR_MULTICAST_RESOURCE_FULL"),
    (100, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (102, "CUDA_ERROR_DEVICE_NOT_LICENSED"),
    (200, "CUDA_ERROR_INVALID_IMAGE"),
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"),
    (205, "CUDA_ERROR_MAP_FAILED"),
    (206, "CUDA_ERROR_UNMAP_FAILED"),
    (207, "CUDA_ERROR_ARRAY_IS_MAPPED"),
    (208, "CUDA_ERROR_ALREADY_MAPPED"),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    (210, "CUDA_ERROR_ALREADY_ACQUIRED"),
    (211, "CUDA_ERROR_NOT_MAPPED"),
    (212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY"),
    (213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (215, "CUDA_ERROR_UNSUPPORTED_LIMIT"),
    (216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"),
    (217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    (218, "CUDA_ERROR_INVALID_PTX"),
    (219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    (221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    (223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"),
    (224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY"),
    (225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC"),
    (226, "CUDA_ERROR_CONTAINED"),
    (227, "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION"),
    (300, "CUDA_ERROR_INVALID_SOURCE"),
    (301, "CUDA_ERROR_FILE_NOT_FOUND"),
    (302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"),
    (303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"),
    (304, "CUDA_ERROR_OPERATING_SYSTEM"),
    (400, "CUDA_ERROR_INVALID_HANDLE"),
    (401, "CUDA_ERROR_ILLEGAL_STATE"),
    (402, "CUDA_ERROR_LOSSY_QUERY"),
    (500, "CUDA_ERROR_NOT_FOUND"),
    (600, "CUDA_ERROR_NOT_READY"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    (703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING"),
    (704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"),
    (705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"),
    (708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (710, "CUDA_ERROR_ASSERT"),
    (711, "CUDA_ERROR_TOO_MANY_PEERS"),
    (712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"),
    (713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
    (718, "CUDA_ERROR_INVALID_PC"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"),
    (721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"),
    (800, "CUDA_ERROR_NOT_PERMITTED"),
    (801, "CUDA_ERROR_NOT_SUPPORTED"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    (805, "CUDA_ERROR_MPS_CONNECTION_FAILED"),
    (806, "CUDA_ERROR_MPS_RPC_FAILURE"),
    (807, "CUDA_ERROR_MPS_SERVER_NOT_READY"),
    (808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"),
    (809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"),
    (810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"),
    (811, "CUDA_ERROR_CDP_NOT_SUPPORTED"),
    (812, "CUDA_ERROR_CDP_VERSION_MISMATCH"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
    (902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"),
    (903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"),
    (904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"),
    (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"),
    (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
    (907, "CUDA_ERROR_CAPTURED_EVENT"),
    (908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"),
    (909, "CUDA_ERROR_TIMEOUT"),
    (910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"),
    (911, "CUDA_ERROR_EXTERNAL_DEVICE"),
    (912, "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
    (913, "CUDA_ERROR_FUNCTION_NOT_LOADED"),
    (914, "CUDA_ERROR_INVALID_RESOURCE_TYPE"),
    (915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"),
    (916, "CUDA_ERROR_KEY_ROTATION"),
    (917, "CUDA_ERROR_STREAM_DETACHED"),
    (918, "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE"),
    (919, "CUDA_ERROR_FABRIC_NOT_READY"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::CUDA;
    use cudarc::driver::sys::CUresult as Header;

    fn fault(call: &'static str, code: Code) -> Fault {
        CUDA.fault(call, code)
    }

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn codes_are_those_of_the_header() {
        let header = [
            Header::CUDA_ERROR_INVALID_VALUE,
            Header::CUDA_ERROR_OUT_OF_MEMORY,
            Header::CUDA_ERROR_NOT_INITIALIZED,
            Header::CUDA_ERROR_NO_DEVICE,
            Header::CUDA_ERROR_ILLEGAL_ADDRESS,
            Header::CUDA_ERROR_NOT_READY,
            Header::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            Header::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            Header::CUDA_ERROR_EXTERNAL_DEVICE,
            Header::CUDA_ERROR_UNKNOWN,
        ];
        for code in header {
            assert_eq!(fault("f", code as Code).name, format!("{code:?}"));
        }
        let ours = [INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE, NOT_READY, PEER_ACCESS_ALREADY_ENABLED];
        assert_eq!(ours, [header[0], header[2], header[3], header[5], header[6]].map(|code| code as Code));
    }

    #[test]
    fn unknown_codes_are_answers() {
        for code in [-1, 5000, Code::MAX, Code::MIN] {
            assert_eq!(fault("f", code), Fault { call: "f", code, name: "", reason: FaultReason::Other });
        }
    }

    #[test]
    fn reasons() {
        let expected = [
            (FaultReason::OutOfMemory, &[2][..]),
            (FaultReason::Unsupported, &[801, 800, 217]),
            (FaultReason::BadHandle, &[400]),
            (FaultReason::Capturing, &[900, 901, 902, 903, 904, 905, 906, 907, 908]),
            (FaultReason::Lost, &[3, 4, 46, 201, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 911]),
            (FaultReason::Transient, &[600, 802, 807, 909, 919]),
            (FaultReason::Other, &[1, 100, 101, 304, 500, 701, 704, 712, 999]),
        ];
        for (reason, codes) in expected {
            for &code in codes {
                assert_eq!(fault("f", code).reason, reason, "{code}");
            }
        }
        assert_eq!(as_bad_handle(fault("f", INVALID_VALUE)).reason, FaultReason::BadHandle);
        assert_eq!(as_bad_handle(fault("f", 700)).reason, FaultReason::Lost);
    }

    #[test]
    fn what_can_be_helped_has_an_advice_of_its_own() {
        let helped = [2, 34, 46, 304, 802, 803, 804, 999];
        let mut texts: Vec<_> =
            helped.into_iter().chain(805..=809).map(advice).filter(|text| !text.is_empty()).collect();
        assert_eq!(texts.len(), 13);
        texts.dedup();
        assert_eq!(texts.len(), 9, "one for all states of the MPS server");
        assert_eq!([1, 100, 801, 810, 998].map(advice), [""; 5]);
    }
}
