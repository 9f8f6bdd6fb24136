//! The table of functions: what the library exports, and since which driver.
//!
//! Upward: [`Function`] counts calls, arms failures and answers `cuGetProcAddress`.
//! From below: `api` has a function of each name.

use crate::api;

macro_rules! functions {
    ($(#[$doc:meta])* $($since:literal: $($name:ident)*;)*) => {
        /// A function of the driver.
        #[allow(non_camel_case_types, missing_docs, clippy::enum_variant_names)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Function { $($($name,)*)* }

        /// All of them.
        ///
        $(#[$doc])*
        pub const ALL: &[Function] = &[$($(Function::$name,)*)*];

        impl Function {
            /// Its exported name.
            pub fn name(self) -> &'static str {
                match self { $($(Function::$name => stringify!($name),)*)* }
            }

            /// The first driver that has it: 1000 times the major plus 10 times the minor version.
            pub fn since(self) -> i32 {
                match self { $($(Function::$name => $since,)*)* }
            }

            /// Where it is.
            pub fn address(self) -> *const () {
                match self { $($(Function::$name => api::$name as *const (),)*)* }
            }
        }
    };
}

functions! {
    /// Compared with NVIDIA's `cuda.h` and `cudaTypedefs.h` of CUDA 13.5, name by name: a type such as
    /// `PFN_cuMemAlloc_v3020` says since which driver a form of a function exists, and the macros of `cuda.h` say under
    /// which name it is exported. Forms of `_ptds` and `_ptsz`, whose default stream is the thread's, are left out.
    2000:
        cuInit cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetAttribute cuDeviceComputeCapability
        cuCtxGetDevice cuCtxSynchronize cuMemFreeHost cuStreamCreate cuStreamQuery cuStreamSynchronize cuEventCreate
        cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime cuModuleLoadData cuModuleUnload
        cuModuleGetFunction;
    2010:
        cuModuleLoadDataEx;
    2020:
        cuDriverGetVersion cuMemHostAlloc cuFuncGetAttribute;
    2030:
        cuMemHostGetFlags;
    3010:
        cuCtxGetLimit cuCtxSetLimit;
    3020:
        cuDeviceTotalMem_v2 cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemAllocHost_v2
        cuMemHostGetDevicePointer_v2 cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2
        cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemsetD8_v2 cuMemsetD8Async cuMemsetD32_v2 cuMemsetD32Async
        cuStreamWaitEvent cuCtxGetApiVersion cuCtxCreate_v2 cuMemAllocPitch_v2 cuMemcpy2D_v2
        cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuModuleGetGlobal_v2;
    4000:
        cuCtxGetCurrent cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuStreamDestroy_v2 cuEventDestroy_v2
        cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuDeviceCanAccessPeer cuCtxEnablePeerAccess
        cuCtxDisablePeerAccess cuPointerGetAttribute cuMemHostUnregister cuLaunchKernel cuCtxDestroy_v2
        cuProfilerStart cuProfilerStop;
    4010:
        cuDeviceGetPCIBusId cuIpcGetMemHandle cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcOpenEventHandle;
    5050:
        cuStreamCreateWithPriority cuStreamGetPriority cuStreamGetFlags cuCtxGetStreamPriorityRange
        cuLinkComplete cuLinkDestroy;
    6000:
        cuMemAllocManaged cuGetErrorName cuGetErrorString cuStreamAttachMemAsync;
    6050:
        cuMemHostRegister_v2 cuLinkCreate_v2 cuLinkAddData_v2;
    7000:
        cuPointerGetAttributes cuDevicePrimaryCtxRetain cuDevicePrimaryCtxGetState cuCtxGetFlags;
    8000:
        cuMemPrefetchAsync cuMemAdvise cuMemRangeGetAttribute cuDeviceGetP2PAttribute;
    9020:
        cuDeviceGetUuid cuStreamGetCtx;
    10000:
        cuLaunchHostFunc cuStreamIsCapturing cuStreamEndCapture cuGraphLaunch cuGraphDestroy cuGraphExecDestroy
        cuGraphGetNodes;
    10010:
        cuStreamBeginCapture_v2 cuStreamGetCaptureInfo cuThreadExchangeStreamCaptureMode;
    10020:
        cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemGetAccess
        cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemExportToShareableHandle
        cuMemImportFromShareableHandle;
    11000:
        cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuFuncGetModule
        cuMemRetainAllocationHandle cuIpcOpenMemHandle_v2;
    11010:
        cuEventRecordWithFlags;
    11020:
        cuMemAllocAsync cuMemFreeAsync cuMemAllocFromPoolAsync cuDeviceGetDefaultMemPool cuDeviceGetMemPool
        cuDeviceSetMemPool cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
        cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess;
    11030:
        cuGetProcAddress cuStreamGetCaptureInfo_v2;
    11040:
        cuDeviceGetUuid_v2 cuGraphInstantiateWithFlags cuCtxCreate_v3;
    11060:
        cuLaunchKernelEx;
    12000:
        cuGetProcAddress_v2 cuStreamGetId cuCtxGetId cuLibraryLoadData cuLibraryUnload cuLibraryGetKernel
        cuLibraryGetModule cuKernelGetFunction cuKernelGetAttribute cuLibraryGetGlobal;
    12020:
        cuMemPrefetchAsync_v2 cuMemAdvise_v2;
    12030:
        cuStreamGetCaptureInfo_v3 cuFuncGetName cuKernelGetName;
    12040:
        cuLibraryGetKernelCount cuLibraryEnumerateKernels cuDeviceGetDevResource cuCtxGetDevResource
        cuGreenCtxGetDevResource cuDevSmResourceSplitByCount cuDevResourceGenerateDesc cuGreenCtxCreate
        cuGreenCtxDestroy cuCtxFromGreenCtx cuStreamGetGreenCtx;
    12050:
        cuStreamGetCtx_v2 cuKernelGetLibrary cuCtxCreate_v4 cuGreenCtxStreamCreate;
    12080:
        cuEventElapsedTime_v2 cuMemcpyBatchAsync cuStreamGetDevice;
    13000:
        cuCtxGetDevice_v2 cuCtxSynchronize_v2 cuMemcpyBatchAsync_v2;
    13010:
        cuLaunchHostFunc_v2;
}

/// What an entry point's name may end with after the name in the header, newest last.
const VERSIONS: [&str; 4] = ["", "_v2", "_v3", "_v4"];

impl Function {
    /// The function of this exported name.
    pub fn named(name: &str) -> Option<Function> {
        ALL.iter().copied().find(|function| function.name() == name)
    }

    /// What `cuGetProcAddress` finds for a name in the header: the newest form that a program for `version` may use.
    pub fn for_program(name: &str, version: i32) -> Option<Function> {
        let mut forms = VERSIONS.iter().filter_map(|end| Function::named(&format!("{name}{end}")));
        forms.rfind(|function| function.since() <= version)
    }

    /// Whether it only tells what errors mean: such a call fails for no device's sake.
    pub fn describes_errors(self) -> bool {
        matches!(self, Function::cuGetErrorName | Function::cuGetErrorString)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_newest_form_they_know() {
        assert_eq!(Function::for_program("cuMemAlloc", 12000), Some(Function::cuMemAlloc_v2));
        assert_eq!(Function::for_program("cuMemPrefetchAsync", 12010), Some(Function::cuMemPrefetchAsync));
        assert_eq!(Function::for_program("cuMemPrefetchAsync", 12020), Some(Function::cuMemPrefetchAsync_v2));
        assert_eq!(Function::for_program("cuStreamGetId", 11080), None);
        assert_eq!(Function::for_program("cuNothing", 13000), None);
    }

    /// Names in the header, the driver of a form, and the name under which that form is exported. Each differs from the
    /// form before in its arguments, or begins with that driver and not one later or earlier.
    const FIRST: [(&str, i32, Function); 24] = [
        ("cuModuleLoadDataEx", 2010, Function::cuModuleLoadDataEx),
        ("cuDriverGetVersion", 2020, Function::cuDriverGetVersion),
        ("cuMemHostAlloc", 2020, Function::cuMemHostAlloc),
        ("cuMemHostGetFlags", 2030, Function::cuMemHostGetFlags),
        ("cuCtxGetLimit", 3010, Function::cuCtxGetLimit),
        ("cuCtxSetLimit", 3010, Function::cuCtxSetLimit),
        ("cuDeviceGetPCIBusId", 4010, Function::cuDeviceGetPCIBusId),
        ("cuStreamCreateWithPriority", 5050, Function::cuStreamCreateWithPriority),
        ("cuStreamGetPriority", 5050, Function::cuStreamGetPriority),
        ("cuStreamGetFlags", 5050, Function::cuStreamGetFlags),
        ("cuCtxGetStreamPriorityRange", 5050, Function::cuCtxGetStreamPriorityRange),
        ("cuMemHostRegister", 6050, Function::cuMemHostRegister_v2),
        ("cuPointerGetAttributes", 7000, Function::cuPointerGetAttributes),
        ("cuDevicePrimaryCtxRetain", 7000, Function::cuDevicePrimaryCtxRetain),
        ("cuDevicePrimaryCtxGetState", 7000, Function::cuDevicePrimaryCtxGetState),
        ("cuCtxGetFlags", 7000, Function::cuCtxGetFlags),
        ("cuStreamBeginCapture", 10010, Function::cuStreamBeginCapture_v2),
        ("cuStreamGetCaptureInfo", 10010, Function::cuStreamGetCaptureInfo),
        ("cuThreadExchangeStreamCaptureMode", 10010, Function::cuThreadExchangeStreamCaptureMode),
        ("cuStreamGetCtx", 12050, Function::cuStreamGetCtx_v2),
        ("cuCtxCreate", 12050, Function::cuCtxCreate_v4),
        ("cuCtxSynchronize", 13000, Function::cuCtxSynchronize_v2),
        ("cuMemcpyBatchAsync", 13000, Function::cuMemcpyBatchAsync_v2),
        ("cuLaunchHostFunc", 13010, Function::cuLaunchHostFunc_v2),
    ];

    #[test]
    fn a_form_is_found_from_its_own_driver_on() {
        for (name, since, form) in FIRST {
            assert_eq!(Function::for_program(name, since), Some(form), "{name} for {since}");
            assert_ne!(Function::for_program(name, since - 10), Some(form), "{name} before {since}");
        }
    }
}
