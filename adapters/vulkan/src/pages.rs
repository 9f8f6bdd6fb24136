//! Pages of a device: a sparse buffer is address space, and memory objects are bound to parts of it.
//!
//! ```text
//!   reserve ──► a sparse buffer, with no memory        map, map ──► the table        allow ──► one vkQueueBindSparse, waited for
//! ```
//!
//! A bind is waited for before its call returns, so that whatever is submitted afterwards, on whatever queue, sees it.
//!
//! Promises upward: the device's limits on sparse buffers and objects are kept; a refused call changes nothing.
//! Asks from below: [`SparsePages`]; buffers and memory objects.

use crate::driver::MemoryObject;
use crate::regions::NO_IMPORT;
use crate::sparse::{FLAGS, PAGE, SparsePages, SparseProbe};
use crate::table::MemoryUse;
use crate::timeline::StreamTimeline;
use crate::vulkan::{BoundRegion, RegionBacking, Shared, VulkanBackend};
use ash::vk;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use terrace_device::{Backend, Fault, FaultReason, PhysicalHandle};

impl VulkanBackend {
    /// Makes what pages need, and tries one: it is bound, written to and taken back.
    pub(crate) fn add_pages(&mut self, probe: SparseProbe) -> Result<(), Fault> {
        let unsupported = Fault::of("vkCreateBuffer", FaultReason::Unsupported);
        let shared = Arc::get_mut(&mut self.shared).ok_or(unsupported)?;
        let (buffer, wanted) = shared.make_buffer(PAGE, FLAGS, NO_IMPORT)?;
        let device = &shared.driver.device;
        // SAFETY: made above, and nothing has it.
        unsafe { device.destroy_buffer(buffer, None) };
        if !PAGE.is_multiple_of(wanted.memory.alignment) {
            return Err(unsupported);
        }
        let queue = if probe.family == shared.family {
            Arc::clone(&shared.queues[0])
        } else {
            // SAFETY: the device was created with a queue of the family.
            Arc::new(Mutex::new(unsafe { device.get_device_queue(probe.family, 0) }))
        };
        let binds = StreamTimeline::new(device, probe.family, queue)?;
        shared.pages = Some(SparsePages::new(probe, binds, wanted.memory.memory_type_bits));
        let address = self.reserve(PAGE)?;
        let tried = self.create_handle(PAGE).and_then(|page| {
            let written = self.try_page(address, page);
            // SAFETY: what was bound is in no use any more: `try_page` waits.
            let unmapped = unsafe { self.unmap(address, PAGE) };
            // SAFETY: made above; no later call names it.
            let released = unsafe { self.release_handle(page) };
            written.and(unmapped).and(released)
        });
        // SAFETY: reserved above, and nothing is mapped in it.
        let gone = unsafe { self.unreserve(address, PAGE) };
        tried.and(gone)
    }

    fn try_page(&self, address: u64, page: PhysicalHandle) -> Result<(), Fault> {
        // SAFETY: fresh space and a fresh handle, each of one page.
        unsafe { self.map(address, PAGE, page) }?;
        // SAFETY: mapped above.
        unsafe { self.allow(address, PAGE, &[]) }?;
        let stream = self.create_stream()?;
        // SAFETY: mapped, and used by nothing else.
        let filled = unsafe { self.fill(address, 1, PAGE, stream) };
        // SAFETY: live.
        let done = unsafe { self.synchronize_stream(stream) };
        // SAFETY: live, and not named again.
        let gone = unsafe { self.destroy_stream(stream) };
        filled.and(done).and(gone)
    }
}

impl Shared {
    fn pages(&self, call: &'static str) -> Result<&SparsePages, Fault> {
        self.check(call)?;
        self.pages.as_ref().ok_or(Fault::of(call, FaultReason::Unsupported))
    }

    /// The sparse buffer around an address, and the address's offset in it.
    fn sparse_buffer(&self, address: u64) -> Result<(vk::Buffer, u64), Fault> {
        let found = self.space.find(address).filter(|(region, _)| region.backing == RegionBacking::Pages);
        found.map(|(region, offset)| (region.buffer, offset)).ok_or(Fault::of("address", FaultReason::BadHandle))
    }

    /// Makes a sparse buffer; returns its address.
    pub fn reserve_pages(&self, bytes: u64) -> Result<u64, Fault> {
        let pages = self.pages("vkCreateBuffer")?;
        let full = Fault::of("sparseAddressSpaceSize", FaultReason::OutOfMemory);
        if !pages.grow(bytes) {
            return Err(full);
        }
        let made = self.make_buffer(bytes, FLAGS, NO_IMPORT).and_then(|(buffer, _)| {
            let object = MemoryObject { memory: vk::DeviceMemory::null(), bytes, type_index: 0, mapped: 0 };
            let region = BoundRegion { buffer, object, shift: 0, backing: RegionBacking::Pages };
            self.space.insert(region, bytes).ok_or_else(|| {
                // SAFETY: made above, and nothing has it.
                unsafe { self.destroy_region(&region) };
                full
            })
        });
        let address = made.inspect_err(|_| pages.shrink(bytes))?;
        self.out.fetch_add(1, Ordering::Relaxed);
        Ok(address)
    }

    /// Destroys a sparse buffer.
    ///
    /// # Safety
    /// Nothing may be mapped in it, and no work in flight may use it.
    pub unsafe fn unreserve_pages(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let pages = self.pages("vkDestroyBuffer")?;
        self.sparse_buffer(address)?;
        let region = self.space.remove(address).ok_or(Fault::of("address", FaultReason::BadHandle))?;
        // SAFETY: the caller's promise, and no address leads to it any more.
        unsafe { self.destroy_region(&region) };
        pages.shrink(bytes);
        self.out.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates memory for pages.
    pub fn create_page_memory(&self, bytes: u64) -> Result<PhysicalHandle, Fault> {
        let pages = self.pages("vkAllocateMemory")?;
        let object = self.take_object(pages.type_bits, MemoryUse::Device, bytes)?;
        let handle = PhysicalHandle(self.name());
        pages.table().add(handle, object);
        self.out.fetch_add(1, Ordering::Relaxed);
        Ok(handle)
    }

    /// Frees memory that is bound nowhere.
    fn free_page_memory(&self, objects: impl IntoIterator<Item = MemoryObject>) {
        for object in objects {
            // SAFETY: the table had it, and names it no more: it is released, and bound nowhere.
            unsafe { self.objects.give_back(&object) };
            self.out.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn release_page_memory(&self, handle: PhysicalHandle) -> Result<(), Fault> {
        let released = self.pages("vkFreeMemory")?.table().release(handle);
        self.free_page_memory(released.ok_or(Fault::of("vkFreeMemory", FaultReason::BadHandle))?);
        Ok(())
    }

    /// Maps memory at an address, where [`bind_pages`](Self::bind_pages) binds it.
    pub fn map_pages(&self, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
        let pages = self.pages("vkQueueBindSparse")?;
        let (_, offset) = self.sparse_buffer(address)?;
        let mapped = offset.is_multiple_of(PAGE) && pages.table().map(address, bytes, handle);
        if mapped { Ok(()) } else { Err(Fault::of("vkQueueBindSparse", FaultReason::BadHandle)) }
    }

    /// Binds what is mapped in a range.
    ///
    /// # Safety
    /// No work in flight may use the range.
    pub unsafe fn bind_pages(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let pages = self.pages("vkQueueBindSparse")?;
        let (buffer, offset) = self.sparse_buffer(address)?;
        let binds = pages.table().binds(address, bytes, offset);
        let binds = binds.ok_or(Fault::of("vkQueueBindSparse", FaultReason::BadHandle))?;
        // SAFETY: the caller's promise; the table's memory is live, and so is the buffer.
        unsafe { pages.binds.bind(&self.driver.device, buffer, &binds) }?;
        pages.table().set_bound(address, bytes);
        Ok(())
    }

    /// Unbinds and unmaps a range.
    ///
    /// # Safety
    /// As for [`bind_pages`](Self::bind_pages); whole handles must be mapped in the range.
    pub unsafe fn unmap_pages(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let pages = self.pages("vkQueueBindSparse")?;
        let (buffer, offset) = self.sparse_buffer(address)?;
        let bound = pages.table().is_bound(address, bytes);
        if bound {
            let bind = [vk::SparseMemoryBind::default().resource_offset(offset).size(bytes)];
            // SAFETY: the caller's promise; no memory is named.
            unsafe { pages.binds.bind(&self.driver.device, buffer, &bind) }?;
        }
        let free = pages.table().unmap(address, bytes);
        self.free_page_memory(free);
        Ok(())
    }
}
