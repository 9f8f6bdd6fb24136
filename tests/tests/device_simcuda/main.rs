//! Devices over the simulated CUDA driver: the suite on every profile, every call of the driver failing once, what a hit
//! costs, copies in flight, loss, peers, shared memory, the end of the process.
//!
//! Each test has the driver to itself, and ends with "nothing used wrongly, nothing left behind".
#![cfg(target_os = "linux")]

mod batches;
mod calls;
mod ends;
mod engine;
mod faults;
mod flight;
mod growth;
mod held;
mod hints;
mod hits;
mod journey;
mod loss;
mod maintenance;
mod memory;
mod peers;
mod registered;
mod streams;
mod sweep;
mod tiers;
mod transfer_faults;
mod transfers;
mod waiting;

use terrace_cuda::Cuda;
use terrace_device::{Device, DeviceError, DeviceOptions};
use terrace_tests::device::World;
use terrace_tests::simcuda::Simulator;

/// A device over the driver.
fn open(ordinal: u32, options: DeviceOptions) -> Result<Device, DeviceError> {
    let cuda = Cuda::open(ordinal).unwrap_or_else(|error| panic!("the simulated driver opens: {error}"));
    Device::open(cuda, options)
}

/// Small and quick.
fn small() -> DeviceOptions {
    DeviceOptions { capacity: 256 << 20, blocks: 1 << 14, ..DeviceOptions::default() }
}

fn world(case: &dyn Fn(&World<'_>)) {
    for profile in ["discrete", "orin", "wsl2", "vgpu"] {
        println!("profile {profile}");
        let _session = Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
        case(&World { open: &|options| open(0, options), bytes: true });
    }
}

terrace_tests::device_suite!(world);
