//! The suite of every device, on Apple silicon. No machine of the project's has run it yet.
#![cfg(target_os = "macos")]

use terrace_device::Device;
use terrace_metal::Metal;
use terrace_tests::device::World;

fn world(case: &dyn Fn(&World<'_>)) {
    let metal = Metal::open().unwrap_or_else(|error| panic!("{error}"));
    case(&World { open: &|options| Device::open(metal.clone(), options), bytes: true });
}

terrace_tests::device_suite!(world);
