//! Management: PyTorch asks it for other processes' memory when its own is out, and for links between devices.
//!
//! Promises upward: a library that is there and supports none of what it is asked.

/// `NVML_SUCCESS` and `NVML_ERROR_NOT_SUPPORTED`.
const DONE: i32 = 0;
const NOT_SUPPORTED: i32 = 3;

macro_rules! answers {
    ($($name:ident -> $answer:expr;)*) => {$(
        // SAFETY: the name is the management library's, whose place this one takes.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name() -> i32 { $answer }
    )*};
}

answers! {
    nvmlInit_v2 -> DONE;
    nvmlDeviceGetHandleByPciBusId_v2 -> DONE;
    nvmlDeviceGetComputeRunningProcesses -> NOT_SUPPORTED;
    nvmlDeviceGetGpuFabricInfoV -> NOT_SUPPORTED;
    nvmlDeviceGetNvLinkRemoteDeviceType -> NOT_SUPPORTED;
    nvmlDeviceGetNvLinkRemotePciInfo_v2 -> NOT_SUPPORTED;
    nvmlSystemGetCudaDriverVersion_v2 -> NOT_SUPPORTED;
}
