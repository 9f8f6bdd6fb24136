//! Structures and constants of the driver's interface, with the layout of the C header `cuda.h`.
//!
//! Promises upward: the layouts are valid for every driver since CUDA 11.4. A newer driver may give meaning to bytes
//! that are reserved here; zeros in them select the old behaviour.
//! Asks from below: nothing. The tests compare sizes and offsets with cudarc's bindings, which are generated from the header.
//!
//! This crate does not use cudarc's structures, because names and types of their fields differ between its `cuda-`
//! features.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

/// `CUmemLocation`: a device or the host, where memory lies or from where a mapping is accessed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryLocation {
    pub kind: c_uint,
    /// The ordinal of the device; 0 for the host.
    pub id: c_int,
}

impl MemoryLocation {
    /// A device: `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub fn device(ordinal: c_int) -> Self {
        Self { kind: 1, id: ordinal }
    }

    /// The host, on any NUMA node: `CU_MEM_LOCATION_TYPE_HOST`.
    pub fn host() -> Self {
        Self { kind: 2, id: 0 }
    }
}

/// `CUmemAllocationProp`: what kind of page `cuMemCreate` makes.
#[repr(C)]
pub struct PageProperties {
    pub kind: c_uint,
    /// Types of handles for export to other processes: 0, none.
    pub handles: c_uint,
    pub location: MemoryLocation,
    pub security: *mut c_void,
    /// Flags for compression, GPUDirect RDMA and usage: all 0.
    pub flags: [u8; 8],
}

/// `CUmemPoolProps`: what kind of pool `cuMemPoolCreate` makes.
#[repr(C)]
pub struct PoolProperties {
    pub kind: c_uint,
    /// Types of handles for export to other processes: 0, none.
    pub handles: c_uint,
    pub location: MemoryLocation,
    pub security: *mut c_void,
    /// 64 bytes, reserved in CUDA 11.4. In newer headers they begin with a maximum size, where 0 means no maximum.
    pub reserved: [u64; 8],
}

/// `CUmemAccessDesc`: a device and the access it has to a range.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccessDescriptor {
    pub location: MemoryLocation,
    pub flags: c_uint,
}

/// `CUmemcpyAttributes`: when the copies of a batch may read their sources.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyAttributes {
    pub order: c_uint,
    /// Location hints for managed memory: kind 0, none.
    pub hints: [MemoryLocation; 2],
    pub flags: c_uint,
}

impl CopyAttributes {
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`: sources are read in stream order.
    pub const STREAM_ORDER: Self = Self { order: 1, hints: [MemoryLocation { kind: 0, id: 0 }; 2], flags: 0 };
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`: memory that does not migrate.
const PINNED_ALLOCATION: c_uint = 1;

impl PageProperties {
    pub fn on(ordinal: c_int) -> Self {
        Self {
            kind: PINNED_ALLOCATION,
            handles: 0,
            location: MemoryLocation::device(ordinal),
            security: null_mut(),
            flags: [0; 8],
        }
    }
}

impl PoolProperties {
    pub fn on(ordinal: c_int) -> Self {
        Self {
            kind: PINNED_ALLOCATION,
            handles: 0,
            location: MemoryLocation::device(ordinal),
            security: null_mut(),
            reserved: [0; 8],
        }
    }
}

impl AccessDescriptor {
    /// Read and write access for a device: `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub fn full(ordinal: c_int) -> Self {
        Self { location: MemoryLocation::device(ordinal), flags: 3 }
    }
}

/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`: queries the minimum granularity, not the recommended one.
pub const GRANULARITY_MINIMUM: c_uint = 0;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: pinned and mapped for every context.
///
/// Not write-combined, because the host reads write-combined memory slowly. `CU_MEMHOSTREGISTER_*` has the same values.
pub const HOST_ALLOC_FLAGS: c_uint = 1 | 2;
/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may access the managed memory.
pub const ATTACH_GLOBAL: c_uint = 1;
/// `CU_STREAM_NON_BLOCKING`: the stream does not synchronise with the legacy default stream.
pub const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: the event stores no time, so recording it is cheaper.
pub const NO_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: captures by other threads do not restrict this thread's calls.
pub const CAPTURE_MODE_RELAXED: c_uint = 2;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`: bytes of unused memory that a pool retains.
pub const POOL_RELEASE_THRESHOLD: c_uint = 4;

/// `CU_DEVICE_CPU`: means the host where a function takes a device ordinal.
pub const CPU: c_int = -1;

/// Values of `CUmem_advise`.
pub mod advice {
    use std::ffi::c_uint;

    pub const SET_READ_MOSTLY: c_uint = 1;
    pub const UNSET_READ_MOSTLY: c_uint = 2;
    pub const SET_PREFERRED_LOCATION: c_uint = 3;
    pub const UNSET_PREFERRED_LOCATION: c_uint = 4;
    pub const SET_ACCESSED_BY: c_uint = 5;
    pub const UNSET_ACCESSED_BY: c_uint = 6;
}

/// Numbers by which a driver knows the attributes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Whether device and host share their memory.
    pub integrated: u32,
    /// Whether an address means the same on device and host.
    pub unified_addressing: u32,
    /// Whether there is managed memory.
    pub managed_memory: u32,
    /// Whether atomics between device and host work.
    pub host_native_atomics: u32,
    /// Whether the device reads all memory of the host.
    pub pageable_memory: u32,
    /// Whether host and device may use managed memory at once.
    pub concurrent_managed: u32,
    /// Whether the program's own memory can be pinned.
    pub host_register: u32,
    /// Whether pages can be mapped.
    pub virtual_memory: u32,
    /// Whether the driver has pools of its own.
    pub memory_pools: u32,
}

/// Values of `CUdevice_attribute` that this crate queries.
pub mod attribute {
    use super::Attributes;

    pub const NUMBERS: Attributes = Attributes {
        integrated: 18,
        unified_addressing: 41,
        managed_memory: 83,
        host_native_atomics: 86,
        pageable_memory: 88,
        concurrent_managed: 89,
        host_register: 99,
        virtual_memory: 102,
        memory_pools: 115,
    };
}

/// Read and write access for each of `peers`.
pub fn full_access(peers: &[u32]) -> impl Iterator<Item = AccessDescriptor> {
    peers.iter().map(|&peer| AccessDescriptor::full(peer.cast_signed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<MemoryLocation>(), size_of::<sys::CUmemLocation>());
        assert_eq!(size_of::<PageProperties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(size_of::<PoolProperties>(), size_of::<sys::CUmemPoolProps>());
        assert_eq!(size_of::<AccessDescriptor>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(align_of::<PageProperties>(), align_of::<sys::CUmemAllocationProp>());
        assert_eq!(align_of::<PoolProperties>(), align_of::<sys::CUmemPoolProps>());
        assert_eq!(offset_of!(PageProperties, handles), offset_of!(sys::CUmemAllocationProp, requestedHandleTypes));
        assert_eq!(offset_of!(PageProperties, location), offset_of!(sys::CUmemAllocationProp, location));
        assert_eq!(offset_of!(PageProperties, flags), offset_of!(sys::CUmemAllocationProp, allocFlags));
        assert_eq!(offset_of!(PoolProperties, location), offset_of!(sys::CUmemPoolProps, location));
        assert_eq!(offset_of!(PoolProperties, security), offset_of!(sys::CUmemPoolProps, win32SecurityAttributes));
        // CUDA 12.8 introduced this structure, and cudarc's oldest bindings lack it, so its size is computed from its
        // fields.
        assert_eq!(size_of::<CopyAttributes>(), 8 + 2 * size_of::<sys::CUmemLocation>());
        assert_eq!(offset_of!(CopyAttributes, flags), 4 + 2 * size_of::<sys::CUmemLocation>());
        assert_eq!(offset_of!(AccessDescriptor, flags), offset_of!(sys::CUmemAccessDesc, flags));
    }

    #[test]
    fn constants_are_those_of_the_header() {
        use sys::CUdevice_attribute as Header;
        let pairs = [
            (attribute::NUMBERS.integrated, Header::CU_DEVICE_ATTRIBUTE_INTEGRATED),
            (attribute::NUMBERS.unified_addressing, Header::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
            (attribute::NUMBERS.managed_memory, Header::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
            (attribute::NUMBERS.host_native_atomics, Header::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
            (attribute::NUMBERS.pageable_memory, Header::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
            (attribute::NUMBERS.concurrent_managed, Header::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
            (attribute::NUMBERS.host_register, Header::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
            (attribute::NUMBERS.virtual_memory, Header::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            (attribute::NUMBERS.memory_pools, Header::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
        ];
        for (ours, header) in pairs {
            assert_eq!(ours, header as c_uint, "{header:?}");
        }
        use sys::CUmem_advise as Advise;
        let pairs = [
            (advice::SET_READ_MOSTLY, Advise::CU_MEM_ADVISE_SET_READ_MOSTLY),
            (advice::UNSET_READ_MOSTLY, Advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY),
            (advice::SET_PREFERRED_LOCATION, Advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION),
            (advice::UNSET_PREFERRED_LOCATION, Advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION),
            (advice::SET_ACCESSED_BY, Advise::CU_MEM_ADVISE_SET_ACCESSED_BY),
            (advice::UNSET_ACCESSED_BY, Advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY),
        ];
        for (ours, header) in pairs {
            assert_eq!(ours, header as c_uint, "{header:?}");
        }
        assert_eq!(HOST_ALLOC_FLAGS, sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP);
        assert_eq!(ATTACH_GLOBAL, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as c_uint);
        assert_eq!(CAPTURE_MODE_RELAXED, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint);
        assert_eq!(POOL_RELEASE_THRESHOLD, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as c_uint);
        assert_eq!(
            AccessDescriptor::full(0).flags,
            sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as c_uint
        );
        assert_eq!(NO_TIMING, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint);
        assert_eq!(NON_BLOCKING, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint);
    }
}
