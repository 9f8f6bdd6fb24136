//! The driver's functions: pointers looked up by name once per process, in groups of one capability each.
//!
//! Promises upward: a missing function is reported by name and by the version of CUDA that introduced it. No device
//! opens unless all of [`CoreFunctions`] exist; if a function of another group is missing, the group's capability is
//! off.
//! Asks from below: the library, searched by exported names. Some end in `_v2`: the name without the ending is an old
//! function, which programs built for CUDA 3 call.

use crate::error::OpenError;
use crate::layouts::{AccessDescriptor, CopyAttributes, MemoryLocation, PageProperties, PoolProperties};
use crate::library::{self, MissingSymbol};
use crate::result_codes::Code;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemGenericAllocationHandle, CUmemoryPool, CUstream,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

/// A function of the driver that this crate looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The exported name.
    pub symbol: &'static str,
    /// The version of CUDA that introduced the function.
    pub since: &'static str,
    /// Whether opening a device fails without the function.
    pub required: bool,
}

macro_rules! group {
    ($(#[$doc:meta])* $group:ident, required: $required:literal;
     $($name:ident($($argument:ty),*), $since:literal;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "each is found by this name")]
        pub struct $group {
            $(pub $name: unsafe extern "system" fn($($argument),*) -> Code,)*
        }

        impl $group {
            const FUNCTIONS: &'static [Function] =
                &[$(Function { symbol: stringify!($name), since: $since, required: $required }),*];

            fn find() -> Result<Self, MissingSymbol> {
                // SAFETY: the `find` below checks first that the library is available; the prototypes are copied from `cuda.h`.
                Ok(Self { $($name: unsafe { library::function(stringify!($name), $since) }?,)* })
            }
        }
    };
}

group! {
    /// Functions that every device needs.
    CoreFunctions, required: true;
    cuInit(c_uint), "2.0";
    cuDriverGetVersion(*mut c_int), "2.2";
    cuDeviceGet(*mut CUdevice, c_int), "2.0";
    cuDeviceGetCount(*mut c_int), "2.0";
    cuDeviceGetName(*mut c_char, c_int, CUdevice), "2.0";
    cuDeviceTotalMem_v2(*mut usize, CUdevice), "3.2";
    cuDeviceGetAttribute(*mut c_int, c_uint, CUdevice), "2.0";
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice), "7.0";
    cuDevicePrimaryCtxRelease_v2(CUdevice), "11.0";
    cuCtxGetCurrent(*mut CUcontext), "4.0";
    cuCtxSetCurrent(CUcontext), "4.0";
    cuCtxSynchronize(), "2.0";
    cuMemGetInfo_v2(*mut usize, *mut usize), "3.2";
    cuMemAlloc_v2(*mut CUdeviceptr, usize), "3.2";
    cuMemFree_v2(CUdeviceptr), "3.2";
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint), "2.2";
    cuMemFreeHost(*mut c_void), "2.0";
    cuStreamCreate(*mut CUstream, c_uint), "2.0";
    cuStreamDestroy_v2(CUstream), "4.0";
    cuStreamQuery(CUstream), "2.0";
    cuStreamSynchronize(CUstream), "2.0";
    cuStreamWaitEvent(CUstream, CUevent, c_uint), "3.2";
    cuEventCreate(*mut CUevent, c_uint), "2.0";
    cuEventDestroy_v2(CUevent), "4.0";
    cuEventRecord(CUevent, CUstream), "2.0";
    cuEventQuery(CUevent), "2.0";
    cuEventSynchronize(CUevent), "2.0";
    cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream), "4.0";
    cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream), "3.2";
}

group! {
    /// Reserve address ranges, create physical pages and map them.
    PageFunctions, required: false;
    cuMemGetAllocationGranularity(*mut usize, *const PageProperties, c_uint), "10.2";
    cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong), "10.2";
    cuMemAddressFree(CUdeviceptr, usize), "10.2";
    cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const PageProperties, c_ulonglong), "10.2";
    cuMemRelease(CUmemGenericAllocationHandle), "10.2";
    cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong), "10.2";
    cuMemUnmap(CUdeviceptr, usize), "10.2";
    cuMemSetAccess(CUdeviceptr, usize, *const AccessDescriptor, usize), "10.2";
}

group! {
    /// The driver's own memory pools.
    PoolFunctions, required: false;
    cuMemPoolCreate(*mut CUmemoryPool, *const PoolProperties), "11.2";
    cuMemPoolDestroy(CUmemoryPool), "11.2";
    cuMemPoolSetAttribute(CUmemoryPool, c_uint, *mut c_void), "11.2";
    cuMemPoolSetAccess(CUmemoryPool, *const AccessDescriptor, usize), "11.2";
    cuMemPoolTrimTo(CUmemoryPool, usize), "11.2";
    cuMemAllocFromPoolAsync(*mut CUdeviceptr, usize, CUmemoryPool, CUstream), "11.2";
    cuMemFreeAsync(CUdeviceptr, CUstream), "11.2";
}

group! {
    /// Allocation of managed memory.
    ManagedFunctions, required: false;
    cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint), "6.0";
}

group! {
    /// Prefetch and advice for managed memory, with the target given as a device ordinal.
    HintFunctions, required: false;
    cuMemPrefetchAsync(CUdeviceptr, usize, CUdevice, CUstream), "8.0";
    cuMemAdvise(CUdeviceptr, usize, c_uint, CUdevice), "8.0";
}

group! {
    /// Prefetch and advice with the target given as a location, for drivers without [`HintFunctions`].
    LocationHintFunctions, required: false;
    cuMemPrefetchAsync_v2(CUdeviceptr, usize, MemoryLocation, c_uint, CUstream), "12.2";
    cuMemAdvise_v2(CUdeviceptr, usize, c_uint, MemoryLocation), "12.2";
}

group! {
    /// Pinning of host memory that the program allocated itself.
    RegistrationFunctions, required: false;
    cuMemHostRegister_v2(*mut c_void, usize, c_uint), "6.5";
    cuMemHostUnregister(*mut c_void), "4.0";
}

group! {
    /// Access to other devices and copies between contexts.
    PeerFunctions, required: false;
    cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice), "4.0";
    cuCtxEnablePeerAccess(CUcontext, c_uint), "4.0";
    cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream), "4.0";
}

group! {
    /// Queues many copies by one call.
    ///
    /// The header of CUDA 13 maps this name to a `_v2` function without the last out parameter; the library still
    /// exports this one.
    BatchFunctions, required: false;
    cuMemcpyBatchAsync(
        *const CUdeviceptr, *const CUdeviceptr, *const usize, usize, *const CopyAttributes, *const usize, usize, *mut usize,
        CUstream
    ), "12.8";
}

group! {
    /// Ids of streams; the driver never reuses one.
    StreamIdFunctions, required: false;
    cuStreamGetId(CUstream, *mut c_ulonglong), "12.0";
}

group! {
    /// Detection of stream captures, and the capture mode of the calling thread.
    CaptureFunctions, required: false;
    cuStreamIsCapturing(CUstream, *mut c_uint), "10.0";
    cuThreadExchangeStreamCaptureMode(*mut c_uint), "10.1";
}

/// All functions of the loaded driver; a group with a missing function holds the first missing one.
pub struct DriverFunctions {
    pub core: CoreFunctions,
    pub pages: Result<PageFunctions, MissingSymbol>,
    pub pools: Result<PoolFunctions, MissingSymbol>,
    pub managed: Result<ManagedFunctions, MissingSymbol>,
    pub hints: Result<HintFunctions, MissingSymbol>,
    pub hints_by_location: Result<LocationHintFunctions, MissingSymbol>,
    pub registration: Result<RegistrationFunctions, MissingSymbol>,
    pub peers: Result<PeerFunctions, MissingSymbol>,
    pub batches: Result<BatchFunctions, MissingSymbol>,
    pub stream_ids: Result<StreamIdFunctions, MissingSymbol>,
    pub capture: Result<CaptureFunctions, MissingSymbol>,
}

/// Every function of the driver that this crate looks up.
///
/// A program can compare the list with a driver's exports and name what that driver lacks.
///
/// # Example
/// ```
/// let new: Vec<_> = terrace_cuda::functions().filter(|function| function.since == "12.0").collect();
/// assert_eq!(new.len(), 1);
/// assert_eq!(new[0].symbol, "cuStreamGetId");
/// assert!(!new[0].required);
/// ```
pub fn functions() -> impl Iterator<Item = &'static Function> {
    let groups = [
        CoreFunctions::FUNCTIONS,
        PageFunctions::FUNCTIONS,
        PoolFunctions::FUNCTIONS,
        ManagedFunctions::FUNCTIONS,
        HintFunctions::FUNCTIONS,
        LocationHintFunctions::FUNCTIONS,
        RegistrationFunctions::FUNCTIONS,
        PeerFunctions::FUNCTIONS,
        BatchFunctions::FUNCTIONS,
        StreamIdFunctions::FUNCTIONS,
        CaptureFunctions::FUNCTIONS,
    ];
    groups.into_iter().flatten()
}

fn find() -> Result<DriverFunctions, OpenError> {
    if !library::is_available() {
        return Err(OpenError::NoLibrary { searched: library::searched_names() });
    }
    let core =
        CoreFunctions::find().map_err(|MissingSymbol { symbol, since }| OpenError::MissingSymbol { symbol, since })?;
    Ok(DriverFunctions {
        core,
        pages: PageFunctions::find(),
        pools: PoolFunctions::find(),
        managed: ManagedFunctions::find(),
        hints: HintFunctions::find(),
        hints_by_location: LocationHintFunctions::find(),
        registration: RegistrationFunctions::find(),
        peers: PeerFunctions::find(),
        batches: BatchFunctions::find(),
        stream_ids: StreamIdFunctions::find(),
        capture: CaptureFunctions::find(),
    })
}

/// The driver's functions, looked up by the first call.
///
/// Later calls return the first call's result, even if that was an error.
pub fn loaded() -> Result<&'static DriverFunctions, OpenError> {
    static LOADED: OnceLock<Result<DriverFunctions, OpenError>> = OnceLock::new();
    LOADED.get_or_init(find).as_ref().map_err(Clone::clone)
}
