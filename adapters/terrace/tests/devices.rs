//! All devices of a machine, and the best one, on a simulated CUDA driver of several GPUs.
#![cfg(target_os = "linux")]

use terrace::Device;
use terrace::device::{PassedByReason, Preference};
use terrace_tests::simcuda::Simulator;

const GIB: u64 = 1 << 30;

fn names() -> Vec<(String, bool)> {
    Device::all().into_iter().map(|found| (found.name, found.opened.is_ok())).collect()
}

fn name(name: &str, opened: bool) -> (String, bool) {
    (name.into(), opened)
}

#[test]
fn every_device_is_listed_the_host_first() {
    let session = Simulator::exclusive(r#"{"profile": "two-peers", "devices": 3}"#);
    assert_eq!(names(), [name("host", true), name("cuda:0", true), name("cuda:1", true), name("cuda:2", true)]);
    // A device whose context cannot be made is listed, and hides no other.
    session.fail("cuDevicePrimaryCtxRetain", 2, 2);
    assert_eq!(names(), [name("host", true), name("cuda:0", true), name("cuda:1", false), name("cuda:2", true)]);
    drop(session);
    let _session = Simulator::exclusive(r#"{"profile": "none"}"#);
    let found = Device::all();
    assert_eq!((found.len(), found[1].name.as_str()), (2, "cuda"));
    let problem = found[1].opened.as_ref().unwrap_err();
    assert!(problem.contains("sees no device"), "{problem}");
}

#[test]
fn the_gpu_with_the_most_room_is_the_best_and_the_others_have_reasons() {
    let _session = Simulator::exclusive(r#"{"profile": "two-strangers", "devices": 3, "total": 8589934592}"#);
    // 6 GiB of the first and 4 of the third are taken.
    let taken = [(0, 6 * GIB), (2, 4 * GIB)].map(|(ordinal, bytes)| {
        let device = Device::cuda(ordinal).expect("the simulated driver opens");
        let stream = device.stream().expect("a stream");
        device.allocate(&stream, bytes).expect("a block")
    });
    let best = Device::best_for(3 * GIB).expect("one has room");
    assert_eq!(best.name, "cuda:1");
    assert!(best.room > 6 * GIB && best.room <= 8 * GIB, "{}", best.room);
    let reason = |name: &str| best.passed_by.iter().find(|other| other.name == name).map(|other| other.reason.clone());
    assert!(matches!(reason("cuda:0"), Some(PassedByReason::TooSmall { room, .. }) if room < 2 * GIB), "{best:?}");
    let behind = |because| PassedByReason::Behind { chosen: "cuda:1".into(), because };
    assert_eq!(reason("cuda:2"), Some(behind(Preference::MoreRoom)));
    let host = reason("host").expect("listed");
    assert!(host == behind(Preference::OwnMemory) || matches!(host, PassedByReason::TooSmall { .. }), "{host:?}");
    let stream = best.device.stream().expect("a stream");
    drop(best.device.allocate(&stream, 3 * GIB).expect("it has the room that was asked for"));
    // More than a GPU has: the host or, on a small machine, an error with each device.
    match Device::best_for(9 * GIB) {
        Ok(best) => assert_eq!((best.name.as_str(), best.passed_by.len()), ("host", 3)),
        Err(error) => assert_eq!(error.passed_by.len(), 4, "{error}"),
    }
    drop(taken);
}

#[test]
fn a_gpu_that_shares_the_host_s_memory_comes_before_the_host_and_behind_its_own() {
    let _session = Simulator::exclusive(r#"{"profile": "orin", "total": 8589934592}"#);
    let best = Device::best_for(64 << 20).expect("one has room");
    assert_eq!(best.name, "cuda:0");
    let reason = &best.passed_by[0].reason;
    assert_eq!(*reason, PassedByReason::Behind { chosen: "cuda:0".into(), because: Preference::Gpu });
}
