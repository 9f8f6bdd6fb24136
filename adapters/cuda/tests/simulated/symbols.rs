//! Drivers that lack functions: each function that is looked up, and all that came with a version.

use crate::child;
use std::path::PathBuf;
use terrace_cuda::{Cuda, OpenError, OpenErrorReason, functions};
use terrace_device::Backend;
use terrace_tests::simcuda::{Simulator, without_symbols};

/// In a child: opens the first device and prints the result.
pub fn open_and_tell() {
    let session = Simulator::exclusive(r#"{"profile":"discrete"}"#);
    match Cuda::open(0) {
        Ok(cuda) => {
            println!("capabilities: {:?}", cuda.description().capabilities);
            cuda.description().notes.iter().for_each(|note| println!("note: {note}"));
            crate::workout::workout(&cuda).expect("what it has works");
            println!("worked: yes");
        }
        Err(OpenError { reason: OpenErrorReason::MissingSymbol { symbol, since }, .. }) => {
            println!("missing: {symbol} since {since}")
        }
        Err(error) => println!("error: {error}"),
    }
    drop(session);
}

/// A copy of the library without some symbols, deleted when dropped.
struct Copy(PathBuf);

impl Copy {
    fn without(symbols: &[&str]) -> Self {
        Self(without_symbols(symbols))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Functions that replace others which this driver has: without them no capability is lost.
const SPARE: [&str; 2] = ["cuMemPrefetchAsync_v2", "cuMemAdvise_v2"];

#[test]
fn each_function_may_be_missing() {
    assert!(functions().count() > 50, "all of them are tried: {}", functions().count());
    for function in functions() {
        let copy = Copy::without(&[function.symbol]);
        let told = child::run("open", Some(&copy.0)).ended_well(function.symbol);
        if function.required {
            let expected = format!("{} since {}", function.symbol, function.since);
            assert_eq!(told.value("missing"), Some(expected.as_str()), "{}", told.text);
        } else {
            assert_eq!(told.value("worked"), Some("yes"), "{}: {}", function.symbol, told.text);
            if SPARE.contains(&function.symbol) {
                continue;
            }
            let note = format!("the driver has no {}, which came with CUDA {}", function.symbol, function.since);
            assert!(told.text.lines().any(|line| line.starts_with("note: ") && line.ends_with(&note)), "{}", told.text);
        }
    }
}

#[test]
fn drivers_of_every_version_are_opened() {
    for (version, capabilities) in [
        ("11.4", vec!["PAGES", "DRIVER_POOL", "MANAGED", "PINNED"]),
        ("11.8", vec!["PAGES", "DRIVER_POOL", "MANAGED", "PINNED"]),
        ("12.0", vec!["PAGES", "DRIVER_POOL", "MANAGED", "PINNED", "STREAM_NAMES"]),
        ("12.8", vec!["PAGES", "DRIVER_POOL", "MANAGED", "PINNED", "STREAM_NAMES"]),
        ("13.0", vec!["PAGES", "DRIVER_POOL", "MANAGED", "PINNED", "STREAM_NAMES"]),
    ] {
        let absent = Simulator::get().symbols_of(version);
        let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
        let copy = Copy::without(&absent);
        let told = child::run("open", Some(&copy.0)).ended_well(version);
        let found = told.value("capabilities").unwrap_or_else(|| panic!("{version}: {}", told.text)).to_owned();
        for capability in capabilities {
            assert!(found.contains(capability), "{version}: {capability} in {found}");
        }
        assert_eq!(found.contains("STREAM_NAMES"), !absent.contains(&"cuStreamGetId"), "{version}: {found}");
        assert_eq!(told.value("worked"), Some("yes"), "{version}: {}", told.text);
    }
}
