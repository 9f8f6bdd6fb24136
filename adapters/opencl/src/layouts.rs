//! Types and constants of OpenCL's interface, as its headers have them.
//!
//! Promises upward: each constant is the header's (a test compares all with `opencl-sys`).
//! Asks from below: nothing.
//!
//! A dependency on `opencl-sys` would save these lines, and forbid the program another version of it: it is a crate that
//! `links`, of which cargo allows one.

use std::ffi::c_void;

/// Any of OpenCL's objects.
pub type ClHandle = *mut c_void;

/// What a function answers: 0, or an error below it.
pub type ClCode = i32;

/// A part of a buffer.
#[repr(C)]
pub struct BufferRegion {
    pub origin: usize,
    pub size: usize,
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub const $name: $type = $value;)*

        #[cfg(test)]
        mod tests {
            #[test]
            fn constants_are_the_header_s() {
                $(assert_eq!(super::$name as u64, opencl_sys::$name as u64, stringify!($name));)*
            }
        }
    };
}

constants! {
    CL_PLATFORM_NAME: u32 = 0x902;
    CL_DEVICE_TYPE: u32 = 0x1000;
    CL_DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
    CL_DEVICE_TYPE_CPU: u64 = 2;
    CL_DEVICE_MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
    CL_DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
    CL_DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
    CL_DEVICE_NAME: u32 = 0x102B;
    CL_DRIVER_VERSION: u32 = 0x102D;
    CL_DEVICE_VERSION: u32 = 0x102F;
    CL_DEVICE_PLATFORM: u32 = 0x1031;
    CL_DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
    CL_DEVICE_SVM_CAPABILITIES: u32 = 0x1053;
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER: u64 = 1;
    CL_DEVICE_SVM_FINE_GRAIN_BUFFER: u64 = 1 << 1;
    CL_DEVICE_SVM_FINE_GRAIN_SYSTEM: u64 = 1 << 2;
    CL_DEVICE_SVM_ATOMICS: u64 = 1 << 3;
    CL_CONTEXT_DEVICES: u32 = 0x1081;
    CL_QUEUE_CONTEXT: u32 = 0x1090;
    CL_QUEUE_DEVICE: u32 = 0x1091;
    CL_QUEUE_PROPERTIES: u32 = 0x1093;
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE: u64 = 1;
    CL_MEM_READ_WRITE: u64 = 1;
    CL_MEM_ALLOC_HOST_PTR: u64 = 1 << 4;
    CL_MEM_SVM_FINE_GRAIN_BUFFER: u64 = 1 << 10;
    CL_MEM_SVM_ATOMICS: u64 = 1 << 11;
    CL_MIGRATE_MEM_OBJECT_HOST: u64 = 1;
    CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED: u64 = 1 << 1;
    CL_BUFFER_CREATE_TYPE_REGION: u32 = 0x1220;
    CL_MAP_READ: u64 = 1;
    CL_MAP_WRITE: u64 = 1 << 1;
    CL_EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
    CL_COMPLETE: i32 = 0;
    CL_FALSE: u32 = 0;
    CL_TRUE: u32 = 1;
}
