//! Devices of OpenCL, on what this machine has: PoCL, whose device is the host's processors.

use terrace::Device;
use terrace::device::{PassedByReason, Preference};

#[test]
fn the_host_comes_before_its_processors_under_another_name() {
    const TEST: &str = "the_host_comes_before_its_processors_under_another_name";
    let all = Device::all();
    let Some(found) = all.iter().find(|found| found.name == "opencl:0") else {
        let told = all.iter().find(|found| found.name == "opencl").expect("listed");
        println!("SKIP {TEST}: {}", told.opened.as_ref().expect_err("not opened"));
        return;
    };
    let device = found.opened.as_ref().expect("it opens");
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 1 << 20).expect("memory");
    assert_eq!((device.description().backend, block.bytes()), ("opencl", 1 << 20));
    // With memory of another kind.
    use terrace::device::{DeviceOptions, OpenClBackend, OpenClMemory};
    if let Ok(backend) = OpenClBackend::open_with(0, OpenClMemory::FineSvm) {
        let device = Device::open(backend, DeviceOptions::default()).expect("it opens");
        assert!(device.allocate(&device.stream().expect("a stream"), 1 << 20).is_ok());
    }
    let best = Device::best_for(64 << 20).expect("the host has room");
    let passed_by = best.passed_by.iter().find(|other| other.name == "opencl:0").expect("listed");
    if device.description().capabilities.contains(terrace::device::Capabilities::PROCESSOR) {
        assert_ne!(best.name, "opencl:0");
        let because = Preference::Host;
        let behind = PassedByReason::Behind { chosen: best.name.clone(), because };
        assert!(best.name != "host" || passed_by.reason == behind, "{passed_by:?}");
    }
}
