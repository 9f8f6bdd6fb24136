//! The three allocators behind one interface.
//!
//! Promises upward: each has its defaults, and memory of the device's own for buffers; nothing but its calls is between.
//! Asks from below: a device whose memory objects are counted.

use crate::device::{Opened, counted};
use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan as peer;
use std::error::Error;
use terrace_models::scenarios::{Subject, Totals};
use terrace_vulkan::{AllocationDesc, AllocatorOptions, Dedicated, MemoryUse, VulkanAllocator};
use vk_mem::Alloc;

/// terrace.
pub struct Ours(pub VulkanAllocator);
/// `gpu-allocator`.
pub struct GpuAllocator(peer::Allocator);
/// `vk-mem`, VMA.
pub struct VkMem(vk_mem::Allocator);

/// What a buffer of so many bytes asks for: lavapipe's answer for storage buffers, its alignment of 64 included.
fn requirements(bytes: u64) -> vk::MemoryRequirements {
    vk::MemoryRequirements { size: bytes.next_multiple_of(64), alignment: 64, memory_type_bits: 1 }
}

fn totals() -> Totals {
    let counted = counted();
    Totals { calls: counted.calls, handles: counted.objects, peak_reserved: counted.peak, peak_in_use: 0 }
}

impl Ours {
    /// With defaults.
    pub fn new(of: &Opened) -> Result<Self, Box<dyn Error>> {
        // SAFETY: the device outlives the allocator, which borrows it by convention here.
        Ok(Self(unsafe { VulkanAllocator::new(&of.instance, of.physical, &of.device, AllocatorOptions::default()) }?))
    }
}

impl Subject for Ours {
    type Block = terrace_vulkan::VulkanAllocation;

    fn allocate(&mut self, bytes: u64, _: u32) -> Option<Self::Block> {
        let (usage, dedicated) = (MemoryUse::Device, Dedicated::No);
        self.0.allocate(&AllocationDesc { requirements: requirements(bytes), usage, linear: true, dedicated }).ok()
    }

    fn free(&mut self, block: Self::Block, _: u32) {
        self.0.free(block);
    }

    fn totals(&self) -> Totals {
        totals()
    }
}

impl GpuAllocator {
    /// With defaults.
    pub fn new(of: &Opened) -> Result<Self, Box<dyn Error>> {
        Ok(Self(peer::Allocator::new(&peer::AllocatorCreateDesc {
            instance: of.instance.clone(),
            device: of.device.clone(),
            physical_device: of.physical,
            debug_settings: gpu_allocator::AllocatorDebugSettings::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        })?))
    }
}

impl Subject for GpuAllocator {
    type Block = peer::Allocation;

    fn allocate(&mut self, bytes: u64, _: u32) -> Option<Self::Block> {
        let desc = peer::AllocationCreateDesc {
            name: "",
            requirements: requirements(bytes),
            location: MemoryLocation::GpuOnly,
            linear: true,
            allocation_scheme: peer::AllocationScheme::GpuAllocatorManaged,
        };
        self.0.allocate(&desc).ok()
    }

    fn free(&mut self, block: Self::Block, _: u32) {
        self.0.free(block).expect("it is live");
    }

    fn totals(&self) -> Totals {
        totals()
    }
}

impl VkMem {
    /// With defaults.
    pub fn new(of: &Opened) -> Result<Self, Box<dyn Error>> {
        let info = vk_mem::AllocatorCreateInfo::new(&of.instance, &of.device, of.physical);
        // SAFETY: the device outlives the allocator.
        Ok(Self(unsafe { vk_mem::Allocator::new(info) }?))
    }
}

impl Subject for VkMem {
    type Block = vk_mem::Allocation;

    fn allocate(&mut self, bytes: u64, _: u32) -> Option<Self::Block> {
        let info = vk_mem::AllocationCreateInfo {
            preferred_flags: vk::MemoryPropertyFlags::DEVICE_LOCAL,
            ..Default::default()
        };
        // SAFETY: both structures live through the call.
        unsafe { self.0.allocate_memory(&requirements(bytes), &info) }.ok()
    }

    fn free(&mut self, mut block: Self::Block, _: u32) {
        // SAFETY: it is live, and nothing uses it.
        unsafe { self.0.free_memory(&mut block) };
    }

    fn totals(&self) -> Totals {
        totals()
    }
}
