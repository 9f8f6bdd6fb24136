//! Drivers that lack or refuse what the machine's has: a library of ours stands between. Skipped by name where that cannot be.

#[path = "between/mod.rs"]
mod library;

use terrace_device::{Backend, Capabilities, Device, DeviceError, DeviceOptions, MemoryKind};
use terrace_vulkan::VulkanBackend;

/// Whether this is the process that runs the test once more.
fn is_child() -> bool {
    std::env::var_os(library::CHILD).is_some()
}

/// The lines of the child that tell calls, and what it told itself.
fn told(test: &str, variables: &[(&str, &str)]) -> Option<Vec<String>> {
    let text = library::run(test, &["--exact", test], variables)?;
    let line = |line: &str| ["call: ", "told: "].iter().find_map(|of| line.split_once(of)).map(|(_, told)| told.into());
    let told: Vec<String> = text.lines().filter_map(line).collect();
    if told.iter().any(|line| line.contains("no driver") || line.contains("no device")) {
        println!("SKIP {test}: {told:?}");
        return None;
    }
    Some(told)
}

/// Whether our library is still in the process: a library that is unloaded under what it made is the end of it.
fn is_loaded() -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has it").contains("/terrace-between-")
}

/// What differs, what is told of it, the calls after those that create, and whether the library is there at the end.
type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str], &'a str);

/// Tells how opening went, and whether the library is there afterwards.
fn open_and_tell() {
    let told = VulkanBackend::open(0).map_or_else(|error| error.to_string(), |_| "open".into());
    println!("told: {told}");
    println!("told: {}", if is_loaded() { "loaded" } else { "unloaded" });
}

#[test]
fn what_cannot_be_destroyed_stays_and_so_does_what_it_lives_in() {
    const TEST: &str = "what_cannot_be_destroyed_stays_and_so_does_what_it_lives_in";
    if is_child() {
        return open_and_tell();
    }
    let (idle, destroyed) = ("vkDeviceWaitIdle", ["vkDestroyDevice", "vkDestroyInstance"]);
    let rows: [Row<'_>; 8] = [
        (&[], "open", &[idle, destroyed[0], destroyed[1]], "unloaded"),
        (&[("BETWEEN_HIDES", "vkWaitSemaphores")], "vkWaitSemaphores", &destroyed, "unloaded"),
        (&[("BETWEEN_HIDES", "vkGetMemoryHostPointerPropertiesEXT")], "HostPointerProperties", &destroyed, "unloaded"),
        (&[("BETWEEN_HIDES", "vkDestroyDevice")], "vkDestroyDevice", &[], "loaded"),
        (&[("BETWEEN_HIDES", "vkGetPhysicalDeviceFeatures2")], "Features2", &destroyed[1..], "unloaded"),
        (&[("BETWEEN_HIDES", "vkDestroyInstance")], "vkDestroyInstance", &[], "loaded"),
        // Without memory to wait, work may be in flight: asked twice. A lost device has none.
        (&[("BETWEEN_IDLE", "-1")], "open", &[idle, idle], "loaded"),
        (&[("BETWEEN_IDLE", "-4")], "open", &[idle, destroyed[0], destroyed[1]], "unloaded"),
    ];
    for (variables, error, calls, library) in rows {
        let Some(told) = told(TEST, variables) else { return };
        let made = told.iter().filter(|line| line.starts_with("vkCreate")).count();
        let (end, begin) = (&told[made..], format!("{variables:?}: {told:?}"));
        let of: Vec<_> = end.iter().map(String::as_str).filter(|line| line.starts_with("vk")).collect();
        assert_eq!(of, calls, "{begin}");
        assert!(end.iter().any(|line| line.contains(error)), "{begin}");
        assert_eq!(end.last().map(String::as_str), Some(library), "{begin}");
    }
}

#[test]
fn a_library_of_version_1_0_is_told() {
    const TEST: &str = "a_library_of_version_1_0_is_told";
    if is_child() {
        return open_and_tell();
    }
    let Some(told) = told(TEST, &[("BETWEEN_HIDES", "vkEnumerateInstanceVersion")]) else { return };
    assert!(told[0].starts_with("the Vulkan library is of version 1.0, and terrace needs 1.2; install"), "{told:?}");
}

#[test]
fn a_driver_over_another_interface_is_asked_for_and_told_that_it_may_leave_parts_out() {
    const TEST: &str = "a_driver_over_another_interface_is_asked_for_and_told_that_it_may_leave_parts_out";
    if is_child() {
        return open_and_tell();
    }
    let Some(told) = told(TEST, &[("BETWEEN_ROLE", "portable")]) else { return };
    assert_eq!(told[..2], ["vkCreateInstance, portable, enumerates", "vkCreateDevice, portable"], "{told:?}");
}

#[test]
fn memory_that_cannot_be_imported_is_not_promised() {
    const TEST: &str = "memory_that_cannot_be_imported_is_not_promised";
    if is_child() {
        let vulkan = VulkanBackend::open(0).expect("it opened before");
        assert!(!vulkan.description().capabilities.contains(Capabilities::REGISTRATION));
        assert!(vulkan.description().notes.iter().any(|note| note.starts_with("no registration: ")));
        return;
    }
    if VulkanBackend::open(0).is_ok() {
        let _ = told(TEST, &[("BETWEEN_ROLE", "no_import")]);
    }
}

#[test]
fn a_full_device_is_out_of_memory_though_the_host_has_more() {
    const TEST: &str = "a_full_device_is_out_of_memory_though_the_host_has_more";
    const MIB: u64 = 1 << 20;
    if is_child() {
        let vulkan = VulkanBackend::open(0).expect("it opened before");
        assert_eq!(vulkan.description().total, 64 * MIB, "the device's own heap");
        let region = vulkan.take(MemoryKind::Pinned, 80 * MIB).expect("of the host's heap");
        // SAFETY: fresh.
        unsafe { vulkan.give_back(MemoryKind::Pinned, region, 80 * MIB) }.expect("it was there");
        let options = DeviceOptions { capacity: 1 << 30, ..DeviceOptions::default() };
        let device = Device::open(vulkan, options).expect("valid options");
        let stream = device.stream().expect("a stream");
        let blocks: Vec<_> = (0..7).map_while(|_| device.allocate(&stream, 10 * MIB).ok()).collect();
        assert_eq!(blocks.len(), 6, "the seventh block does not fit");
        assert!(matches!(device.allocate(&stream, 10 * MIB), Err(DeviceError::OutOfMemory(_))));
        return;
    }
    if VulkanBackend::open(0).is_ok() {
        let _ = told(TEST, &[("BETWEEN_ROLE", "two_heaps")]);
    }
}
