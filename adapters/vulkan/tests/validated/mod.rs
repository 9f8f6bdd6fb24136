//! The Khronos validation layer over the other tests of a program.
//!
//! Promises upward: every rule of Vulkan that the layer knows, and its hazards between commands, is kept by all tests of the program.
//! Asks from below: the layer (Debian: vulkan-validationlayers), which prints what it finds.

use std::process::Command;

const LAYER: &std::ffi::CStr = c"VK_LAYER_KHRONOS_validation";

/// Runs the tests of this program but `test` once more under the layer; skips by name where there is none.
pub fn finds_nothing(test: &str) {
    // SAFETY: loads the system's Vulkan library.
    let entry = unsafe { ash::Entry::load() };
    // SAFETY: the library is loaded.
    let layers = entry.map(|entry| unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default());
    if !layers.unwrap_or_default().iter().any(|layer| layer.layer_name_as_c_str() == Ok(LAYER)) {
        println!("SKIP {test}: no validation layer: install vulkan-validationlayers");
        return;
    }
    let output = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--skip", test, "--nocapture"])
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        .env("VK_LAYER_ENABLES", "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT")
        .output()
        .expect("our own program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<_> = text.lines().filter(|line| line.contains("Validation")).collect();
    assert!(found.is_empty(), "{found:#?}");
}
