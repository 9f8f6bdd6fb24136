//! The suite of every device, on the host's memory.

use terrace_device::{Backend, Device, FaultReason, HostBackend, MemoryKind};
use terrace_tests::device::World;

fn world(case: &dyn Fn(&World<'_>)) {
    case(&World { open: &|options| Device::open(HostBackend::with_total(1 << 30), options), bytes: true });
}

terrace_tests::device_suite!(world);

#[test]
fn the_host_takes_no_region_of_no_bytes_nor_beyond_its_total() {
    let host = HostBackend::with_total(1 << 20);
    for bytes in [0, (1 << 20) + 1, u64::MAX] {
        let refused = host.take(MemoryKind::Device, bytes).expect_err("no such region");
        assert_eq!(refused.reason, FaultReason::OutOfMemory, "{bytes}");
    }
    assert_eq!(host.memory().expect("it is told").total, 1 << 20);
}
