//! The probe of page mapping: reserves a range, creates a page, maps it, grants access, writes a byte, and undoes all of it.
//!
//! Promises upward: `Ok` means that the device mapped the page and wrote to it. If a call fails, nothing stays
//! allocated.
//! Asks from below: the functions of `pages`, which the backend uses too.
//!
//! Each step is a function: it takes the step, calls the next function, and undoes the step.

use crate::cuda::Cuda;
use crate::pages;
use crate::regions::synchronize;
use terrace_device::{Backend, Fault, PhysicalHandle, RawStream, insist};

/// Reserves a range, runs the later steps, and frees the range.
pub fn reserve_and_write(cuda: &Cuda, bytes: u64) -> Result<(), Fault> {
    let address = pages::reserve(cuda, bytes)?;
    let tried = create_and_write(cuda, address, bytes);
    // SAFETY: reserved above, and the page is unmapped again.
    let back = insist(|| unsafe { pages::unreserve(cuda, address, bytes) });
    tried.and(back)
}

/// Creates a page, runs the later steps, and releases the page.
fn create_and_write(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let page = pages::create(cuda, bytes)?;
    let tried = map_and_write(cuda, address, bytes, page);
    // SAFETY: created above, and no later call names it; a refused call releases nothing.
    let back = insist(|| unsafe { pages::release(cuda, page) });
    tried.and(back)
}

/// Maps the page, runs the last step, and unmaps the page.
fn map_and_write(cuda: &Cuda, address: u64, bytes: u64, page: PhysicalHandle) -> Result<(), Fault> {
    // SAFETY: the address is reserved for one page, and nothing is mapped there.
    unsafe { pages::map(cuda, address, bytes, page) }?;
    let tried = write_byte(cuda, address, bytes);
    // SAFETY: mapped above; `write_byte` waited for the write.
    let back = insist(|| unsafe { pages::unmap(cuda, address, bytes) });
    tried.and(back)
}

/// Grants access to the page, lets the device write a byte, and waits for the write.
fn write_byte(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    // SAFETY: the caller mapped the range.
    unsafe { pages::allow(cuda, address, bytes, &[]) }?;
    // SAFETY: the byte lies in the page, which stays mapped until the stream is done.
    unsafe { cuda.fill(address, 1, 1, RawStream(cuda.stream)) }?;
    // Waits before the caller unmaps the page: the write may still be running.
    insist(|| synchronize(cuda))
}
