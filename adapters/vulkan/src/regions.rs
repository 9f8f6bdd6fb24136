//! Memory of a device by address: each region is a buffer bound to a memory object of its own.
//!
//! Promises upward: regions of pinned and managed memory have the host's address, a multiple of 256; others an address that no pointer
//! has; a refused call leaves nothing.
//! Asks from below: [`Objects`] within the device's limits; `ObjectSpace` for addresses.

#[cfg(test)]
mod tests;

use crate::driver::{MemoryDriver, MemoryObject, ObjectRequest, Requirements, Resource};
use crate::fault::fault;
use crate::table::MemoryUse;
use crate::vulkan::{BoundRegion, RegionBacking, Shared};
use ash::vk;
use terrace_device::{Fault, FaultReason, MemoryKind};
use vk::MemoryPropertyFlags as Flags;

/// Regions begin at multiples of this where the host sees them; elsewhere at larger ones.
const ALIGN: u64 = 256;

/// A buffer whose memory is Vulkan's own.
pub(crate) const NO_IMPORT: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::empty();

/// All that a program or this crate does with a buffer.
pub(crate) fn buffer_usage(device_address: bool) -> vk::BufferUsageFlags {
    let all = vk::BufferUsageFlags::TRANSFER_SRC
        | vk::BufferUsageFlags::TRANSFER_DST
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER
        | vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER
        | vk::BufferUsageFlags::UNIFORM_BUFFER
        | vk::BufferUsageFlags::STORAGE_BUFFER
        | vk::BufferUsageFlags::INDEX_BUFFER
        | vk::BufferUsageFlags::VERTEX_BUFFER
        | vk::BufferUsageFlags::INDIRECT_BUFFER;
    if device_address { all | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS } else { all }
}

/// Where memory of a kind lies.
pub(crate) fn usage(kind: MemoryKind) -> Option<MemoryUse> {
    let shared = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
    match kind {
        MemoryKind::Device => Some(MemoryUse::Device),
        MemoryKind::Pinned => Some(MemoryUse::Properties { required: shared, preferred: Flags::HOST_CACHED }),
        MemoryKind::Managed => {
            Some(MemoryUse::Properties { required: shared | Flags::DEVICE_LOCAL, preferred: Flags::HOST_CACHED })
        }
        MemoryKind::Pool => None,
    }
}

impl Shared {
    /// Allocates a region; returns its address.
    pub fn take_region(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        let full = Fault::of("take", FaultReason::OutOfMemory);
        let for_host = kind != MemoryKind::Device;
        // The driver may map memory at any multiple of 64.
        let padded = if for_host { bytes.checked_add(ALIGN) } else { Some(bytes) };
        let padded = padded.filter(|&padded| bytes > 0 && padded <= self.objects.table.max_object_bytes).ok_or(full)?;
        let region = self.make_region(kind, padded)?;
        let address = if for_host {
            let address = region.object.mapped.next_multiple_of(ALIGN);
            let region = BoundRegion { shift: address - region.object.mapped, ..region };
            (region.object.mapped != 0 && self.space.insert_at(region, address, bytes)).then_some(address)
        } else {
            self.space.insert(region, bytes)
        };
        address.ok_or_else(|| {
            // SAFETY: made above, and nothing has it.
            unsafe { self.destroy_region(&region) };
            full
        })
    }

    /// A buffer and memory for it, bound.
    pub fn make_region(&self, kind: MemoryKind, bytes: u64) -> Result<BoundRegion, Fault> {
        let usage = usage(kind).ok_or(Fault::of("take", FaultReason::Unsupported))?;
        let (buffer, wanted) = self.make_buffer(bytes, vk::BufferCreateFlags::empty(), NO_IMPORT)?;
        let object = self.take_object(wanted.memory.memory_type_bits, usage, wanted.memory.size).inspect_err(|_| {
            // SAFETY: made above, and nothing has it.
            unsafe { self.driver.device.destroy_buffer(buffer, None) };
        })?;
        self.bound(BoundRegion { buffer, object, shift: 0, backing: RegionBacking::Object })
    }

    /// A memory object of the first type that has room.
    pub fn take_object(&self, type_bits: u32, usage: MemoryUse, bytes: u64) -> Result<MemoryObject, Fault> {
        let mut last = Fault::of("take", FaultReason::Unsupported);
        for at in self.objects.table.pool_candidates(type_bits, usage) {
            match self.objects.take(at, bytes, None) {
                Err(fault) if fault.reason == FaultReason::OutOfMemory => last = fault,
                done => return done,
            }
        }
        Err(last)
    }

    /// Gives the device memory of the process: whole pages of `atom` bytes around a range.
    ///
    /// The range keeps its address.
    /// # Safety
    /// The pages must be memory of the process until the region is destroyed.
    pub unsafe fn import_region(&self, address: u64, bytes: u64, atom: u64) -> Result<(), Fault> {
        const CALL: &str = "vkGetMemoryHostPointerPropertiesEXT";
        let imports = self.imports.as_ref().ok_or(Fault::of(CALL, FaultReason::Unsupported))?;
        let refused = Fault::of("register", FaultReason::Other);
        if bytes == 0 {
            return Err(refused);
        }
        let first = address & !(atom - 1);
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(atom)).ok_or(refused)?;
        let (kind, bytes_around) = (vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT, end - first);
        let pointer = std::ptr::with_exposed_provenance_mut::<std::ffi::c_void>(first as usize);
        let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
        let get = imports.fp().get_memory_host_pointer_properties_ext;
        // SAFETY: the device has the extension; the structure lives through the call; the pages are the process's.
        let found = unsafe { get(self.driver.device.handle(), kind, pointer, &mut properties) };
        found.result().map_err(|code| fault(CALL, code))?;
        let (buffer, wanted) = self.make_buffer(bytes_around, vk::BufferCreateFlags::empty(), kind)?;
        let bits = wanted.memory.memory_type_bits & properties.memory_type_bits;
        let required = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let types =
            self.objects.table.candidates(bits, MemoryUse::Properties { required, preferred: Flags::HOST_CACHED });
        let imported = types
            .first()
            .filter(|_| wanted.memory.size <= bytes_around)
            .ok_or(Fault::of(CALL, FaultReason::Unsupported));
        let imported = imported.and_then(|&type_index| {
            let mut import = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(kind).host_pointer(pointer);
            let request = ObjectRequest { type_index, bytes: bytes_around, ..ObjectRequest::default() };
            self.objects.count_one()?;
            self.driver.allocate_with(&request, Some(&mut import)).inspect_err(|_| self.objects.uncount_one())
        });
        let object = imported.inspect_err(|_| {
            // SAFETY: made above, and nothing has it.
            unsafe { self.driver.device.destroy_buffer(buffer, None) };
        })?;
        let region =
            self.bound(BoundRegion { buffer, object, shift: address - first, backing: RegionBacking::Import })?;
        if self.space.insert_at(region, address, bytes) {
            return Ok(());
        }
        // SAFETY: made above, and nothing has it.
        unsafe { self.destroy_region(&region) };
        Err(refused)
    }

    /// A buffer without memory; `import`: from what its memory will be imported.
    pub fn make_buffer(
        &self,
        bytes: u64,
        flags: vk::BufferCreateFlags,
        import: vk::ExternalMemoryHandleTypeFlags,
    ) -> Result<(vk::Buffer, Requirements), Fault> {
        self.driver.check_process("vkCreateBuffer")?;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(import);
        let mut info = vk::BufferCreateInfo::default().flags(flags).size(bytes);
        info = info.usage(buffer_usage(self.driver.device_address));
        if import != NO_IMPORT {
            info = info.push_next(&mut external);
        }
        // SAFETY: the device is live; the structures live through the call; the size is not 0.
        let made = unsafe { self.driver.device.create_buffer(&info, None) };
        let buffer = made.map_err(|code| fault("vkCreateBuffer", code))?;
        // SAFETY: made in the line above.
        let wanted = unsafe { self.driver.requirements(Resource::Buffer(buffer)) };
        Ok((buffer, wanted))
    }

    /// Binds a region's buffer; a refusal destroys the region.
    fn bound(&self, region: BoundRegion) -> Result<BoundRegion, Fault> {
        // SAFETY: both are live, fresh and of this device; the object was allocated as the requirements ask.
        let bound = unsafe { self.driver.bind(Resource::Buffer(region.buffer), region.object.memory, 0) };
        // SAFETY: nothing has the region yet.
        bound.map(|()| region).inspect_err(|_| unsafe { self.destroy_region(&region) })
    }

    /// Destroys a region's buffer and frees its memory.
    ///
    /// # Safety
    /// The region must be live, and no work in flight may use it.
    pub unsafe fn destroy_region(&self, region: &BoundRegion) {
        if !self.driver.process.is_current() {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.driver.device.destroy_buffer(region.buffer, None) };
        match region.backing {
            // SAFETY: the caller's promise; its buffer is gone.
            RegionBacking::Object => unsafe { self.objects.give_back(&region.object) },
            RegionBacking::Import => {
                // SAFETY: likewise.
                unsafe { self.driver.free(&region.object) };
                self.objects.uncount_one();
            }
            RegionBacking::Pages => {}
        }
    }

    /// Writes bytes at the beginning of a region that the host sees, before any work uses it.
    pub fn write_region(&self, region: &BoundRegion, bytes: &[u8]) {
        let start: *mut u8 = crate::driver::mapped_pointer(region.object.mapped).cast();
        if region.object.mapped != 0 && bytes.len() as u64 <= region.object.bytes {
            // SAFETY: the region is mapped, is as long at least, and nothing else uses it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        }
    }
}
