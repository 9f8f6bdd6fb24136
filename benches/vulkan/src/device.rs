//! The first Vulkan device, whose memory objects are counted, whatever allocates them.
//!
//! Promises upward: every allocator goes through the same two functions; peaks are of all memory objects together.
//! Asks from below: a Vulkan driver. All three allocators call the functions that `ash`'s device has.

use ash::vk;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// What a heap is said to have: lavapipe says 2 GiB and gives what the system has, and the recordings take up to 26 GiB.
const HEAP: u64 = 64 << 30;

/// A device and what made it.
pub struct Opened {
    /// Loaded library; dropped last.
    _entry: ash::Entry,
    /// Instance, of Vulkan 1.1.
    pub instance: ash::Instance,
    /// Its first device.
    pub physical: vk::PhysicalDevice,
    /// With counting functions.
    pub device: ash::Device,
    /// Name and driver.
    pub name: String,
}

/// Counters of memory objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Bytes of objects now, and the most so far.
    pub bytes: u64,
    /// The most so far.
    pub peak: u64,
    /// Calls that allocated or freed one.
    pub calls: u64,
    /// Objects now.
    pub objects: u64,
}

/// Counters, and the size of each object.
static COUNTED: LazyLock<Mutex<(Counted, HashMap<vk::DeviceMemory, u64>)>> = LazyLock::new(Mutex::default);
/// Whether memory is said to be the device's alone, as that of most GPUs is. Both peers then take objects of 256 MiB.
pub static HIDDEN: AtomicBool = AtomicBool::new(false);
static ALLOCATE: OnceLock<vk::PFN_vkAllocateMemory> = OnceLock::new();
static FREE: OnceLock<vk::PFN_vkFreeMemory> = OnceLock::new();
static MEMORY: OnceLock<vk::PFN_vkGetPhysicalDeviceMemoryProperties> = OnceLock::new();

/// Counters from now on.
pub fn reset() {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner).0 = Counted::default();
}

/// Counters since the last reset.
pub fn counted() -> Counted {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner).0
}

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    let theirs = ALLOCATE.get().expect("set before the device is used");
    // SAFETY: the caller's arguments.
    let result = unsafe { theirs(device, info, callbacks, memory) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller's structure.
        let bytes = unsafe { (*info).allocation_size };
        // SAFETY: written by the call that succeeded.
        let handle = unsafe { *memory };
        let (counted, sizes) = &mut *COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.insert(handle, bytes);
        counted.bytes += bytes;
        counted.peak = counted.peak.max(counted.bytes);
        (counted.calls, counted.objects) = (counted.calls + 1, counted.objects + 1);
    }
    result
}

unsafe extern "system" fn free(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let theirs = FREE.get().expect("set before the device is used");
    // SAFETY: the caller's arguments.
    unsafe { theirs(device, memory, callbacks) };
    let (counted, sizes) = &mut *COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = sizes.remove(&memory) {
        counted.bytes -= bytes;
        (counted.calls, counted.objects) = (counted.calls + 1, counted.objects - 1);
    }
}

unsafe extern "system" fn memory_properties(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let theirs = MEMORY.get().expect("set before the instance is used");
    // SAFETY: the caller's arguments.
    unsafe { theirs(physical, properties) };
    // SAFETY: the caller's structure, which the call has filled.
    let properties = unsafe { &mut *properties };
    if HIDDEN.load(Ordering::Relaxed) {
        properties.memory_types.iter_mut().for_each(|of| of.property_flags &= vk::MemoryPropertyFlags::DEVICE_LOCAL);
    }
    properties.memory_heaps.iter_mut().for_each(|heap| heap.size = heap.size.max(HEAP));
}

/// Opens the first device.
pub fn open() -> Result<Opened, Box<dyn std::error::Error>> {
    // SAFETY: loads the system's Vulkan library, as any Vulkan program does.
    let entry = unsafe { ash::Entry::load() }?;
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    // SAFETY: the structures live through the call.
    let made = unsafe { entry.create_instance(&vk::InstanceCreateInfo::default().application_info(&app), None) }?;
    let handle = made.handle();
    let look_up = |name: &CStr| {
        // SAFETY: the instance is live.
        let found = unsafe { (entry.static_fn().get_instance_proc_addr)(handle, name.as_ptr()) };
        let pointer = found.map_or(std::ptr::null(), |function| function as *const c_void);
        if name == c"vkGetPhysicalDeviceMemoryProperties" {
            // SAFETY: the function of this name has this type.
            _ = MEMORY.set(unsafe {
                std::mem::transmute::<*const c_void, vk::PFN_vkGetPhysicalDeviceMemoryProperties>(pointer)
            });
            return memory_properties as *const c_void;
        }
        pointer
    };
    // SAFETY: each name gets the function of that name, or ours of the same type.
    let instance = unsafe { ash::Instance::load_with(look_up, handle) };
    // SAFETY: the instance is live.
    let physical = *unsafe { instance.enumerate_physical_devices() }?.first().ok_or("no Vulkan device")?;
    let priorities = [1.0];
    let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&priorities)];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: every device has a family 0; the structures live through the call.
    let made = unsafe { instance.create_device(physical, &info, None) }?;
    let handle = made.handle();
    _ = ALLOCATE.set(made.fp_v1_0().allocate_memory);
    _ = FREE.set(made.fp_v1_0().free_memory);
    let look_up = |name: &CStr| match name {
        name if name == c"vkAllocateMemory" => allocate as *const c_void,
        name if name == c"vkFreeMemory" => free as *const c_void,
        name => {
            // SAFETY: the device is live.
            let found = unsafe { (instance.fp_v1_0().get_device_proc_addr)(handle, name.as_ptr()) };
            found.map_or(std::ptr::null(), |function| function as *const c_void)
        }
    };
    // SAFETY: each name gets the function of that name, or ours of the same type.
    let device = unsafe { ash::Device::load_with(look_up, handle) };
    // SAFETY: a device of a live instance.
    let properties = unsafe { instance.get_physical_device_properties(physical) };
    let name = properties.device_name_as_c_str()?.to_string_lossy().into_owned();
    Ok(Opened { _entry: entry, instance, physical, device, name })
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: nothing of the device is left: the allocators borrow it.
        unsafe { self.device.destroy_device(None) };
        // SAFETY: likewise.
        unsafe { self.instance.destroy_instance(None) };
    }
}
