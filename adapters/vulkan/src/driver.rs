//! The calls of Vulkan that both faces make: memory objects, their mapping, binding, budgets.
//!
//! Promises upward: a memory object is whole or not there; host-visible ones are mapped from their first moment to their last. In a
//! forked child no call reaches Vulkan.
//! Asks from below: `ash`'s functions, of a device that lives as long as the driver.

use crate::fault::fault;
use ash::vk;
use std::ffi::c_void;
use std::ptr;
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

/// A memory object to allocate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ObjectRequest {
    pub type_index: u32,
    pub bytes: u64,
    /// For this resource alone.
    pub dedicated: Option<Resource>,
    /// Whether to map all of it.
    pub map: bool,
}

/// A resource that memory is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Buffer(vk::Buffer),
    Image(vk::Image),
}

/// A memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryObject {
    pub memory: vk::DeviceMemory,
    pub bytes: u64,
    pub type_index: u32,
    /// Exposed address of its first byte; 0 where it is not mapped.
    pub mapped: u64,
}

/// What the driver says of a heap, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapBudget {
    pub budget: u64,
    /// What this process uses of it, by every library.
    pub used: u64,
}

/// What a resource asks of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requirements {
    pub memory: vk::MemoryRequirements,
    pub dedicated: Wish,
}

/// Whether a resource should have a memory object of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    #[default]
    No,
    Prefers,
    Requires,
}

/// A part of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRange {
    pub memory: vk::DeviceMemory,
    pub offset: u64,
    pub bytes: u64,
}

/// What allocators need of Vulkan. The one of a real device is [`AshDriver`]; tests have one of numbers, with any table.
pub(crate) trait MemoryDriver: Send + Sync {
    fn allocate(&self, request: &ObjectRequest) -> Result<MemoryObject, Fault>;

    /// # Safety
    /// The object must be live, and used by no work and no resource any more.
    unsafe fn free(&self, object: &MemoryObject);

    /// `None` where the driver tells none.
    fn budget(&self, heap: u32) -> Option<HeapBudget>;

    /// # Safety
    /// The resource must be live.
    unsafe fn requirements(&self, resource: Resource) -> Requirements;

    /// # Safety
    /// Resource and memory must be live, the resource not bound yet, the place as its requirements ask.
    unsafe fn bind(&self, resource: Resource, memory: vk::DeviceMemory, offset: u64) -> Result<(), Fault>;

    /// # Safety
    /// The range must be mapped, and in whole atoms or up to the end of its memory object.
    unsafe fn flush(&self, range: ObjectRange) -> Result<(), Fault>;

    /// # Safety
    /// As for [`flush`](Self::flush).
    unsafe fn invalidate(&self, range: ObjectRange) -> Result<(), Fault>;
}

/// A device of `ash`, whose owner keeps it alive as long as this lives.
#[derive(Clone)]
pub(crate) struct AshDriver {
    pub instance: ash::Instance,
    pub physical: vk::PhysicalDevice,
    pub device: ash::Device,
    /// Whether the driver tells budgets.
    pub budget: bool,
    /// Whether shaders may use addresses of buffers in the memory.
    pub device_address: bool,
    pub process: Process,
}

impl AshDriver {
    pub fn check_process(&self, call: &'static str) -> Result<(), Fault> {
        if self.process.is_current() { Ok(()) } else { Err(Fault::of(call, FaultReason::Forked)) }
    }

    /// Allocates, with more structures at the end of the chain.
    pub fn allocate_with(
        &self,
        request: &ObjectRequest,
        more: Option<&mut vk::ImportMemoryHostPointerInfoEXT<'_>>,
    ) -> Result<MemoryObject, Fault> {
        self.check_process("vkAllocateMemory")?;
        let mut info =
            vk::MemoryAllocateInfo::default().allocation_size(request.bytes).memory_type_index(request.type_index);
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        if self.device_address {
            info = info.push_next(&mut flags);
        }
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
        if let Some(resource) = request.dedicated {
            dedicated = match resource {
                Resource::Buffer(buffer) => dedicated.buffer(buffer),
                Resource::Image(image) => dedicated.image(image),
            };
            info = info.push_next(&mut dedicated);
        }
        if let Some(more) = more {
            info = info.push_next(more);
        }
        // SAFETY: the device is live; the structures live through the call; the type index is one of the table.
        let memory =
            unsafe { self.device.allocate_memory(&info, None) }.map_err(|code| fault("vkAllocateMemory", code))?;
        let object = MemoryObject { memory, bytes: request.bytes, type_index: request.type_index, mapped: 0 };
        if !request.map {
            return Ok(object);
        }
        // SAFETY: the memory was allocated above, of a host-visible type, and is not mapped yet.
        let mapped = unsafe { self.device.map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
        let mapped = mapped.map_err(|code| {
            // SAFETY: allocated above, and nothing has it.
            unsafe { self.device.free_memory(memory, None) };
            fault("vkMapMemory", code)
        })?;
        Ok(MemoryObject { mapped: mapped.expose_provenance() as u64, ..object })
    }

    fn mapped_range(range: ObjectRange) -> [vk::MappedMemoryRange<'static>; 1] {
        [vk::MappedMemoryRange::default().memory(range.memory).offset(range.offset).size(range.bytes)]
    }
}

impl MemoryDriver for AshDriver {
    fn allocate(&self, request: &ObjectRequest) -> Result<MemoryObject, Fault> {
        self.allocate_with(request, None)
    }

    unsafe fn free(&self, object: &MemoryObject) {
        if self.process.is_current() {
            // SAFETY: the caller's promise. Freeing unmaps.
            unsafe { self.device.free_memory(object.memory, None) };
        }
    }

    fn budget(&self, heap: u32) -> Option<HeapBudget> {
        if !self.budget || !self.process.is_current() {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the instance is live; the device has the extension; the structures live through the call.
        unsafe { self.instance.get_physical_device_memory_properties2(self.physical, &mut properties) };
        let at = heap as usize;
        Some(HeapBudget { budget: *budget.heap_budget.get(at)?, used: *budget.heap_usage.get(at)? })
    }

    unsafe fn requirements(&self, resource: Resource) -> Requirements {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut requirements = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        match resource {
            Resource::Buffer(buffer) => {
                let info = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
                // SAFETY: the caller's promise; the structures live through the call.
                unsafe { self.device.get_buffer_memory_requirements2(&info, &mut requirements) };
            }
            Resource::Image(image) => {
                let info = vk::ImageMemoryRequirementsInfo2::default().image(image);
                // SAFETY: as above.
                unsafe { self.device.get_image_memory_requirements2(&info, &mut requirements) };
            }
        }
        let memory = requirements.memory_requirements;
        let wish = match (dedicated.requires_dedicated_allocation, dedicated.prefers_dedicated_allocation) {
            (vk::FALSE, vk::FALSE) => Wish::No,
            (vk::FALSE, _) => Wish::Prefers,
            _ => Wish::Requires,
        };
        Requirements { memory, dedicated: wish }
    }

    unsafe fn bind(&self, resource: Resource, memory: vk::DeviceMemory, offset: u64) -> Result<(), Fault> {
        self.check_process("vkBindBufferMemory")?;
        match resource {
            Resource::Buffer(buffer) => {
                // SAFETY: the caller's promise.
                let bound = unsafe { self.device.bind_buffer_memory(buffer, memory, offset) };
                bound.map_err(|code| fault("vkBindBufferMemory", code))
            }
            Resource::Image(image) => {
                // SAFETY: the caller's promise.
                let bound = unsafe { self.device.bind_image_memory(image, memory, offset) };
                bound.map_err(|code| fault("vkBindImageMemory", code))
            }
        }
    }

    unsafe fn flush(&self, range: ObjectRange) -> Result<(), Fault> {
        self.check_process("vkFlushMappedMemoryRanges")?;
        // SAFETY: the caller's promise.
        let flushed = unsafe { self.device.flush_mapped_memory_ranges(&Self::mapped_range(range)) };
        flushed.map_err(|code| fault("vkFlushMappedMemoryRanges", code))
    }

    unsafe fn invalidate(&self, range: ObjectRange) -> Result<(), Fault> {
        self.check_process("vkInvalidateMappedMemoryRanges")?;
        // SAFETY: the caller's promise.
        let done = unsafe { self.device.invalidate_mapped_memory_ranges(&Self::mapped_range(range)) };
        done.map_err(|code| fault("vkInvalidateMappedMemoryRanges", code))
    }
}

/// A pointer to mapped memory.
pub(crate) fn mapped_pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}
