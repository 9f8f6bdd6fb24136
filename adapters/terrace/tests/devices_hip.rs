//! Devices of HIP, on a simulated one. A process of its own: a program asks the loader for HIP's library once.
#![cfg(target_os = "linux")]

use terrace::Device;
use terrace_tests::simcuda::HipSession;

#[test]
fn devices_of_hip_are_listed_behind_those_of_cuda() {
    let _session = HipSession::exclusive(r#"{"profile": "two-peers"}"#);
    let all = Device::all().into_iter().map(|found| (found.name, found.opened.is_ok()));
    let all: Vec<_> = all.filter(|(name, _)| ["host", "cuda", "hip"].iter().any(|of| name.starts_with(of))).collect();
    let listed = ["host", "cuda:0", "cuda:1", "hip:0", "hip:1"].map(|name| (name.to_string(), true));
    assert_eq!(all, listed);
    let device = Device::hip(1).expect("the second");
    assert_eq!((device.description().backend, device.description().ordinal), ("hip", 1));
    assert!(Device::hip(2).is_err_and(|error| error.to_string().contains("no ROCm device 2")));
}
