//! The suite of every device, on the first Vulkan device; skipped by name where there is none.

#[path = "between/mod.rs"]
mod between;
mod validated;

use terrace_device::Device;
use terrace_tests::device::World;
use terrace_vulkan::VulkanBackend;

fn world(case: &dyn Fn(&World<'_>)) {
    match VulkanBackend::open(0) {
        Ok(_) => case(&World {
            open: &|options| Device::open(VulkanBackend::open(0).expect("it opened before"), options),
            bytes: true,
        }),
        Err(error) => println!("SKIP {}: {error}", std::thread::current().name().unwrap_or_default()),
    }
}

terrace_tests::device_suite!(world);

#[test]
fn the_validation_layer_finds_nothing() {
    validated::finds_nothing("the_validation_layer_finds_nothing");
}

/// The same suite on pages. No driver here binds any: a library of ours says that it does, and checks what is bound.
#[test]
fn the_suite_holds_on_pages_that_a_library_of_ours_binds() {
    const TEST: &str = "the_suite_holds_on_pages_that_a_library_of_ours_binds";
    if VulkanBackend::open(0).is_err() {
        println!("SKIP {TEST}: no device");
        return;
    }
    let skipped = ["--skip", TEST, "--skip", "the_validation_layer_finds_nothing"];
    let Some(text) = between::run(TEST, &skipped, &[("BETWEEN_ROLE", "sparse")]) else { return };
    let count = |call: &str| text.matches(call).count();
    let (devices, binds) = (count("vkCreateDevice"), count("vkQueueBindSparse, 1 bound"));
    assert!(binds > devices && devices > 40, "{binds} binds of {devices} devices: more than each tries: {text}");
}
