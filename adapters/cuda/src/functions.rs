//! The driver's functions: pointers looked up by name once per process, in groups of one capability each.
//!
//! Promises upward: a missing function is reported by the driver's name and the version that introduced it. No device
//! opens unless all of [`CoreFunctions`] exist; if a function of another group is missing, the group's capability is
//! off.
//! Asks from below: addresses by CUDA's exported names. Some end in `_v2`: the name without the ending is an old
//! function, which programs built for CUDA 3 call. A driver that mirrors CUDA's gives its own functions by these names.

use crate::dialect::{CUDA, Dialect};
use crate::error::{OpenError, OpenErrorReason};
use crate::layouts::{AccessDescriptor, CopyAttributes, MemoryLocation, PageProperties, PoolProperties};
use crate::library::{self, MissingSymbol};
use crate::result_codes::{self, Code};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemGenericAllocationHandle, CUmemoryPool, CUstream,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

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

            /// # Safety
            /// Each address that is found must be a function's, with CUDA's prototype of that name, and stay valid for ever.
            unsafe fn find(found: &Found<'_>) -> Result<Self, MissingSymbol> {
                Ok(Self { $($name: {
                    let address = found.address(stringify!($name), $since)?;
                    // SAFETY: the caller promises a function of this prototype, which is copied from `cuda.h`; pointers to
                    // functions have the size and the values of addresses.
                    unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "system" fn($($argument),*) -> Code>(address) }
                },)* })
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

/// Where functions are found, and how the driver calls them.
struct Found<'a> {
    dialect: &'static Dialect,
    address: &'a dyn Fn(&'static str) -> Option<NonNull<c_void>>,
}

impl Found<'_> {
    fn address(&self, symbol: &'static str, since: &'static str) -> Result<NonNull<c_void>, MissingSymbol> {
        let (own, came) = (self.dialect.own)(symbol, since);
        (self.address)(symbol).ok_or(MissingSymbol { symbol: own, since: came })
    }
}

/// All functions of a driver; a group with a missing function holds the first missing one.
pub struct DriverFunctions {
    pub(crate) dialect: &'static Dialect,
    /// The process that initialised the driver.
    initialized: OnceLock<Process>,
    pub(crate) core: CoreFunctions,
    pub(crate) pages: Result<PageFunctions, MissingSymbol>,
    pub(crate) pools: Result<PoolFunctions, MissingSymbol>,
    pub(crate) managed: Result<ManagedFunctions, MissingSymbol>,
    pub(crate) hints: Result<HintFunctions, MissingSymbol>,
    pub(crate) hints_by_location: Result<LocationHintFunctions, MissingSymbol>,
    pub(crate) registration: Result<RegistrationFunctions, MissingSymbol>,
    pub(crate) peers: Result<PeerFunctions, MissingSymbol>,
    pub(crate) batches: Result<BatchFunctions, MissingSymbol>,
    pub(crate) stream_ids: Result<StreamIdFunctions, MissingSymbol>,
    pub(crate) capture: Result<CaptureFunctions, MissingSymbol>,
}

impl std::fmt::Debug for DriverFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DriverFunctions").field(self.dialect).finish()
    }
}

impl DriverFunctions {
    /// Asks for the address of each function, by CUDA's exported name.
    ///
    /// # Errors
    /// [`OpenErrorReason::MissingSymbol`] if one is missing that every device needs.
    ///
    /// # Safety
    /// Each address must be a function's, with CUDA's prototype of that name, do what CUDA's documentation says of it, and stay valid
    /// as long as the process lives.
    pub unsafe fn find(
        dialect: &'static Dialect,
        address: &dyn Fn(&'static str) -> Option<NonNull<c_void>>,
    ) -> Result<Self, OpenError> {
        let found = Found { dialect, address };
        // SAFETY: the caller promises what each group asks.
        let core = unsafe { CoreFunctions::find(&found) };
        let missing = |MissingSymbol { symbol, since }| OpenErrorReason::MissingSymbol { symbol, since };
        Ok(Self {
            dialect,
            initialized: OnceLock::new(),
            core: core.map_err(|symbol| OpenError { driver: dialect, reason: missing(symbol) })?,
            // SAFETY: as above.
            pages: unsafe { PageFunctions::find(&found) },
            // SAFETY: as above.
            pools: unsafe { PoolFunctions::find(&found) },
            // SAFETY: as above.
            managed: unsafe { ManagedFunctions::find(&found) },
            // SAFETY: as above.
            hints: unsafe { HintFunctions::find(&found) },
            // SAFETY: as above.
            hints_by_location: unsafe { LocationHintFunctions::find(&found) },
            // SAFETY: as above.
            registration: unsafe { RegistrationFunctions::find(&found) },
            // SAFETY: as above.
            peers: unsafe { PeerFunctions::find(&found) },
            // SAFETY: as above.
            batches: unsafe { BatchFunctions::find(&found) },
            // SAFETY: as above.
            stream_ids: unsafe { StreamIdFunctions::find(&found) },
            // SAFETY: as above.
            capture: unsafe { CaptureFunctions::find(&found) },
        })
    }

    /// Turns the result code of a call, by CUDA's name, into a `Result`.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: Code) -> Result<(), Fault> {
        if code == result_codes::SUCCESS { Ok(()) } else { Err(self.refused(call, code)) }
    }

    #[cold]
    fn refused(&self, call: &'static str, code: Code) -> Fault {
        (self.dialect.refused)();
        let fault = self.dialect.fault(call, code);
        // A device makes calls only after the driver was initialised: so this is a forked child, or the driver has shut down.
        let forked = code == result_codes::NOT_INITIALIZED && self.check_process().is_err();
        if forked { Fault { reason: FaultReason::Forked, ..fault } } else { fault }
    }

    /// Records that this process initialised the driver.
    pub(crate) fn mark_initialized(&self) {
        self.initialized.get_or_init(Process::current);
    }

    /// Fails in a child of the process that initialised the driver, where it does not work.
    pub(crate) fn check_process(&self) -> Result<(), Fault> {
        let own = self.initialized.get().is_none_or(|process| process.is_current());
        if own { Ok(()) } else { Err(Fault::of(self.dialect.name("cuInit"), FaultReason::Forked)) }
    }
}

/// Every function of the driver that this crate looks up, by CUDA's names.
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
        let reason = OpenErrorReason::NoLibrary { searched: library::searched_names() };
        return Err(OpenError { driver: &CUDA, reason });
    }
    // SAFETY: the library is available, is never unloaded, and exports CUDA's functions by their names.
    unsafe { DriverFunctions::find(&CUDA, &|symbol| library::address(symbol)) }
}

/// CUDA's functions, looked up by the first call.
///
/// Later calls return the first call's result, even if that was an error.
pub fn loaded() -> Result<&'static DriverFunctions, OpenError> {
    static LOADED: OnceLock<Result<DriverFunctions, OpenError>> = OnceLock::new();
    LOADED.get_or_init(find).as_ref().map_err(Clone::clone)
}
