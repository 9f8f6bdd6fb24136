//! One page, all the way: address space, memory, map, access, a byte written by the device, and everything back.
//!
//! Promises upward: success means that the device really mapped and wrote; on failure nothing is left, whichever call it was.
//! Asks from below: `pages`, as it is used later.
//!
//! Each step is a function that undoes its own after the next ones ran.

use crate::cuda::Cuda;
use crate::pages;
use crate::regions::synchronize;
use terrace_device::{Backend, Fault, Page, RawStream, insist};

/// Space, and a page in it.
pub fn reserve_and_write(cuda: &Cuda, bytes: u64) -> Result<(), Fault> {
    let address = pages::reserve(cuda, bytes)?;
    let tried = create_and_write(cuda, address, bytes);
    // SAFETY: reserved above; the page was taken away again.
    let back = insist(|| unsafe { pages::unreserve(cuda, address, bytes) });
    tried.and(back)
}

/// A page, and its use at an address.
fn create_and_write(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    let page = pages::create(cuda)?;
    let tried = map_and_write(cuda, address, bytes, page);
    // SAFETY: made above, and no later call names it. A refused call released nothing.
    let back = insist(|| unsafe { pages::release(cuda, page) });
    tried.and(back)
}

/// A page in its place, and a write to it.
fn map_and_write(cuda: &Cuda, address: u64, bytes: u64, page: Page) -> Result<(), Fault> {
    // SAFETY: space of one page, reserved for this.
    unsafe { pages::map(cuda, address, page) }?;
    let tried = write_byte(cuda, address, bytes);
    // SAFETY: mapped above; what was written is waited for.
    let back = insist(|| unsafe { pages::unmap(cuda, address, bytes) });
    tried.and(back)
}

/// A byte, written by the device.
fn write_byte(cuda: &Cuda, address: u64, bytes: u64) -> Result<(), Fault> {
    // SAFETY: mapped by the caller.
    unsafe { pages::allow(cuda, address, bytes, &[]) }?;
    // SAFETY: one byte of the page, which stays until the stream is done.
    unsafe { cuda.fill(address, 1, 1, RawStream(cuda.stream)) }?;
    // Nothing may be taken away while the byte is still written.
    insist(|| synchronize(cuda))
}
