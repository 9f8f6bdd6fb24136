//! CUDA's functions by HIP's names.
//!
//! Promises upward: each function of CUDA that terrace calls has a row, or HIP lacks it.
//! Asks from below: nothing. A test compares the rows with what `terrace-cuda` looks up.

/// A function of HIP that stands for one of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// CUDA's exported name.
    pub cuda: &'static str,
    /// HIP's exported name.
    pub hip: &'static str,
    /// The version of ROCm whose header is the first that has it, of those since 6.2.
    pub since: &'static str,
}

/// All rows.
///
/// # Example
/// ```
/// let free = terrace_hip::names().iter().find(|name| name.hip == "hipFree");
/// assert_eq!(free.map(|name| name.cuda), Some("cuMemFree_v2"));
/// ```
pub fn names() -> &'static [Name] {
    TABLE
}

/// The row of a function of CUDA.
pub fn of(cuda: &str) -> Option<&'static Name> {
    TABLE.iter().find(|name| name.cuda == cuda)
}

const fn row(cuda: &'static str, hip: &'static str) -> Name {
    Name { cuda, hip, since: "6.2" }
}

const TABLE: &[Name] = &[
    row("cuInit", "hipInit"),
    row("cuDriverGetVersion", "hipDriverGetVersion"),
    row("cuDeviceGet", "hipDeviceGet"),
    row("cuDeviceGetCount", "hipGetDeviceCount"),
    row("cuDeviceGetName", "hipDeviceGetName"),
    row("cuDeviceTotalMem_v2", "hipDeviceTotalMem"),
    row("cuDeviceGetAttribute", "hipDeviceGetAttribute"),
    // A thread has a device in place of a context.
    row("cuDevicePrimaryCtxRetain", "hipSetDevice"),
    row("cuDevicePrimaryCtxRelease_v2", "hipSetDevice"),
    row("cuCtxGetCurrent", "hipGetDevice"),
    row("cuCtxSetCurrent", "hipSetDevice"),
    row("cuCtxSynchronize", "hipDeviceSynchronize"),
    row("cuMemGetInfo_v2", "hipMemGetInfo"),
    row("cuMemAlloc_v2", "hipMalloc"),
    row("cuMemFree_v2", "hipFree"),
    row("cuMemHostAlloc", "hipHostMalloc"),
    row("cuMemFreeHost", "hipHostFree"),
    row("cuStreamCreate", "hipStreamCreateWithFlags"),
    row("cuStreamDestroy_v2", "hipStreamDestroy"),
    row("cuStreamQuery", "hipStreamQuery"),
    row("cuStreamSynchronize", "hipStreamSynchronize"),
    row("cuStreamWaitEvent", "hipStreamWaitEvent"),
    row("cuEventCreate", "hipEventCreateWithFlags"),
    row("cuEventDestroy_v2", "hipEventDestroy"),
    row("cuEventRecord", "hipEventRecord"),
    row("cuEventQuery", "hipEventQuery"),
    row("cuEventSynchronize", "hipEventSynchronize"),
    row("cuMemcpyAsync", "hipMemcpyAsync"),
    row("cuMemsetD8Async", "hipMemsetD8Async"),
    row("cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity"),
    row("cuMemAddressReserve", "hipMemAddressReserve"),
    row("cuMemAddressFree", "hipMemAddressFree"),
    row("cuMemCreate", "hipMemCreate"),
    row("cuMemRelease", "hipMemRelease"),
    row("cuMemMap", "hipMemMap"),
    row("cuMemUnmap", "hipMemUnmap"),
    row("cuMemSetAccess", "hipMemSetAccess"),
    row("cuMemPoolCreate", "hipMemPoolCreate"),
    row("cuMemPoolDestroy", "hipMemPoolDestroy"),
    row("cuMemPoolSetAttribute", "hipMemPoolSetAttribute"),
    row("cuMemPoolSetAccess", "hipMemPoolSetAccess"),
    row("cuMemPoolTrimTo", "hipMemPoolTrimTo"),
    row("cuMemAllocFromPoolAsync", "hipMallocFromPoolAsync"),
    row("cuMemFreeAsync", "hipFreeAsync"),
    row("cuMemAllocManaged", "hipMallocManaged"),
    row("cuMemPrefetchAsync", "hipMemPrefetchAsync"),
    row("cuMemAdvise", "hipMemAdvise"),
    row("cuMemHostRegister_v2", "hipHostRegister"),
    row("cuMemHostUnregister", "hipHostUnregister"),
    row("cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer"),
    row("cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess"),
    row("cuMemcpyPeerAsync", "hipMemcpyPeerAsync"),
    Name { cuda: "cuMemcpyBatchAsync", hip: "hipMemcpyBatchAsync", since: "7.1" },
    Name { cuda: "cuStreamGetId", hip: "hipStreamGetId", since: "7.1" },
    Name { cuda: "cuMemPrefetchAsync_v2", hip: "hipMemPrefetchAsync_v2", since: "7.1" },
    Name { cuda: "cuMemAdvise_v2", hip: "hipMemAdvise_v2", since: "7.1" },
    row("cuStreamIsCapturing", "hipStreamIsCapturing"),
    row("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_of_cuda_has_one_row() {
        let looked_up: Vec<_> = terrace_cuda::functions().map(|function| function.symbol).collect();
        assert_eq!(TABLE.len(), looked_up.len());
        for symbol in looked_up {
            assert_eq!(TABLE.iter().filter(|name| name.cuda == symbol).count(), 1, "{symbol}");
        }
    }
}
