//! The Vulkan library, found at run time, and whether it has the functions that are used.
//!
//! Promises upward: no function is called that the library lacks: `ash` would end the process there.
//! Asks from below: the system's loader.

#[cfg(test)]
mod tests;

use crate::error::VulkanError;
use ash::vk;
use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

/// Functions of an instance.
const INSTANCE: [&CStr; 11] = [
    c"vkDestroyInstance",
    c"vkEnumeratePhysicalDevices",
    c"vkGetPhysicalDeviceProperties",
    c"vkGetPhysicalDeviceProperties2",
    c"vkGetPhysicalDeviceFeatures2",
    c"vkGetPhysicalDeviceMemoryProperties",
    c"vkGetPhysicalDeviceMemoryProperties2",
    c"vkGetPhysicalDeviceQueueFamilyProperties",
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
    check(&[c"vkCreateInstance"], |name| has_instance_function(&entry, vk::Instance::null(), name))?;
    Ok(entry)
}

/// Whether an instance has all functions.
pub(crate) fn check_instance(entry: &ash::Entry, instance: vk::Instance) -> Result<(), VulkanError> {
    check(&INSTANCE, |name| has_instance_function(entry, instance, name))
}

/// Whether a device has all functions. The instance must have `vkGetDeviceProcAddr`.
pub(crate) fn check_device(instance: &ash::Instance, device: vk::Device) -> Result<(), VulkanError> {
    // SAFETY: the instance and its device are live, and the name ends with a zero.
    check(&DEVICE, |name| unsafe { instance.get_device_proc_addr(device, name.as_ptr()) }.is_some())
}

fn has_instance_function(entry: &ash::Entry, instance: vk::Instance, name: &CStr) -> bool {
    // SAFETY: the instance is live or null, and the name ends with a zero.
    unsafe { entry.get_instance_proc_addr(instance, name.as_ptr()) }.is_some()
}

fn check(names: &[&'static CStr], has: impl Fn(&CStr) -> bool) -> Result<(), VulkanError> {
    match names.iter().find(|name| !has(name)) {
        Some(name) => Err(VulkanError::MissingFunction { name: name.to_str().unwrap_or_default() }),
        None => Ok(()),
    }
}
