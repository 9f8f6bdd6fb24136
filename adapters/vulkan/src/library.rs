//! The Vulkan library, found at run time, and whether it has the functions that are used.
//!
//! Promises upward: no function is called that the library lacks: `ash` would end the process there. What cannot be destroyed stays, and
//! so does what it lives in: a device keeps its instance, an instance keeps the library loaded.
//! Asks from below: the system's loader.

#[cfg(test)]
mod tests;

use crate::error::VulkanError;
use crate::fault::fault;
use ash::vk;
use std::ffi::{CStr, OsStr};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// The oldest version that serves, of device and library.
pub(crate) const NEEDED: u32 = vk::API_VERSION_1_2;

/// Functions of the library itself.
const LIBRARY: [&CStr; 2] = [c"vkCreateInstance", c"vkEnumerateInstanceExtensionProperties"];

/// Functions of an instance.
const INSTANCE: [&CStr; 12] = [
    c"vkDestroyInstance",
    c"vkEnumeratePhysicalDevices",
    c"vkGetPhysicalDeviceProperties",
    c"vkGetPhysicalDeviceProperties2",
    c"vkGetPhysicalDeviceFeatures2",
    c"vkGetPhysicalDeviceMemoryProperties",
    c"vkGetPhysicalDeviceMemoryProperties2",
    c"vkGetPhysicalDeviceQueueFamilyProperties",
    c"vkGetPhysicalDeviceExternalBufferProperties",
    c"vkEnumerateDeviceExtensionProperties",
    c"vkCreateDevice",
    c"vkGetDeviceProcAddr",
];

/// Functions of a device.
const DEVICE: [&CStr; 28] = [
    c"vkDestroyDevice",
    c"vkGetDeviceQueue",
    c"vkQueueSubmit",
    c"vkAllocateMemory",
    c"vkFreeMemory",
    c"vkMapMemory",
    c"vkFlushMappedMemoryRanges",
    c"vkInvalidateMappedMemoryRanges",
    c"vkCreateBuffer",
    c"vkDestroyBuffer",
    c"vkGetBufferMemoryRequirements2",
    c"vkGetImageMemoryRequirements2",
    c"vkBindBufferMemory",
    c"vkBindImageMemory",
    c"vkCreateSemaphore",
    c"vkDestroySemaphore",
    c"vkGetSemaphoreCounterValue",
    c"vkWaitSemaphores",
    c"vkCreateCommandPool",
    c"vkDestroyCommandPool",
    c"vkAllocateCommandBuffers",
    c"vkBeginCommandBuffer",
    c"vkEndCommandBuffer",
    c"vkCmdCopyBuffer",
    c"vkCmdFillBuffer",
    c"vkCmdPipelineBarrier",
    c"vkDeviceWaitIdle",
    c"vkGetBufferDeviceAddress",
];

/// The library's name, for the system's loader.
const NAME: &str = if cfg!(windows) {
    "vulkan-1.dll"
} else if cfg!(target_vendor = "apple") {
    "libvulkan.dylib"
} else if cfg!(target_os = "android") {
    "libvulkan.so"
} else {
    "libvulkan.so.1"
};

/// File name of Vulkan's loader.
pub fn library_names() -> Vec<String> {
    vec![NAME.into()]
}

/// File names of the drivers that Vulkan's loader loads on Linux: those that its manifests name.
///
/// Manifests lie in `vulkan/icd.d` of `/etc` and `/usr/share`, or are those that `VK_DRIVER_FILES` or `VK_ICD_FILENAMES` names.
pub fn driver_names() -> Vec<String> {
    let named = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].iter().find_map(std::env::var_os);
    let manifests: Vec<PathBuf> = match named {
        Some(named) => std::env::split_paths(&named).collect(),
        None => ["/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d"]
            .iter()
            .flat_map(std::fs::read_dir)
            .flat_map(|folder| folder.flatten().map(|entry| entry.path()))
            .collect(),
    };
    manifests.iter().filter_map(|manifest| driver_of(manifest, &std::fs::read_to_string(manifest).ok()?)).collect()
}

/// The library that a manifest names: a path is relative to it, a plain name is the system's.
fn driver_of(manifest: &Path, text: &str) -> Option<String> {
    let rest = text.split_once("\"library_path\"")?.1;
    let name = rest.split('"').nth(1)?;
    let path = if name.contains('/') { manifest.parent()?.join(name) } else { name.into() };
    path.to_str().map(String::from)
}

/// Loads the library.
pub(crate) fn load() -> Result<ash::Entry, VulkanError> {
    load_from(NAME)
}

/// Loads the library of a name or path.
pub(crate) fn load_from(path: impl AsRef<OsStr>) -> Result<ash::Entry, VulkanError> {
    // SAFETY: loading runs the initialisers of the system's Vulkan library, as every Vulkan program does.
    let loaded = unsafe { ash::Entry::load_from(path) };
    let entry = loaded.map_err(|error| VulkanError::NoLibrary { detail: error.to_string() })?;
    check(LIBRARY, |name| has_instance_function(&entry, vk::Instance::null(), name))?;
    Ok(entry)
}

/// Whether a device has the functions of Vulkan 1.1 that an allocator needs: one of an instance for Vulkan 1.0 has not.
pub(crate) fn has_allocators_functions(instance: &ash::Instance, device: vk::Device) -> bool {
    DEVICE.iter().filter(|name| name.to_bytes().ends_with(b"2")).all(|name| has_device_function(instance, device, name))
}

/// The library, an instance and, once there is one, a device of it, which are destroyed in the right order.
pub(crate) struct OwnedDevice {
    entry: ManuallyDrop<ash::Entry>,
    pub instance: ash::Instance,
    device: Option<ash::Device>,
    /// Whether all of it stays when this is dropped: the device is in use, or cannot be destroyed.
    pub stays: bool,
}

impl OwnedDevice {
    /// An instance of the system's library, without a device.
    pub fn new() -> Result<Self, VulkanError> {
        let entry = load()?;
        // SAFETY: the call's function is looked for, and is of the library that `entry` keeps loaded.
        let version = unsafe { entry.try_enumerate_instance_version() };
        let version = version.map_err(|code| fault("vkEnumerateInstanceVersion", code))?;
        let version = version.unwrap_or(vk::API_VERSION_1_0);
        if version < NEEDED {
            let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
            return Err(VulkanError::OldLibrary { major, minor });
        }
        // SAFETY: the library has the function.
        let extensions = unsafe { entry.enumerate_instance_extension_properties(None) }.unwrap_or_default();
        let portability = ash::khr::portability_enumeration::NAME;
        let lists = extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(portability));
        let app = vk::ApplicationInfo::default().application_name(c"terrace").api_version(NEEDED);
        let (mut info, names) = (vk::InstanceCreateInfo::default().application_info(&app), [portability.as_ptr()]);
        if lists {
            // Drivers over another interface (MoltenVK) are shown only to programs that ask for them.
            info = info.enabled_extension_names(&names).flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR);
        }
        // SAFETY: the library has the function; the structures live through the call.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => VulkanError::NoDriver,
            code => fault("vkCreateInstance", code).into(),
        })?;
        let stays = !has_instance_function(&entry, instance.handle(), c"vkDestroyInstance");
        let own = Self { entry: ManuallyDrop::new(entry), instance, device: None, stays };
        check(INSTANCE, |name| has_instance_function(&own.entry, own.instance.handle(), name))?;
        Ok(own)
    }

    /// Takes a device of the instance, and looks for its functions and those in `more`.
    pub fn add(
        &mut self,
        device: ash::Device,
        more: impl IntoIterator<Item = &'static CStr>,
    ) -> Result<(), VulkanError> {
        let (instance, handle) = (&self.instance, device.handle());
        let has = |name: &CStr| has_device_function(instance, handle, name);
        self.stays = !has(c"vkDestroyDevice");
        let checked = check(DEVICE.into_iter().chain(more), has);
        self.device = Some(device);
        checked
    }
}

impl Drop for OwnedDevice {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Some(device) = &self.device {
            // SAFETY: its owner has destroyed what was made of it, or says that it stays; it has the function.
            unsafe { device.destroy_device(None) };
        }
        // SAFETY: its device is gone; it has the function.
        unsafe { self.instance.destroy_instance(None) };
        // SAFETY: dropped here alone.
        unsafe { ManuallyDrop::drop(&mut self.entry) };
    }
}

/// The instance must be checked.
fn has_device_function(instance: &ash::Instance, device: vk::Device, name: &CStr) -> bool {
    // SAFETY: the instance and its device are live, and the name ends with a zero.
    unsafe { instance.get_device_proc_addr(device, name.as_ptr()) }.is_some()
}

fn has_instance_function(entry: &ash::Entry, instance: vk::Instance, name: &CStr) -> bool {
    // SAFETY: the instance is live or null, and the name ends with a zero.
    unsafe { entry.get_instance_proc_addr(instance, name.as_ptr()) }.is_some()
}

fn check(names: impl IntoIterator<Item = &'static CStr>, has: impl Fn(&CStr) -> bool) -> Result<(), VulkanError> {
    match names.into_iter().find(|name| !has(name)) {
        Some(name) => Err(VulkanError::MissingFunction { name: name.to_str().unwrap_or_default() }),
        None => Ok(()),
    }
}
