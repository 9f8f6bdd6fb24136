//! OpenCL's error codes: names and reasons, without the driver.
//!
//! Promises upward: every code of OpenCL 1.0 to 3.0 has its name (a test compares them with `opencl3`).
//! Asks from below: nothing.

use crate::layouts::ClCode;
use terrace_device::{Fault, FaultReason};

pub const SUCCESS: ClCode = 0;
pub const DEVICE_NOT_FOUND: ClCode = -1;
/// What a wait for events answers when the work of one failed.
pub const WAITED_FAILED: ClCode = -14;
pub const PLATFORM_NOT_FOUND: ClCode = -1001;

/// Names of codes, without the `CL_` that each begins with in the headers.
#[rustfmt::skip]
const NAMES: &[(ClCode, &str)] = &[
    (-1, "CL_DEVICE_NOT_FOUND"), (-2, "CL_DEVICE_NOT_AVAILABLE"), (-3, "CL_COMPILER_NOT_AVAILABLE"),
    (-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"), (-5, "CL_OUT_OF_RESOURCES"), (-6, "CL_OUT_OF_HOST_MEMORY"),
    (-7, "CL_PROFILING_INFO_NOT_AVAILABLE"), (-8, "CL_MEM_COPY_OVERLAP"), (-9, "CL_IMAGE_FORMAT_MISMATCH"),
    (-10, "CL_IMAGE_FORMAT_NOT_SUPPORTED"), (-11, "CL_BUILD_PROGRAM_FAILURE"), (-12, "CL_MAP_FAILURE"),
    (-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"), (-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"),
    (-15, "CL_COMPILE_PROGRAM_FAILURE"), (-16, "CL_LINKER_NOT_AVAILABLE"), (-17, "CL_LINK_PROGRAM_FAILURE"),
    (-18, "CL_DEVICE_PARTITION_FAILED"), (-19, "CL_KERNEL_ARG_INFO_NOT_AVAILABLE"), (-30, "CL_INVALID_VALUE"),
    (-31, "CL_INVALID_DEVICE_TYPE"), (-32, "CL_INVALID_PLATFORM"), (-33, "CL_INVALID_DEVICE"),
    (-34, "CL_INVALID_CONTEXT"), (-35, "CL_INVALID_QUEUE_PROPERTIES"), (-36, "CL_INVALID_COMMAND_QUEUE"),
    (-37, "CL_INVALID_HOST_PTR"), (-38, "CL_INVALID_MEM_OBJECT"), (-39, "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR"),
    (-40, "CL_INVALID_IMAGE_SIZE"), (-41, "CL_INVALID_SAMPLER"), (-42, "CL_INVALID_BINARY"),
    (-43, "CL_INVALID_BUILD_OPTIONS"), (-44, "CL_INVALID_PROGRAM"), (-45, "CL_INVALID_PROGRAM_EXECUTABLE"),
    (-46, "CL_INVALID_KERNEL_NAME"), (-47, "CL_INVALID_KERNEL_DEFINITION"), (-48, "CL_INVALID_KERNEL"),
    (-49, "CL_INVALID_ARG_INDEX"), (-50, "CL_INVALID_ARG_VALUE"), (-51, "CL_INVALID_ARG_SIZE"),
    (-52, "CL_INVALID_KERNEL_ARGS"), (-53, "CL_INVALID_WORK_DIMENSION"), (-54, "CL_INVALID_WORK_GROUP_SIZE"),
    (-55, "CL_INVALID_WORK_ITEM_SIZE"), (-56, "CL_INVALID_GLOBAL_OFFSET"), (-57, "CL_INVALID_EVENT_WAIT_LIST"),
    (-58, "CL_INVALID_EVENT"), (-59, "CL_INVALID_OPERATION"), (-60, "CL_INVALID_GL_OBJECT"),
    (-61, "CL_INVALID_BUFFER_SIZE"), (-62, "CL_INVALID_MIP_LEVEL"), (-63, "CL_INVALID_GLOBAL_WORK_SIZE"),
    (-64, "CL_INVALID_PROPERTY"), (-65, "CL_INVALID_IMAGE_DESCRIPTOR"), (-66, "CL_INVALID_COMPILER_OPTIONS"),
    (-67, "CL_INVALID_LINKER_OPTIONS"), (-68, "CL_INVALID_DEVICE_PARTITION_COUNT"), (-69, "CL_INVALID_PIPE_SIZE"),
    (-70, "CL_INVALID_DEVICE_QUEUE"), (-71, "CL_INVALID_SPEC_ID"), (-72, "CL_MAX_SIZE_RESTRICTION_EXCEEDED"),
    (-1001, "CL_PLATFORM_NOT_FOUND_KHR"), (-1121, "CL_CONTEXT_TERMINATED_KHR"),
];

/// The refusal of a call, from its code.
pub fn fault(call: &'static str, code: ClCode) -> Fault {
    let name = NAMES.iter().find(|(of, _)| *of == code).map_or("", |(_, name)| name);
    Fault { call, code, name, reason: reason(code) }
}

const fn reason(code: ClCode) -> FaultReason {
    match code {
        // A size above the most that the device gives at once (-61) is memory that it does not have.
        -4 | -6 | -61 => FaultReason::OutOfMemory,
        -2 | -1121 => FaultReason::Lost,
        -34 | -36 | -38 | -58 => FaultReason::BadHandle,
        -59 => FaultReason::Unsupported,
        _ => FaultReason::Other,
    }
}

/// A refusal of memory: there the driver's general code (-5) means that there is too little.
pub fn as_out_of_memory(fault: Fault) -> Fault {
    if fault.code == -5 { Fault { reason: FaultReason::OutOfMemory, ..fault } } else { fault }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, as_out_of_memory, fault};
    use terrace_device::FaultReason;

    #[test]
    fn every_code_has_its_name() {
        for code in -2000..0 {
            let (ours, theirs) = (fault("", code).name, opencl3::error_codes::error_text(code));
            assert!(ours.is_empty() || ours == theirs, "{code}: {ours}, {theirs}");
        }
        assert!((-19..0).chain(-72..-29).all(|code| !fault("", code).name.is_empty()));
        assert_eq!(NAMES.len(), 19 + 43 + 2);
    }

    #[test]
    fn a_refusal_says_call_name_code_and_kind() {
        let said = fault("clCreateBuffer", -61);
        assert_eq!(said.reason, FaultReason::OutOfMemory);
        assert_eq!(said.to_string(), "clCreateBuffer: out of memory (CL_INVALID_BUFFER_SIZE, code -61)");
        // The same code says something else of a kernel that faulted.
        let general = fault("clFinish", -5);
        assert_eq!((general.reason, as_out_of_memory(general).reason), (FaultReason::Other, FaultReason::OutOfMemory));
        assert_eq!(fault("clFinish", -36).reason, FaultReason::BadHandle);
        assert_eq!(fault("clFinish", -9999).name, "");
    }
}
