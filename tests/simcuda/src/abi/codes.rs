//! Error codes that this driver gives, with the names and sentences of `cuGetErrorName` and `cuGetErrorString`.
//!
//! Upward: [`Code`] is what a call gives when it does not succeed; numbers from outside may be any.

use super::c_int;
use core::ffi::CStr;

/// What went wrong: a `CUresult` that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub c_int);

/// What a call gives.
pub type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident $number:literal $c:literal $text:literal)*) => {
        $(
            #[doc = concat!("`CUDA_ERROR_", stringify!($name), "`.")]
            #[allow(dead_code)] // some have only their text here
            pub const $name: Code = Code($number);
        )*
        /// Number, name in C, sentence.
        const TABLE: &[(c_int, &CStr, &CStr)] = &[(0, c"CUDA_SUCCESS", c"no error"), $(($number, $c, $text)),*];
    };
}

codes! {
    INVALID_VALUE 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument"
    OUT_OF_MEMORY 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory"
    NOT_INITIALIZED 3 c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error"
    DEINITIALIZED 4 c"CUDA_ERROR_DEINITIALIZED" c"driver shutting down"
    NO_DEVICE 100 c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected"
    INVALID_DEVICE 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal"
    INVALID_IMAGE 200 c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid"
    INVALID_CONTEXT 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context"
    UNSUPPORTED_LIMIT 215 c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"limit is not supported on this architecture"
    PEER_ACCESS_UNSUPPORTED 217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access is not supported between these two devices"
    INVALID_PTX 218 c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed"
    UNSUPPORTED_EXEC_AFFINITY 224 c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY" c"exec affinity is not supported"
    INVALID_HANDLE 400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle"
    ILLEGAL_STATE 401 c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state"
    NOT_FOUND 500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found"
    NOT_READY 600 c"CUDA_ERROR_NOT_READY" c"device not ready"
    ILLEGAL_ADDRESS 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered"
    LAUNCH_TIMEOUT 702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"the launch timed out and was terminated"
    PEER_ACCESS_ALREADY_ENABLED 704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access is already enabled"
    PEER_ACCESS_NOT_ENABLED 705 c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access has not been enabled"
    CONTEXT_IS_DESTROYED 709 c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed"
    HOST_MEMORY_ALREADY_REGISTERED 712 c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"part or all of the requested memory range is already mapped"
    HOST_MEMORY_NOT_REGISTERED 713 c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"pointer does not correspond to a registered memory region"
    LAUNCH_FAILED 719 c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure"
    NOT_PERMITTED 800 c"CUDA_ERROR_NOT_PERMITTED" c"operation not permitted"
    NOT_SUPPORTED 801 c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported"
    STREAM_CAPTURE_UNSUPPORTED 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"operation not permitted when stream is capturing"
    STREAM_CAPTURE_INVALIDATED 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"operation failed due to a previous error during capture"
    STREAM_CAPTURE_MERGE 902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"operation would result in a merge of separate capture sequences"
    STREAM_CAPTURE_UNMATCHED 903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"capture was not ended in the same stream as it began"
    STREAM_CAPTURE_UNJOINED 904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"capturing stream has unjoined work"
    STREAM_CAPTURE_ISOLATION 905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"dependency created on uncaptured work in another stream"
    STREAM_CAPTURE_IMPLICIT 906 c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"operation would make the legacy stream depend on a capturing blocking stream"
    CAPTURED_EVENT 907 c"CUDA_ERROR_CAPTURED_EVENT" c"operation not permitted on an event last recorded in a capturing stream"
    STREAM_CAPTURE_WRONG_THREAD 908 c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"attempt to terminate a thread-local capture sequence from another thread"
    INVALID_RESOURCE_TYPE 914 c"CUDA_ERROR_INVALID_RESOURCE_TYPE" c"invalid resource type"
    INVALID_RESOURCE_CONFIGURATION 915 c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" c"invalid resource configuration"
    STREAM_DETACHED 917 c"CUDA_ERROR_STREAM_DETACHED" c"operation not permitted on a stream in a detached state"
    UNKNOWN 999 c"CUDA_ERROR_UNKNOWN" c"unknown error"
}

/// Name in C and sentence of a code; `None` for numbers this table does not have.
pub fn describe(number: c_int) -> Option<(&'static CStr, &'static CStr)> {
    TABLE.iter().find(|(known, ..)| *known == number).map(|(_, name, text)| (*name, *text))
}
