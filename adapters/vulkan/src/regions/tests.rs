//! Memory objects of the first Vulkan device, counted; skipped by name where there is none.

use crate::VulkanBackend;
use crate::objects::OBJECT_LIMIT;
use std::sync::Arc;
use terrace_device::{Backend, Capabilities, FaultReason};

#[test]
fn memory_that_is_imported_is_an_object_too() {
    const TEST: &str = "memory_that_is_imported_is_an_object_too";
    let Ok(mut vulkan) = VulkanBackend::open(0).map_err(|error| println!("SKIP {TEST}: {error}")) else { return };
    if !vulkan.description().capabilities.contains(Capabilities::REGISTRATION) {
        println!("SKIP {TEST}: {:?}", vulkan.description().notes);
        return;
    }
    let before = vulkan.shared.objects.count();
    // As on a device that permits one object more than there are.
    Arc::get_mut(&mut vulkan.shared).expect("the one handle").objects.table.max_objects = before + 1;
    let mut memory = [vec![0_u8; 1 << 20], vec![0_u8; 1 << 20]];
    let [first, second] = memory.each_mut().map(|memory| memory.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: the memory stays until it is unregistered.
    unsafe { vulkan.register(first, 1 << 20) }.expect("one is left");
    assert_eq!(vulkan.shared.objects.count(), before + 1);
    // SAFETY: likewise.
    let refused = unsafe { vulkan.register(second, 1 << 20) }.expect_err("none is left");
    assert_eq!((refused.call, refused.reason), (OBJECT_LIMIT, FaultReason::OutOfMemory));
    // SAFETY: no work uses it.
    unsafe { vulkan.unregister(first) }.expect("it was there");
    assert_eq!(vulkan.shared.objects.count(), before, "freed");
}
