//! The table of functions: what the library exports, and since which driver.
//!
//! Upward: [`Function`] counts calls, arms failures and answers `cuGetProcAddress`.
//! From below: `api` has a function of each name.

use crate::api;

macro_rules! functions {
    ($($since:literal: $($name:ident)*;)*) => {
        /// A function of the driver.
        #[allow(non_camel_case_types, missing_docs, clippy::enum_variant_names)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Function { $($($name,)*)* }

        /// All of them.
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
    2000:
        cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceGetAttribute
        cuDeviceComputeCapability cuCtxGetDevice cuCtxSynchronize cuMemFreeHost cuMemHostAlloc cuMemHostGetFlags
        cuStreamCreate cuStreamQuery cuStreamSynchronize cuEventCreate cuEventRecord cuEventQuery cuEventSynchronize
        cuEventElapsedTime cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction;
    3020:
        cuDeviceTotalMem_v2 cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemAllocHost_v2
        cuMemHostGetDevicePointer_v2 cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2
        cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 cuMemsetD8_v2 cuMemsetD8Async cuMemsetD32_v2 cuMemsetD32Async
        cuStreamWaitEvent cuCtxGetLimit cuCtxSetLimit cuCtxGetApiVersion;
    4000:
        cuCtxGetCurrent cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuStreamDestroy_v2 cuEventDestroy_v2
        cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuDeviceCanAccessPeer cuCtxEnablePeerAccess
        cuCtxDisablePeerAccess cuPointerGetAttribute cuMemHostUnregister cuLaunchKernel cuDeviceGetPCIBusId;
    6000:
        cuMemAllocManaged cuGetErrorName cuGetErrorString cuStreamCreateWithPriority cuStreamGetPriority
        cuStreamGetFlags cuCtxGetStreamPriorityRange cuMemHostRegister_v2 cuPointerGetAttributes
        cuDevicePrimaryCtxRetain cuDevicePrimaryCtxGetState cuCtxGetFlags;
    8000:
        cuMemPrefetchAsync cuMemAdvise cuMemRangeGetAttribute cuDeviceGetP2PAttribute;
    9020:
        cuDeviceGetUuid cuStreamGetCtx;
    10000:
        cuLaunchHostFunc cuStreamIsCapturing cuStreamEndCapture cuStreamGetCaptureInfo cuGraphLaunch cuGraphDestroy
        cuGraphExecDestroy cuStreamBeginCapture_v2 cuThreadExchangeStreamCaptureMode;
    10020:
        cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemGetAccess
        cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle;
    11000:
        cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2
        cuMemRetainAllocationHandle;
    11010:
        cuEventRecordWithFlags;
    11020:
        cuMemAllocAsync cuMemFreeAsync cuMemAllocFromPoolAsync cuDeviceGetDefaultMemPool cuDeviceGetMemPool
        cuDeviceSetMemPool cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
        cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolGetAccess;
    11030:
        cuGetProcAddress cuStreamGetCaptureInfo_v2;
    11040:
        cuDeviceGetUuid_v2 cuGraphInstantiateWithFlags;
    12000:
        cuGetProcAddress_v2 cuStreamGetId cuCtxGetId;
    12020:
        cuMemPrefetchAsync_v2 cuMemAdvise_v2;
    12030:
        cuStreamGetCaptureInfo_v3;
    12080:
        cuEventElapsedTime_v2 cuMemcpyBatchAsync cuStreamGetDevice;
    13000:
        cuCtxGetDevice_v2;
}

/// What an entry point's name may end with after the name in the header, newest last.
const VERSIONS: [&str; 3] = ["", "_v2", "_v3"];

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
}
