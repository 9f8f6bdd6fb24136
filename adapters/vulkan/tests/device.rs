//! The suite of every device, on the first Vulkan device; skipped by name where there is none.

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
