//! Layouts, numbers and names beside those of cudarc, which were made from `cuda.h`.

use super::attributes as ours;
use super::{
    Access, CopyAttributes, DeviceResource, IpcHandle, Location, PlaneCopy, PlaneEnd, PoolProperties, Properties, Uuid,
    codes,
};
use cudarc::driver::sys;
use std::mem::{align_of, offset_of, size_of};

macro_rules! same_layout {
    ($ours:ty = $theirs:ty: $($field:ident = $other:ident),*) => {
        assert_eq!((size_of::<$ours>(), align_of::<$ours>()), (size_of::<$theirs>(), align_of::<$theirs>()));
        $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $other), stringify!($ours.$field));)*
    };
}

#[test]
fn structures_are_laid_out_as_in_c() {
    same_layout!(Location = sys::CUmemLocation: kind = type_, id = id);
    same_layout!(Access = sys::CUmemAccessDesc: location = location, flags = flags);
    same_layout!(Properties = sys::CUmemAllocationProp: kind = type_, handle_types = requestedHandleTypes,
        location = location, security = win32HandleMetaData, compression = allocFlags);
    same_layout!(PoolProperties = sys::CUmemPoolProps: kind = allocType, handle_types = handleTypes,
        location = location, security = win32SecurityAttributes, max_size = reserved);
    same_layout!(PlaneCopy = sys::CUDA_MEMCPY2D: from = srcXInBytes, to = dstXInBytes, width = WidthInBytes,
        height = Height);
    let source = offset_of!(PlaneCopy, from);
    let places = [
        (offset_of!(PlaneEnd, y), offset_of!(sys::CUDA_MEMCPY2D, srcY)),
        (offset_of!(PlaneEnd, kind), offset_of!(sys::CUDA_MEMCPY2D, srcMemoryType)),
        (offset_of!(PlaneEnd, host), offset_of!(sys::CUDA_MEMCPY2D, srcHost)),
        (offset_of!(PlaneEnd, device), offset_of!(sys::CUDA_MEMCPY2D, srcDevice)),
        (offset_of!(PlaneEnd, array), offset_of!(sys::CUDA_MEMCPY2D, srcArray)),
        (offset_of!(PlaneEnd, pitch), offset_of!(sys::CUDA_MEMCPY2D, srcPitch)),
    ];
    places.iter().for_each(|(ours, theirs)| assert_eq!(source + ours, *theirs));
    // Of CUDA 12.8, which this cudarc does not know: three enums and two locations.
    assert_eq!(size_of::<CopyAttributes>(), 2 * size_of::<i32>() + 2 * size_of::<sys::CUmemLocation>());
    // Of CUDA 12.4: a type, 92 bytes of padding, a union of 40 bytes, and a pointer.
    assert_eq!((size_of::<DeviceResource>(), align_of::<DeviceResource>()), (144, 8));
    assert_eq!((offset_of!(DeviceResource, sm), offset_of!(DeviceResource, next)), (96, 136));
    same_layout!(IpcHandle = sys::CUipcMemHandle:);
    same_layout!(IpcHandle = sys::CUipcEventHandle:);
    assert_eq!(size_of::<Uuid>(), size_of::<sys::CUuuid>());
    assert_eq!(size_of::<sys::CUstream>(), size_of::<u64>());
    assert_eq!(size_of::<sys::CUdeviceptr>(), size_of::<u64>());
    assert_eq!(size_of::<sys::CUmemGenericAllocationHandle>(), size_of::<u64>());
}

#[test]
fn device_attributes_have_their_numbers() {
    use ours::device as o;
    use sys::CUdevice_attribute_enum as t;
    let pairs = [
        (o::MAX_PITCH, t::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        (o::TEXTURE_PITCH_ALIGNMENT, t::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT),
        (o::INTEGRATED, t::CU_DEVICE_ATTRIBUTE_INTEGRATED),
        (o::WARP_SIZE, t::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        (o::MULTIPROCESSOR_COUNT, t::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        (o::UNIFIED_ADDRESSING, t::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
        (o::COMPUTE_CAPABILITY_MAJOR, t::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        (o::COMPUTE_CAPABILITY_MINOR, t::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        (o::MANAGED_MEMORY, t::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
        (o::PAGEABLE_MEMORY_ACCESS, t::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
        (o::CONCURRENT_MANAGED_ACCESS, t::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
        (o::HOST_REGISTER_SUPPORTED, t::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
        (o::VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, t::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED),
        (
            o::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            t::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        ),
        (o::MEMORY_POOLS_SUPPORTED, t::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
    ];
    pairs.iter().for_each(|(ours, theirs)| assert_eq!(*ours, *theirs as i32, "{theirs:?}"));
}

#[test]
fn other_enums_have_their_numbers() {
    use sys::{CUmemPool_attribute_enum as pool, CUpointer_attribute_enum as pointer};
    assert_eq!(ours::pointer::IS_MANAGED, pointer::CU_POINTER_ATTRIBUTE_IS_MANAGED as i32);
    assert_eq!(ours::pointer::RANGE_SIZE, pointer::CU_POINTER_ATTRIBUTE_RANGE_SIZE as i32);
    assert_eq!(ours::pointer::MEMPOOL_HANDLE, pointer::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as i32);
    assert_eq!(ours::pool::RELEASE_THRESHOLD, pool::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as i32);
    assert_eq!(ours::pool::USED_MEM_HIGH, pool::CU_MEMPOOL_ATTR_USED_MEM_HIGH as i32);
    assert_eq!(ours::status::INVALIDATED, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED as i32);
    assert_eq!(ours::mode::RELAXED, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as i32);
    let first = sys::CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY as i32;
    assert_eq!((ours::range::READ_MOSTLY, ours::range::LAST_PREFETCH_LOCATION), (first, first + 3));
    assert_eq!(ours::advise::SET_ACCESSED_BY, sys::CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY as i32);
    let shared = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as i32;
    assert_eq!(ours::handle_type::POSIX_FILE_DESCRIPTOR, shared);
    assert_eq!(ours::handle_type::WIN32_KMT, sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_WIN32_KMT.0 as i32);
    assert_eq!(ours::LOCATION_DEVICE, sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as i32);
    assert_eq!(ours::ACCESS_READ_WRITE, sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as i32);
}

#[test]
fn error_codes_have_their_numbers_and_names() {
    use sys::CUresult as t;
    let all = [
        t::CUDA_ERROR_INVALID_VALUE,
        t::CUDA_ERROR_OUT_OF_MEMORY,
        t::CUDA_ERROR_NOT_INITIALIZED,
        t::CUDA_ERROR_DEINITIALIZED,
        t::CUDA_ERROR_NO_DEVICE,
        t::CUDA_ERROR_INVALID_DEVICE,
        t::CUDA_ERROR_INVALID_IMAGE,
        t::CUDA_ERROR_INVALID_CONTEXT,
        t::CUDA_ERROR_UNSUPPORTED_LIMIT,
        t::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        t::CUDA_ERROR_INVALID_PTX,
        t::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
        t::CUDA_ERROR_INVALID_HANDLE,
        t::CUDA_ERROR_ILLEGAL_STATE,
        t::CUDA_ERROR_NOT_FOUND,
        t::CUDA_ERROR_NOT_READY,
        t::CUDA_ERROR_ILLEGAL_ADDRESS,
        t::CUDA_ERROR_LAUNCH_TIMEOUT,
        t::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        t::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
        t::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        t::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        t::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        t::CUDA_ERROR_LAUNCH_FAILED,
        t::CUDA_ERROR_NOT_PERMITTED,
        t::CUDA_ERROR_NOT_SUPPORTED,
        t::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        t::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        t::CUDA_ERROR_STREAM_CAPTURE_MERGE,
        t::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        t::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        t::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        t::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        t::CUDA_ERROR_CAPTURED_EVENT,
        t::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        t::CUDA_ERROR_UNKNOWN,
    ];
    for code in all {
        let (name, _) = codes::describe(code as i32).unwrap_or_else(|| panic!("{code:?} is not in the table"));
        assert_eq!(name.to_string_lossy(), format!("{code:?}"));
    }
    assert_eq!(codes::describe(5), None);
}
