//! Buffers and an image in a program with its own Vulkan device, in the order in which a program with `gpu-allocator` is written.
//!
//! `cargo run -p terrace-vulkan --example buffers`. Beside each call stands what it is in `gpu-allocator` and `vk-mem`.

use ash::vk;
use std::error::Error;
use std::io::Write;
use terrace_vulkan::{AllocationDesc, AllocatorOptions, Dedicated, MemoryUse, VulkanAllocator};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

/// The program; says so if this machine has no Vulkan device.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // The program's own instance and device, as without terrace.
    // SAFETY: loads the system's Vulkan library.
    let entry = match unsafe { ash::Entry::load() } {
        Ok(entry) => entry,
        Err(error) => return Ok(writeln!(out, "No buffer was made: {error}")?),
    };
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    // SAFETY: the structures live through the call.
    let made = unsafe { entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&app), None) };
    let instance = match made {
        Ok(instance) => instance,
        Err(code) => return Ok(writeln!(out, "No buffer was made: vkCreateInstance: {code}")?),
    };
    // SAFETY: the instance is live.
    let physical = unsafe { instance.enumerate_physical_devices() }?.first().copied();
    if let Some(physical) = physical {
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: every device has a family 0.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        let done = buffers(out, &instance, physical, &device);
        // SAFETY: allocator and resources are gone.
        unsafe { device.destroy_device(None) };
        done?;
    } else {
        writeln!(out, "No buffer was made: there is no device")?;
    }
    // SAFETY: its device is gone.
    unsafe { instance.destroy_instance(None) };
    Ok(())
}

fn buffers(
    out: &mut impl Write,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    device: &ash::Device,
) -> Result<(), Box<dyn Error>> {
    // gpu-allocator: Allocator::new(&AllocatorCreateDesc { instance, device, physical_device, .. })
    // vk-mem:        Allocator::new(AllocatorCreateInfo::new(&instance, &device, physical))
    // SAFETY: all three live longer than the allocator and what it gives.
    let allocator = unsafe { VulkanAllocator::new(instance, physical, device, AllocatorOptions::default()) }?;

    // A buffer, as without an allocator.
    let info = vk::BufferCreateInfo::default().size(4096).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: the structure lives through the call.
    let buffer = unsafe { device.create_buffer(&info, None) }?;
    // SAFETY: made above.
    let requirements = unsafe { device.get_buffer_memory_requirements(buffer) };

    // gpu-allocator: allocator.allocate(&AllocationCreateDesc { name, requirements, location: MemoryLocation::CpuToGpu,
    //                    linear: true, allocation_scheme: AllocationScheme::GpuAllocatorManaged })
    // vk-mem:        allocator.allocate_memory(&requirements, &AllocationCreateInfo { .. })
    let desc = AllocationDesc { requirements, usage: MemoryUse::Upload, linear: true, dedicated: Dedicated::No };
    let mut allocation = allocator.allocate(&desc)?;

    // The same in all three.
    // SAFETY: both are live, the buffer is unbound, and the memory is as its requirements ask.
    unsafe { device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) }?;

    // gpu-allocator: allocation.mapped_slice_mut()          vk-mem: allocator.map_memory(&mut allocation)
    if let Some(bytes) = allocation.mapped_slice_mut() {
        bytes[..4].copy_from_slice(&1.0_f32.to_ne_bytes());
    }
    // gpu-allocator: nothing, it takes coherent memory      vk-mem: allocator.flush_allocation(&allocation, 0, 4)
    allocation.flush(0, 4)?;
    writeln!(out, "a buffer of {} bytes in memory type {}", allocation.size(), allocation.memory_type())?;

    // Requirements, memory and binding in one call, with memory of its own where the driver asks for that.
    // gpu-allocator: AllocationScheme::DedicatedBuffer(second)   vk-mem: allocator.create_buffer(&info, &create_info)
    // SAFETY: the structure lives through the call.
    let second = unsafe { device.create_buffer(&info, None) }?;
    // SAFETY: live, unbound, and destroyed before its memory.
    let own = unsafe { allocator.bind_buffer(second, MemoryUse::Device) }?;
    writeln!(out, "another: dedicated memory: {}", own.is_dedicated())?;

    // gpu-allocator: allocator.generate_report()            vk-mem: allocator.calculate_statistics()
    let stats = allocator.stats();
    writeln!(out, "{} bytes in use of {} reserved", stats.in_use, stats.reserved)?;

    // Resources go first, then their memory.
    // gpu-allocator: allocator.free(allocation)             vk-mem: allocator.free_memory(&mut allocation)
    for (buffer, allocation) in [(buffer, allocation), (second, own)] {
        // SAFETY: no work uses it.
        unsafe { device.destroy_buffer(buffer, None) };
        allocator.free(allocation);
    }
    writeln!(out, "{} bytes went back", allocator.trim())?;
    Ok(())
}
