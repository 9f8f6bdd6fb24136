//! The library under PyTorch's own signatures, from C++, over the simulated driver: each test is a case of the program in
//! `tests/cxx`, in a process of its own, and ends with "nothing used wrongly, nothing left behind".

use crate::common::{self, Program, program};
use serde_json::{Value, json};

/// Runs a case; returns what the case wrote to its file.
fn run(case: &str, variables: &[(&str, &str)]) -> String {
    match program() {
        Program::At(program) => common::run(program, case, variables),
        Program::Missing => {
            println!("SKIP {case}: needs the C++ compiler `c++`");
            String::new()
        }
    }
}

/// The segments of a snapshot, if the case ran.
fn segments(text: &str) -> Vec<Value> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    for key in ["device_traces", "allocator_settings", "external_annotations", "terrace"] {
        assert!(!value[key].is_null(), "{key} in {text}");
    }
    serde_json::from_value(value["segments"].take()).unwrap_or_else(|error| panic!("segments: {error}"))
}

#[test]
fn every_hook_does_its_work_and_refuses_what_cannot_be() {
    for segment in segments(&run("hooks", &[])) {
        assert_eq!((&segment["requested_size"], &segment["device"]), (&100_000.into(), &0.into()));
        assert_eq!(segment["blocks"][0]["state"], "active_allocated");
        assert_eq!(segment["blocks"][0]["address"], segment["address"]);
    }
}

#[test]
fn devices_have_memory_and_limits_of_their_own() {
    run("devices", &[]);
}

#[test]
fn a_device_reads_another_s_memory_though_only_the_runtime_was_told() {
    for origin in ["auto", "segments"] {
        run("peers", &[("TERRACE_TORCH_ORIGIN", origin)]);
    }
}

#[test]
fn out_of_memory_is_null_or_an_exception_and_passes() {
    run("out_of_memory", &[]);
}

#[test]
fn a_variable_that_cannot_be_is_told() {
    run("settings", &[("TERRACE_TORCH_CAPACITY", "lots")]);
}

#[test]
fn a_forked_child_is_refused() {
    run("fork", &[]);
}

#[test]
fn memory_in_use_on_other_streams_is_not_given_out() {
    for origin in ["auto", "segments", "managed"] {
        run("streams", &[("TERRACE_TORCH_ORIGIN", origin)]);
    }
}

#[test]
fn default_streams_and_handles_of_nothing() {
    run("handles", &[]);
}

#[test]
fn pools_keep_what_their_filter_accepts() {
    let segments = segments(&run("pools", &[]));
    let of = |pool: [u64; 2]| segments.iter().filter(|segment| segment["segment_pool_id"] == json!(pool)).count();
    assert!(segments.is_empty() || (of([0, 7]) == 1 && of([0, 0]) >= 1), "{segments:?}");
}

#[test]
fn filters_are_copied_asked_and_destroyed() {
    run("filters", &[]);
}

#[test]
fn a_capture_on_a_stream_never_seen_before_is_not_disturbed() {
    for origin in ["auto", "segments"] {
        run("capture", &[("TERRACE_TORCH_ORIGIN", origin)]);
    }
}

#[test]
fn twenty_thousand_steps_keep_every_byte() {
    run("property", &[]);
}
