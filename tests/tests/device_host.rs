//! The suite of every device, on the host's memory.

use terrace_device::{Device, HostBackend};
use terrace_tests::device::World;

fn world(case: &dyn Fn(&World<'_>)) {
    case(&World { open: &|options| Device::open(HostBackend::with_total(1 << 30), options), bytes: true });
}

terrace_tests::device_suite!(world);
