//! All devices of a machine, and the best one, on a simulated CUDA driver of several GPUs.
#![cfg(target_os = "linux")]

use std::process::Command;
use terrace::Device;
use terrace::device::{PassedBy, PassedByReason, Preference};
use terrace_tests::simcuda::Simulator;

const GIB: u64 = 1 << 30;

/// Those of the host and CUDA: what else there is, is this machine's.
fn names() -> Vec<(String, bool)> {
    let all = Device::all().into_iter().map(|found| (found.name, found.opened.is_ok()));
    all.filter(|(name, _)| name == "host" || name.starts_with("cuda")).collect()
}

/// How many devices of CUDA were passed by.
fn of_cuda(passed_by: &[PassedBy]) -> usize {
    passed_by.iter().filter(|other| other.name.starts_with("cuda:")).count()
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
    assert_eq!((names().len(), found[1].name.as_str()), (2, "cuda"));
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
        Ok(best) => assert_eq!((best.name.as_str(), of_cuda(&best.passed_by)), ("host", 3)),
        Err(error) => assert_eq!(of_cuda(&error.passed_by), 3, "{error}"),
    }
    drop(taken);
}

#[test]
fn a_gpu_that_shares_the_host_s_memory_comes_before_the_host_and_behind_its_own() {
    let _session = Simulator::exclusive(r#"{"profile": "orin", "total": 8589934592}"#);
    let best = Device::best_for(64 << 20).expect("one has room");
    assert_eq!(best.name, "cuda:0");
    let reason = best.passed_by.iter().find(|other| other.name == "host").map(|other| &other.reason);
    assert_eq!(reason.cloned(), Some(PassedByReason::Behind { chosen: "cuda:0".into(), because: Preference::Gpu }));
}

/// Set in the child, whose library path leads to libraries that end a process which loads them.
const CHILD: &str = "TERRACE_TEST_CRASHING_LIBRARY";

/// A driver's library aborts when it is loaded: its devices are told to be missing, with the reason, and the program goes on.
#[test]
fn a_library_that_aborts_takes_no_program_down() {
    const TEST: &str = "a_library_that_aborts_takes_no_program_down";
    if std::env::var_os(CHILD).is_some() {
        for found in Device::all() {
            println!("{}: {}", found.name, found.opened.map_or_else(|problem| problem, |_| "opened".into()));
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder of our own");
    let source = folder.path().join("aborts.c");
    std::fs::write(&source, "void abort(void);\n__attribute__((constructor)) static void start(void) { abort(); }\n")
        .expect("written");
    for name in ["libcuda.so", "libamdhip64.so"] {
        let cc =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(folder.path().join(name)).arg(&source).status();
        assert!(cc.expect("a C compiler").success());
    }
    // A driver that OpenCL's loader would load, by what it is told in this folder.
    let driver = folder.path().join("libamdhip64.so").display().to_string();
    std::fs::write(folder.path().join("aborts.icd"), format!("{driver}\n")).expect("written");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").env("LD_LIBRARY_PATH", folder.path());
    command.env("OCL_ICD_VENDORS", folder.path());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("host: opened"), "{said}");
    assert!(said.contains("cuda: libcuda.so ends a process that loads it (signal 6)"), "{said}");
    if cfg!(feature = "opencl") {
        assert!(said.contains(&format!("opencl: {driver} ends a process that loads it (signal 6)")), "{said}");
    }
    if cfg!(feature = "hip") {
        assert!(said.contains("hip: libamdhip64.so ends a process that loads it (signal 6)"), "{said}");
    }
}
