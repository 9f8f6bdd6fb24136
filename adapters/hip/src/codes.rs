//! HIP's result codes: the name and the [`FaultReason`] of each.
//!
//! Promises upward: any number is accepted; a code that is not listed has no name.
//! Asks from below: nothing. Numbers and names are those of `hip_runtime_api.h` of ROCm 7.14 (in 6.2, 1054 was `hipErrorTbd`);
//! where a number has two names, the first.

use terrace_device::FaultReason;

/// The reason for which HIP returns a code.
pub fn reason_of(code: i32) -> FaultReason {
    match code {
        // 1052: the runtime's own memory.
        2 | 1052 => FaultReason::OutOfMemory,
        217 | 801 => FaultReason::Unsupported,
        35 => FaultReason::Missing,
        // An address of no memory of a device; a handle.
        17 | 400 => FaultReason::BadHandle,
        3 | 4 | 201 | 709 => FaultReason::Lost,
        // Memory is unreliable; a kernel's fault, after which the device answers nothing else.
        214 | 700 | 702 | 710 | 719 => FaultReason::Lost,
        900..=908 => FaultReason::Capturing,
        600 => FaultReason::Transient,
        _ => FaultReason::Other,
    }
}

/// Advice to the user for a code with which opening a device failed; empty if there is none.
pub fn advice(code: i32) -> &'static str {
    match code {
        2 => "the device has no memory left: end another process that uses it",
        35 => "the kernel's driver is older than the library: update amdgpu",
        100 | 101 => "look at `rocminfo`, and whether you may use /dev/kfd (group `render`)",
        _ => "",
    }
}

/// Codes and their names, sorted by code for binary search.
pub const NAMES: &[(i32, &str)] = &[
    (1, "hipErrorInvalidValue"),
    (2, "hipErrorOutOfMemory"),
    (3, "hipErrorNotInitialized"),
    (4, "hipErrorDeinitialized"),
    (5, "hipErrorProfilerDisabled"),
    (6, "hipErrorProfilerNotInitialized"),
    (7, "hipErrorProfilerAlreadyStarted"),
    (8, "hipErrorProfilerAlreadyStopped"),
    (9, "hipErrorInvalidConfiguration"),
    (12, "hipErrorInvalidPitchValue"),
    (13, "hipErrorInvalidSymbol"),
    (17, "hipErrorInvalidDevicePointer"),
    (21, "hipErrorInvalidMemcpyDirection"),
    (35, "hipErrorInsufficientDriver"),
    (52, "hipErrorMissingConfiguration"),
    (53, "hipErrorPriorLaunchFailure"),
    (98, "hipErrorInvalidDeviceFunction"),
    (100, "hipErrorNoDevice"),
    (101, "hipErrorInvalidDevice"),
    (200, "hipErrorInvalidImage"),
    (201, "hipErrorInvalidContext"),
    (202, "hipErrorContextAlreadyCurrent"),
    (205, "hipErrorMapFailed"),
    (206, "hipErrorUnmapFailed"),
    (207, "hipErrorArrayIsMapped"),
    (208, "hipErrorAlreadyMapped"),
    (209, "hipErrorNoBinaryForGpu"),
    (210, "hipErrorAlreadyAcquired"),
    (211, "hipErrorNotMapped"),
    (212, "hipErrorNotMappedAsArray"),
    (213, "hipErrorNotMappedAsPointer"),
    (214, "hipErrorECCNotCorrectable"),
    (215, "hipErrorUnsupportedLimit"),
    (216, "hipErrorContextAlreadyInUse"),
    (217, "hipErrorPeerAccessUnsupported"),
    (218, "hipErrorInvalidKernelFile"),
    (219, "hipErrorInvalidGraphicsContext"),
    (300, "hipErrorInvalidSource"),
    (301, "hipErrorFileNotFound"),
    (302, "hipErrorSharedObjectSymbolNotFound"),
    (303, "hipErrorSharedObjectInitFailed"),
    (304, "hipErrorOperatingSystem"),
    (400, "hipErrorInvalidHandle"),
    (401, "hipErrorIllegalState"),
    (500, "hipErrorNotFound"),
    (600, "hipErrorNotReady"),
    (700, "hipErrorIllegalAddress"),
    (701, "hipErrorLaunchOutOfResources"),
    (702, "hipErrorLaunchTimeOut"),
    (704, "hipErrorPeerAccessAlreadyEnabled"),
    (705, "hipErrorPeerAccessNotEnabled"),
    (708, "hipErrorSetOnActiveProcess"),
    (709, "hipErrorContextIsDestroyed"),
    (710, "hipErrorAssert"),
    (712, "hipErrorHostMemoryAlreadyRegistered"),
    (713, "hipErrorHostMemoryNotRegistered"),
    (719, "hipErrorLaunchFailure"),
    (720, "hipErrorCooperativeLaunchTooLarge"),
    (801, "hipErrorNotSupported"),
    (900, "hipErrorStreamCaptureUnsupported"),
    (901, "hipErrorStreamCaptureInvalidated"),
    (902, "hipErrorStreamCaptureMerge"),
    (903, "hipErrorStreamCaptureUnmatched"),
    (904, "hipErrorStreamCaptureUnjoined"),
    (905, "hipErrorStreamCaptureIsolation"),
    (906, "hipErrorStreamCaptureImplicit"),
    (907, "hipErrorCapturedEvent"),
    (908, "hipErrorStreamCaptureWrongThread"),
    (910, "hipErrorGraphExecUpdateFailure"),
    (911, "hipErrorInvalidChannelDescriptor"),
    (912, "hipErrorInvalidTexture"),
    (914, "hipErrorInvalidResourceType"),
    (915, "hipErrorInvalidResourceConfiguration"),
    (916, "hipErrorStreamDetached"),
    (999, "hipErrorUnknown"),
    (1052, "hipErrorRuntimeMemory"),
    (1053, "hipErrorRuntimeOther"),
    (1054, "hipErrorInvalidClusterSize"),
    (1055, "hipErrorTbd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn what_differs_from_cuda_has_hip_s_meaning() {
        // CUDA's 911 is a device that left the bus, HIP's a bad description of a texture.
        assert_eq!(
            [911, 17, 35, 1052, 12345].map(reason_of),
            [
                FaultReason::Other,
                FaultReason::BadHandle,
                FaultReason::Missing,
                FaultReason::OutOfMemory,
                FaultReason::Other,
            ]
        );
        assert!(!advice(100).is_empty() && advice(1).is_empty());
    }
}
