//! Numbers of the driver's enums, under the names of `cuda.h` without their prefix.
//!
//! Upward: constants, compared with cudarc's in `tests.rs`.

use super::c_int;

macro_rules! numbers {
    ($($(#[$doc:meta])* $module:ident: $($name:ident $number:literal)*;)*) => {
        $(
            $(#[$doc])*
            pub mod $module {
                $(
                    #[allow(missing_docs)]
                    pub const $name: super::c_int = $number;
                )*
            }
        )*
    };
}

numbers! {
    /// `CU_DEVICE_ATTRIBUTE_*`.
    device:
        MAX_THREADS_PER_BLOCK 1 MAX_BLOCK_DIM_X 2 MAX_BLOCK_DIM_Y 3 MAX_BLOCK_DIM_Z 4 MAX_GRID_DIM_X 5 MAX_GRID_DIM_Y 6
        MAX_GRID_DIM_Z 7 MAX_SHARED_MEMORY_PER_BLOCK 8 WARP_SIZE 10 MULTIPROCESSOR_COUNT 16 INTEGRATED 18
        CAN_MAP_HOST_MEMORY 19 TEXTURE_ALIGNMENT 14 CONCURRENT_KERNELS 31 PCI_BUS_ID 33
        ASYNC_ENGINE_COUNT 40 UNIFIED_ADDRESSING 41 COMPUTE_CAPABILITY_MAJOR 75
        COMPUTE_CAPABILITY_MINOR 76 STREAM_PRIORITIES_SUPPORTED 78 MANAGED_MEMORY 83 PAGEABLE_MEMORY_ACCESS 88
        CONCURRENT_MANAGED_ACCESS 89 CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM 91 HOST_REGISTER_SUPPORTED 99
        PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES 100
        VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED 102
        MEMORY_POOLS_SUPPORTED 115;
    /// `CU_POINTER_ATTRIBUTE_*`.
    pointer:
        CONTEXT 1 MEMORY_TYPE 2 DEVICE_POINTER 3 HOST_POINTER 4 BUFFER_ID 7 IS_MANAGED 8 DEVICE_ORDINAL 9
        RANGE_START_ADDR 11 RANGE_SIZE 12 MAPPED 13 MEMPOOL_HANDLE 17;
    /// `CU_MEMPOOL_ATTR_*`.
    pool:
        REUSE_FOLLOW_EVENT_DEPENDENCIES 1 REUSE_ALLOW_INTERNAL_DEPENDENCIES 3
        RELEASE_THRESHOLD 4 RESERVED_MEM_CURRENT 5 RESERVED_MEM_HIGH 6 USED_MEM_CURRENT 7 USED_MEM_HIGH 8;
    /// `CU_DEVICE_P2P_ATTRIBUTE_*`.
    peer: PERFORMANCE_RANK 1 ACCESS_SUPPORTED 2 NATIVE_ATOMIC_SUPPORTED 3 CUDA_ARRAY_ACCESS_SUPPORTED 4;
    /// `CU_STREAM_CAPTURE_STATUS_*`.
    status: NONE 0 ACTIVE 1 INVALIDATED 2;
    /// `CU_STREAM_CAPTURE_MODE_*`.
    mode: GLOBAL 0 RELAXED 2;
    /// `CU_MEM_ADVISE_*`.
    advise:
        SET_READ_MOSTLY 1 SET_PREFERRED_LOCATION 3 SET_ACCESSED_BY 5
        UNSET_ACCESSED_BY 6;
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub const ALLOCATION_PINNED: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`, a bit of all flags that allow anything.
pub const ACCESS_READ: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const ACCESS_READ_WRITE: c_int = 3;
/// `CU_DEVICE_CPU`: the host as a place for managed memory.
pub const CPU: c_int = -1;
