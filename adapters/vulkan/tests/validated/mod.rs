//! The Khronos validation layer over the other tests of a program.
//!
//! Promises upward: every rule of Vulkan that the layer knows, and its hazards between commands, is kept by all tests of the program; a
//! layer that says nothing of wrong calls fails the test too.
//! Asks from below: the layer (Debian: vulkan-validationlayers), which prints what it finds.

use ash::vk;
use std::process::Command;
use terrace_vulkan::VulkanBackend;

const LAYER: &std::ffi::CStr = c"VK_LAYER_KHRONOS_validation";

/// Set in the process that makes wrong calls.
const WRONG: &str = "TERRACE_TEST_VULKAN_WRONG";

/// What the layer finds in this program, run with `arguments`; `wrong`: with wrong calls.
fn found(arguments: &[&str], wrong: bool) -> Vec<String> {
    let output = Command::new(std::env::current_exe().expect("our own path"))
        .args(arguments)
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        .env("VK_LAYER_ENABLES", "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT")
        .envs(wrong.then_some((WRONG, "1")))
        .output()
        .expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter(|line| line.contains("Validation")).map(String::from).collect()
}

/// Makes a buffer of no bytes, and records two fills of one without a barrier between them. Nothing is submitted.
fn make_wrong_calls() {
    let vulkan = VulkanBackend::open(0).expect("it opened before");
    let device = vulkan.device();
    let buffer = |bytes| {
        let info = vk::BufferCreateInfo::default().size(bytes).usage(vk::BufferUsageFlags::TRANSFER_DST);
        // SAFETY: the size of 0 is wrong on purpose: lavapipe makes such a buffer.
        unsafe { device.create_buffer(&info, None) }.expect("a buffer")
    };
    let buffers = [buffer(0), buffer(64)];
    // SAFETY: live.
    let wanted = unsafe { device.get_buffer_memory_requirements(buffers[1]) };
    let info = vk::MemoryAllocateInfo::default().allocation_size(wanted.size);
    // SAFETY: the structure is valid; each device has a first type.
    let memory = unsafe { device.allocate_memory(&info, None) }.expect("room");
    // SAFETY: both are fresh.
    unsafe { device.bind_buffer_memory(buffers[1], memory, 0) }.expect("bound");
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(vulkan.queue_family());
    // SAFETY: the family is the device's.
    let pool = unsafe { device.create_command_pool(&info, None) }.expect("a pool");
    let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool is live.
    let command = unsafe { device.allocate_command_buffers(&info) }.expect("one")[0];
    // SAFETY: fresh.
    unsafe { device.begin_command_buffer(command, &vk::CommandBufferBeginInfo::default()) }.expect("it begins");
    for value in [1, 2] {
        // SAFETY: it is being recorded. The second is a hazard on purpose.
        unsafe { device.cmd_fill_buffer(command, buffers[1], 0, 64, value) };
    }
    // SAFETY: nothing was submitted.
    unsafe { device.destroy_command_pool(pool, None) };
    for buffer in buffers {
        // SAFETY: likewise.
        unsafe { device.destroy_buffer(buffer, None) };
    }
    // SAFETY: likewise; its buffer is gone.
    unsafe { device.free_memory(memory, None) };
}

/// Runs the tests of this program but `test` once more under the layer; skips by name where there is none.
pub fn finds_nothing(test: &str) {
    if std::env::var_os(WRONG).is_some() {
        return make_wrong_calls();
    }
    // SAFETY: loads the system's Vulkan library.
    let entry = unsafe { ash::Entry::load() };
    // SAFETY: the library is loaded.
    let layers = entry.map(|entry| unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default());
    if !layers.unwrap_or_default().iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER)) {
        println!("SKIP {test}: no validation layer: install vulkan-validationlayers");
        return;
    }
    if VulkanBackend::open(0).is_ok() {
        let wrong = found(&["--exact", test, "--nocapture"], true);
        for rule in ["VUID-VkBufferCreateInfo-size-00912", "SYNC-HAZARD-WRITE"] {
            assert!(wrong.iter().any(|line| line.contains(rule)), "the layer does not report {rule}: {wrong:#?}");
        }
    }
    let found = found(&["--skip", test, "--nocapture"], false);
    assert!(found.is_empty(), "{found:#?}");
}
