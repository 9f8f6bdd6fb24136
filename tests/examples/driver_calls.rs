//! Counts the calls of the driver that recorded trainings need, of each function: on pages, on segments, and by PyTorch's policy.
//!
//! `cargo run --release -p terrace-tests --example driver_calls [DIRECTORY]`: the traces of `tests/data`, or of a directory.
//!
//! terrace's calls are counted by a simulated CUDA driver under `Device`. PyTorch's policy is a model of its allocator's rules, in
//! which a segment is taken, and given back, by one call; with `expandable_segments:True` a handle is made and mapped by two, and
//! each mapped range opened by one. Nothing is launched, so that neither records or queries events for
//! work in flight.

use std::path::{Path, PathBuf};
use terrace::recording::Reader;
use terrace_core::NoFence;
use terrace_cuda::Cuda;
use terrace_device::{Device, DeviceOptions, PoolOrigin};
use terrace_models::scenarios::{OnDevice, Pooled, Scenario, run};
use terrace_models::{Growing, PyTorch, PyTorchOptions, Segments};
use terrace_tests::simcuda::Simulator;

/// Functions that take or give memory, and those that change what addresses have memory.
const FUNCTIONS: [&str; 11] = [
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
];

/// Blocks of up to 16 bytes are left out, as in `replay --min-size 17`.
const LEAST: u64 = 17;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kept = || Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let folder = std::env::args_os().nth(1).map_or_else(kept, PathBuf::from);
    let mut traces: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    traces.retain(|path| path.to_string_lossy().ends_with(".csv.zst") && !path.to_string_lossy().contains("malloc_"));
    traces.sort();
    for path in traces {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace(".csv", "");
        let entries = Reader::open(&path)?.collect::<Result<Vec<_>, _>>()?;
        let scenario = Scenario::recorded(&name, LEAST, entries.into_iter().map(|entry| (entry.event, entry.slot)));
        let model = run(&scenario, &mut Pooled(PyTorch::new(Segments::new(0)))).totals.calls;
        println!("{name}: PyTorch's policy {model} calls");
        let options = PyTorchOptions { expandable: true, ..PyTorchOptions::default() };
        let expandable = run(&scenario, &mut Pooled(PyTorch::with(Growing::new(0), NoFence, options)?)).totals;
        let (maps, handles) = (expandable.calls, expandable.handles);
        println!(
            "  expandable_segments: {} calls, {:.1} times as many: cuMemCreate {handles}, cuMemMap {handles}, cuMemSetAccess {maps}",
            2 * handles + maps,
            (2 * handles + maps) as f64 / model as f64
        );
        for origin in [PoolOrigin::Segments, PoolOrigin::Pages] {
            let (all, by_function) = counted(&scenario, origin)?;
            println!("  {origin:?}: {all} calls, {:.1} times as many: {by_function}", all as f64 / model as f64);
        }
    }
    Ok(())
}

/// The calls between the opening of a device and its end, all and by function.
fn counted(scenario: &Scenario, origin: PoolOrigin) -> Result<(u64, String), Box<dyn std::error::Error>> {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = Device::open(Cuda::open(0)?, DeviceOptions { origin, ..DeviceOptions::default() })?;
    let mut subject = OnDevice::new(&device, scenario)?;
    let before: Vec<u64> = FUNCTIONS.iter().map(|name| session.calls(Some(name))).collect();
    let outcome = run(scenario, &mut subject);
    assert_eq!(outcome.failed, 0, "the simulated device is large enough");
    let calls: Vec<u64> =
        FUNCTIONS.iter().zip(before).map(|(name, before)| session.calls(Some(name)) - before).collect();
    let named = FUNCTIONS.iter().zip(&calls).filter(|(_, calls)| **calls > 0);
    Ok((calls.iter().sum(), named.map(|(name, calls)| format!("{name} {calls}")).collect::<Vec<_>>().join(", ")))
}
