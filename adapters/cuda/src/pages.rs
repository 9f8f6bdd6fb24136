//! Address space, pages, and who may use them.
//!
//! Promises upward: pages of one size, [`Description::page_bytes`](terrace_device::Description::page_bytes), each a handle of
//! the driver, mapped and unmapped whole.
//! Asks from below: the eight functions of [`Pages`](crate::functions::Pages).

use crate::codes::{of_handle, size};
use crate::cuda::Cuda;
use crate::functions::Pages;
use crate::layouts::{self, Access, GRANULARITY_MINIMUM, PageProperties};
use crate::library::absent;
use std::iter;
use terrace_device::{Fault, FaultReason, Page};

/// The smallest page that is used: 2 MiB, which is the device's own large page. A driver that maps less at a time would
/// only make more calls of the same memory.
const SMALLEST: u64 = 2 << 20;

fn functions(cuda: &Cuda) -> Result<&'static Pages, Fault> {
    cuda.primary.functions.pages.as_ref().map_err(absent)
}

/// Bytes of a page as this device maps them: a power of two.
pub fn granularity(cuda: &Cuda) -> Result<u64, Fault> {
    const CALL: &str = "cuMemGetAllocationGranularity";
    let pages = functions(cuda)?;
    let properties = PageProperties::on(cuda.primary.device);
    let mut bytes = 0;
    cuda.primary.call(CALL, |_| {
        // SAFETY: both live through the call.
        unsafe { (pages.cuMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, GRANULARITY_MINIMUM) }
    })?;
    match bytes as u64 {
        bytes if bytes.is_power_of_two() => Ok(bytes.max(SMALLEST)),
        _ => Err(Fault::of(CALL, FaultReason::Other)),
    }
}

/// Reserves address space.
pub fn reserve(cuda: &Cuda, bytes: u64) -> Result<u64, Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemAddressReserve", bytes)?;
    let alignment = size_of_page(cuda)?;
    let mut address = 0;
    cuda.primary.relaxed("cuMemAddressReserve", |_| {
        // SAFETY: the out parameter lives through the call.
        unsafe { (pages.cuMemAddressReserve)(&raw mut address, size, alignment, 0, 0) }
    })?;
    Ok(address)
}

/// Gives address space back.
///
/// # Safety
/// [`reserve`] gave it for this many bytes, and nothing is mapped there.
pub unsafe fn unreserve(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemAddressFree", bytes)?;
    let done = cuda.primary.relaxed("cuMemAddressFree", |_| {
        // SAFETY: the caller's promise.
        unsafe { (pages.cuMemAddressFree)(address, size) }
    });
    done.map_err(of_handle)
}

/// Takes a page.
pub fn create(cuda: &Cuda) -> Result<Page, Fault> {
    let pages = functions(cuda)?;
    let bytes = size_of_page(cuda)?;
    let properties = PageProperties::on(cuda.primary.device);
    let mut page = 0;
    cuda.primary.relaxed("cuMemCreate", |_| {
        // SAFETY: both live through the call.
        unsafe { (pages.cuMemCreate)(&raw mut page, bytes, &raw const properties, 0) }
    })?;
    Ok(Page(page))
}

/// Gives a page back.
///
/// # Safety
/// [`create`] gave it, it is not given back yet, and no later call names it.
pub unsafe fn release(cuda: &Cuda, page: Page) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let done = cuda.primary.relaxed("cuMemRelease", |_| {
        // SAFETY: the caller's promise. A page's memory lives on while it is mapped, so nothing that is in use goes away.
        unsafe { (pages.cuMemRelease)(page.0) }
    });
    done.map_err(of_handle)
}

/// Maps a page.
///
/// # Safety
/// The address is a multiple of the page, reserved, and nothing is mapped there.
pub unsafe fn map(cuda: &Cuda, address: u64, page: Page) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let bytes = size_of_page(cuda)?;
    let done = cuda.primary.relaxed("cuMemMap", |_| {
        // SAFETY: the caller's promise.
        unsafe { (pages.cuMemMap)(address, bytes, 0, page.0, 0) }
    });
    done.map_err(of_handle)
}

/// Lets this device and `peers` use a range.
///
/// # Safety
/// All of it is mapped.
pub unsafe fn allow(cuda: &Cuda, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemSetAccess", bytes)?;
    let own = Access::full(cuda.primary.device);
    let allow = |accesses: &[Access]| {
        cuda.primary.relaxed("cuMemSetAccess", |_| {
            // SAFETY: the caller's promise; the accesses live through the call.
            unsafe { (pages.cuMemSetAccess)(address, size, accesses.as_ptr(), accesses.len()) }
        })
    };
    let done = if peers.is_empty() {
        allow(&[own])
    } else {
        allow(&iter::once(own).chain(layouts::accesses(peers)).collect::<Vec<_>>())
    };
    done.map_err(of_handle)
}

/// Takes the pages under a range away.
///
/// # Safety
/// All of it is mapped, and no work uses it.
pub unsafe fn unmap(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let pages = functions(cuda)?;
    let size = size("cuMemUnmap", bytes)?;
    let done = cuda.primary.relaxed("cuMemUnmap", |_| {
        // SAFETY: the caller's promise.
        unsafe { (pages.cuMemUnmap)(address, size) }
    });
    done.map_err(of_handle)
}

/// A page as the driver takes sizes. A device that maps none has none.
fn size_of_page(cuda: &Cuda) -> Result<usize, Fault> {
    match cuda.description.page_bytes {
        0 => Err(Fault::of("cuMemMap", FaultReason::Unsupported)),
        bytes => size("cuMemMap", bytes),
    }
}
