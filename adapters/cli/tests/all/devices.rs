//! `terrace doctor` and `terrace bench gpu`: on the host, on a simulated CUDA driver, and without any.

use crate::common;

use common::{HEADER, Sandbox, stderr, stdout};
use serde_json::Value;

/// Runs a command, which must succeed, and parses its JSON.
fn json(here: &Sandbox, words: &[&str]) -> Value {
    let output = here.run(words);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// A trace of three events, for tests that do not need the built-in one.
fn trace(here: &Sandbox) -> String {
    let path = here.file("small.csv", format!("{HEADER}0,a,0,5000000,64,0,x\n10,a,1,100,64,0,y\n2000,f,0,,,0,\n"));
    path.to_str().unwrap().into()
}

#[test]
fn doctor_ends_well_wherever_it_runs() {
    let here = Sandbox::new();
    let report = json(&here, &["doctor", "--json"]);
    assert_eq!(keys(&report), ["cuda", "devices", "system", "terrace"]);
    assert_eq!(keys(&report["cuda"]), ["driver", "missing", "usable"]);
    let host = &report["devices"][0];
    assert_eq!((host["device"].as_str(), host["problem"].as_str()), (Some("host"), None));
    assert_eq!((&host["capabilities"]["synchronous"], &host["capabilities"]["pages"]), (&true.into(), &false.into()));
    // Either a CUDA device is usable, or the report says what is missing.
    assert_ne!(report["cuda"]["usable"].as_bool(), Some(report["cuda"]["missing"].is_string()));
    let output = here.run(&["doctor"]);
    assert!(output.status.success() && stderr(&output).is_empty());
    for part in
        ["system ", "memory ", "cuda ", "host  host memory", "synchronous         yes", "pages               no"]
    {
        assert!(stdout(&output).contains(part), "{part} in {}", stdout(&output));
    }
    assert!(here.names().is_empty());
}

#[test]
fn the_host_is_measured_beside_the_models() {
    let here = Sandbox::new();
    let report = json(&here, &["bench", "gpu", "--device", "host", "--quick", "--json", "--trace", &trace(&here)]);
    assert_eq!((report["device"].as_str(), report["quick"].as_bool()), (Some("host"), Some(true)));
    assert!(report["hit_ns"].as_f64() > Some(0.0) && report["hit_ns_p50"].as_f64() >= report["hit_ns"].as_f64());
    let rows = report["rows"].as_array().unwrap();
    // Five scenarios, each on segments and on both models of PyTorch's allocator.
    assert_eq!(rows.len(), 15);
    for row in rows {
        assert_eq!(row["model"].as_bool(), Some(row["ns_per_operation"].is_null()), "{row}");
        assert!(row["calls"].as_u64() > Some(0) && row["utilisation"].as_f64() <= Some(1.0), "{row}");
        let live = row["peak_live_bytes"].as_u64().unwrap();
        assert!(live > 0 && row["peak_in_use_bytes"].as_u64() >= Some(live), "{row}");
        assert!(row["peak_reserved_bytes"].as_u64() >= row["peak_in_use_bytes"].as_u64(), "{row}");
    }
    let names: Vec<_> = rows.iter().step_by(3).map(|row| row["scenario"].as_str().unwrap()).collect();
    assert_eq!(names, ["same", "large", "small", "tight small", "mixed"]);
    assert_eq!(here.names(), ["small.csv"]);
}

#[test]
fn a_file_is_written_only_where_it_was_asked_for() {
    let here = Sandbox::new();
    let words = ["bench", "gpu", "--device", "host", "--quick", "--trace", &trace(&here), "--out", "results/gpu"];
    let output = here.run(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let path = stdout(&output).lines().last().unwrap();
    assert!(path.starts_with("results/gpu/host-") && path.ends_with(".json"), "{path}");
    let written: Value = serde_json::from_slice(&std::fs::read(here.path(path)).unwrap()).unwrap();
    assert_eq!(written["rows"].as_array().unwrap().len(), 15);
    for part in ["host: host memory", "on a hit of the stream's cache", "PyTorch (model)", "tight small"] {
        assert!(stdout(&output).contains(part), "{part} in {}", stdout(&output));
    }
}

#[test]
fn what_cannot_be_used_is_one_line_that_says_what_to_do() {
    let here = Sandbox::new();
    here.file("a-file", "");
    let bad = [
        (vec!["bench", "gpu", "--device", "gpu0"], 2, "host or cuda:N"),
        (vec!["bench", "gpu", "--device", "cuda:4000000"], 1, "cuda:4000000"),
        (vec!["bench", "gpu", "--trace", "absent.csv"], 2, "absent.csv"),
        (vec!["bench", "gpu", "--device", "host", "--out", "a-file"], 1, "a-file"),
        (vec!["doctor", "--driver", "absent.so"], 1, "absent.so"),
        (vec!["doctor", "--driver", "a-file"], 1, "give the path of a CUDA driver's library"),
    ];
    for (words, code, what) in bad {
        let output = here.run(&words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(what) && output.stdout.is_empty(), "{words:?}: {}", stderr(&output));
    }
    let empty = here.file("scalars.csv", format!("{HEADER}0,a,0,8,8,0,x\n"));
    let output = here.run(&["bench", "gpu", "--trace", empty.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1), "{}", stderr(&output));
}

/// Tests on the simulated driver, which only Linux has.
#[cfg(target_os = "linux")]
mod simulated {
    use super::*;
    use terrace_tests::simcuda::without_symbols;

    /// The path of a copy of the simulated driver without some functions.
    fn driver(missing: &[&str]) -> String {
        without_symbols(missing).to_str().unwrap().into()
    }

    #[test]
    fn doctor_describes_the_device() {
        let here = Sandbox::new();
        let report = json(&here, &["doctor", "--json", "--driver", &driver(&[])]);
        assert_eq!((&report["cuda"]["usable"], &report["cuda"]["missing"]), (&true.into(), &Value::Null));
        let device = &report["devices"][1];
        assert_eq!(
            (device["device"].as_str(), device["capabilities"]["pages"].as_bool()),
            (Some("cuda:0"), Some(true))
        );
        assert!(
            device["free_bytes"].as_u64() > Some(0) && device["free_bytes"].as_u64() <= device["total_bytes"].as_u64()
        );
        assert_eq!(device["page_bytes"].as_u64(), Some(2 << 20));
        assert!(device["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains("own")));
        let text = here.run(&["doctor", "--driver", &driver(&[])]);
        let text = stdout(&text);
        assert!(text.contains("pages   of 2.00 MiB") && text.contains("pages               yes"), "{text}");
    }

    #[test]
    fn doctor_names_a_function_that_the_driver_lacks() {
        let here = Sandbox::new();
        let report = json(&here, &["doctor", "--json", "--driver", &driver(&["cuMemAlloc_v2"])]);
        assert_eq!(report["cuda"]["usable"].as_bool(), Some(false));
        let missing = report["cuda"]["missing"].as_str().unwrap();
        assert!(missing.contains("cuMemAlloc_v2") && missing.contains("install"), "{missing}");
        let of_cuda = |device: &&Value| device["device"].as_str().is_some_and(|name| name.starts_with("cuda"));
        let devices = report["devices"].as_array().unwrap();
        assert_eq!(devices.iter().filter(of_cuda).count(), 0, "it lacks it for every device: {report}");
        let report = json(&here, &["doctor", "--json", "--driver", &driver(&["cuMemMap"])]);
        let device = &report["devices"][1];
        assert_eq!((&device["capabilities"]["pages"], &device["page_bytes"]), (&false.into(), &0.into()));
        assert!(device["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains("cuMemMap")));
        let text = here.run(&["doctor", "--driver", &driver(&["cuMemMap"])]);
        assert!(!stdout(&text).contains("pages   of"), "{}", stdout(&text));
    }

    #[test]
    fn the_device_is_measured_by_segments_and_by_pages() {
        let here = Sandbox::new();
        let words = ["bench", "gpu", "--quick", "--json", "--trace", &trace(&here), "--driver", &driver(&[])];
        let report = json(&here, &words);
        assert_eq!((report["device"].as_str(), &report["chosen_because"]), (Some("cuda:0"), &Value::Null));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 20);
        let of = |subject: &str| rows.iter().filter(|row| row["subject"].as_str() == Some(subject)).collect::<Vec<_>>();
        assert_eq!(of("terrace, pages").len(), 5);
        for row in of("terrace, pages") {
            assert!(row["peak_reserved_bytes"].as_u64() <= report["free_bytes"].as_u64(), "{row}");
            // `tight small` has 5.5 MB, two whole pages, and the trace needs more.
            let refused = u64::from(row["scenario"].as_str() == Some("tight small"));
            assert_eq!(row["failed"].as_u64(), Some(refused), "{row}");
        }
        // A scenario that does not fit the device is scaled down, for all subjects alike.
        let divided: Vec<_> = rows.iter().rev().take(4).map(|row| row["divided_by"].as_u64().unwrap()).collect();
        assert!(divided[0] > 1 && divided.iter().all(|by| *by == divided[0]), "{divided:?}");
    }
}
