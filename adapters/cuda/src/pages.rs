//! Virtual address ranges, physical pages, their mapping and access rights.
//!
//! Promises upward: sizes are multiples of a page, [`Description::page_bytes`](terrace_device::Description::page_bytes). Each
//! handle is one allocation of the driver, and is mapped and unmapped as a whole.
//! Asks from below: the eight functions of [`PageFunctions`].
//!
//! Physical memory belongs to a device and its mappings to the process: calls that create, map, open, unmap and release it need no
//! context (the driver's manual lists no error about one). The first three are allowed while a graph is captured, as PyTorch's
//! expandable segments make them then; the last two may wait for work, so they are made with captures relaxed.

use crate::cuda::Cuda;
use crate::functions::PageFunctions;
use crate::layouts::{self, AccessDescriptor, GRANULARITY_MINIMUM, PageProperties};
use crate::library::missing_fault;
use crate::result_codes::{as_bad_handle, size};
use std::iter;
use terrace_device::{Fault, FaultReason, PhysicalHandle};

/// The smallest page size in use: 2 MiB, the device's own large page.
///
/// Smaller pages would need more calls for the same memory.
const SMALLEST: u64 = 2 << 20;

fn functions(cuda: &Cuda) -> Result<&'static PageFunctions, Fault> {
    cuda.primary.functions.pages.as_ref().map_err(missing_fault)
}

/// Page size in bytes: the driver's granularity, at least 2 MiB, a power of two.
pub fn granularity(cuda: &Cuda) -> Result<u64, Fault> {
    const CALL: &str = "cuMemGetAllocationGranularity";
    let pages = functions(cuda)?;
    let properties = PageProperties::on(cuda.primary.device);
    let mut bytes = 0;
    cuda.primary.call(CALL, |_| {
        // SAFETY: out parameter and properties live through the call.
        unsafe { (pages.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, GRANULARITY_MINIMUM) }
    })?;
    match bytes as u64 {
        bytes if bytes.is_power_of_two() => Ok(bytes.max(SMALLEST)),
        _ => Err(cuda.primary.fault(CALL, FaultReason::Other)),
    }
}

/// Reserves a range of address space, aligned to the page size.
pub fn reserve(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemAddressReserve", bytes)?;
    let alignment = size_of_page(cuda)?;
    let mut address = 0;
    cuda.primary.call_relaxed("cuMemAddressReserve", |_| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (pages.cuMemAddressReserve)(&raw mut address, size, alignment, 0, 0) }
    })?;
    if address.is_multiple_of(alignment as u64) {
        return Ok(address);
    }
    // A driver may take no notice of the alignment (HIP's of ROCm 6).
    // SAFETY: reserved above, and nothing is mapped there.
    unsafe { unreserve(cuda, address, bytes) }?;
    Err(cuda.primary.fault("cuMemAddressReserve", FaultReason::Unsupported))
}

/// Frees a reserved range of address space.
///
/// # Safety
/// [`reserve`] must have returned the address for this many bytes, and nothing may be mapped there.
pub unsafe fn unreserve(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemAddressFree", bytes)?;
    let done = cuda.primary.call_relaxed("cuMemAddressFree", |_| {
        // SAFETY: the caller promises a reserved range without mappings.
        unsafe { (pages.cuMemAddressFree)(address, size) }
    });
    done.map_err(as_bad_handle)
}

/// Allocates physical memory on the device, whole pages.
pub fn create(cuda: &Cuda, bytes: u64) -> Result<PhysicalHandle, Fault> {
    let pages = functions(cuda)?;
    size_of_page(cuda)?;
    let bytes = size("cuMemCreate", bytes)?;
    let properties = PageProperties::on(cuda.primary.device);
    let mut handle = 0;
    cuda.primary.call_on_device("cuMemCreate", || {
        // SAFETY: out parameter and properties live through the call.
        unsafe { (pages.cuMemCreate)(&raw mut handle, bytes, &raw const properties, 0) }
    })?;
    Ok(PhysicalHandle(handle))
}

/// Releases a handle. Its memory stays allocated while it is mapped.
///
/// # Safety
/// [`create`] must have returned the handle, and no later call may name it.
pub unsafe fn release(cuda: &Cuda, handle: PhysicalHandle) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let done = cuda.primary.call_on_device_relaxed("cuMemRelease", || {
        // SAFETY: the caller promises a live handle; the driver keeps memory that is mapped.
        unsafe { (pages.cuMemRelease)(handle.0) }
    });
    done.map_err(as_bad_handle)
}

/// Maps all memory of a handle at an address.
///
/// # Safety
/// The handle must have `bytes` bytes; the address must be a multiple of the page size, in a reserved range, with nothing mapped
/// in all of it.
pub unsafe fn map(cuda: &Cuda, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let bytes = size("cuMemMap", bytes)?;
    let done = cuda.primary.call_on_device("cuMemMap", || {
        // SAFETY: the caller promises reserved, unmapped addresses.
        unsafe { (pages.cuMemMap)(address, bytes, 0, handle.0, 0) }
    });
    done.map_err(as_bad_handle)
}

/// Grants this device and `peers` read and write access to a range.
///
/// # Safety
/// All of the range must be mapped.
pub unsafe fn allow(cuda: &Cuda, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemSetAccess", bytes)?;
    let own = AccessDescriptor::full(cuda.primary.device);
    let allow = |accesses: &[AccessDescriptor]| {
        cuda.primary.call_on_device("cuMemSetAccess", || {
            // SAFETY: the caller promises a mapped range; the descriptors live through the call.
            unsafe { (pages.cuMemSetAccess)(address, size, accesses.as_ptr(), accesses.len()) }
        })
    };
    let done = if peers.is_empty() {
        allow(&[own])
    } else {
        allow(&iter::once(own).chain(layouts::full_access(peers)).collect::<Vec<_>>())
    };
    done.map_err(as_bad_handle)
}

/// Unmaps the pages of a range.
///
/// # Safety
/// All of the range must be mapped, and no queued work may use it.
pub unsafe fn unmap(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemUnmap", bytes)?;
    let done = cuda.primary.call_on_device_relaxed("cuMemUnmap", || {
        // SAFETY: the caller promises a mapped range that no work uses.
        unsafe { (pages.cuMemUnmap)(address, size) }
    });
    done.map_err(as_bad_handle)
}

/// The page size in bytes as the driver's `size_t`; an `Unsupported` fault if the device cannot map pages.
fn size_of_page(cuda: &Cuda) -> Result<usize, Fault> {
    match cuda.description.page_bytes {
        0 => Err(cuda.primary.fault("cuMemMap", FaultReason::Unsupported)),
        bytes => size("cuMemMap", bytes),
    }
}
