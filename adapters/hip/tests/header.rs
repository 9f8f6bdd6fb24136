//! HIP's numbers and names beside its header, as bindings that others made of it.

use cubecl_hip_sys as header;
use terrace_cuda::Attributes;
use terrace_hip::HIP;

#[test]
fn attributes_are_those_of_the_header() {
    let expected = Attributes {
        integrated: header::hipDeviceAttribute_t_hipDeviceAttributeIntegrated,
        unified_addressing: header::hipDeviceAttribute_t_hipDeviceAttributeUnifiedAddressing,
        managed_memory: header::hipDeviceAttribute_t_hipDeviceAttributeManagedMemory,
        host_native_atomics: header::hipDeviceAttribute_t_hipDeviceAttributeHostNativeAtomicSupported,
        pageable_memory: header::hipDeviceAttribute_t_hipDeviceAttributePageableMemoryAccess,
        concurrent_managed: header::hipDeviceAttribute_t_hipDeviceAttributeConcurrentManagedAccess,
        host_register: header::hipDeviceAttribute_t_hipDeviceAttributeHostRegisterSupported,
        virtual_memory: header::hipDeviceAttribute_t_hipDeviceAttributeVirtualMemoryManagementSupported,
        memory_pools: header::hipDeviceAttribute_t_hipDeviceAttributeMemoryPoolsSupported,
    };
    assert_eq!(HIP.attributes, expected);
}

#[test]
fn codes_are_those_of_the_header() {
    let named = |code: u32, name: &str| assert!(HIP.codes.contains(&(code as i32, name)), "{name}");
    named(header::hipError_t_hipErrorOutOfMemory, "hipErrorOutOfMemory");
    named(header::hipError_t_hipErrorNotReady, "hipErrorNotReady");
    named(header::hipError_t_hipErrorNotSupported, "hipErrorNotSupported");
    named(header::hipError_t_hipErrorContextIsDestroyed, "hipErrorContextIsDestroyed");
    named(header::hipError_t_hipErrorPeerAccessAlreadyEnabled, "hipErrorPeerAccessAlreadyEnabled");
    named(header::hipError_t_hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported");
    named(header::hipError_t_hipErrorInvalidHandle, "hipErrorInvalidHandle");
}

#[test]
fn what_goes_to_hip_as_to_cuda_means_the_same() {
    assert_eq!(header::hipMemcpyKind_hipMemcpyDefault, 4);
    assert_eq!(header::hipMemAllocationType_hipMemAllocationTypePinned, 1);
    assert_eq!(header::hipMemLocationType_hipMemLocationTypeDevice, 1);
    assert_eq!(header::hipMemAccessFlags_hipMemAccessFlagsProtReadWrite, 3);
    assert_eq!(header::hipMemAllocationGranularity_flags_hipMemAllocationGranularityMinimum, 0);
    assert_eq!(header::hipMemPoolAttr_hipMemPoolAttrReleaseThreshold, 4);
    assert_eq!(header::hipStreamCaptureMode_hipStreamCaptureModeRelaxed, 2);
    let advice = [
        header::hipMemoryAdvise_hipMemAdviseSetReadMostly,
        header::hipMemoryAdvise_hipMemAdviseUnsetReadMostly,
        header::hipMemoryAdvise_hipMemAdviseSetPreferredLocation,
        header::hipMemoryAdvise_hipMemAdviseUnsetPreferredLocation,
        header::hipMemoryAdvise_hipMemAdviseSetAccessedBy,
        header::hipMemoryAdvise_hipMemAdviseUnsetAccessedBy,
    ];
    assert_eq!(advice, [1, 2, 3, 4, 5, 6]);
    assert_eq!([size_of::<header::hipMemAllocationProp>(), size_of::<header::hipMemPoolProps>()], [32, 88]);
    assert_eq!([size_of::<header::hipMemAccessDesc>(), size_of::<header::hipMemcpyAttributes>()], [12, 24]);
    assert_eq!(std::mem::offset_of!(header::hipMemAllocationProp, location), 8);
}
