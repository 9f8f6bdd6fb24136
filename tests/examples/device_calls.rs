//! Counts driver calls, use of memory, and refusals over recorded runs and hostile patterns, beside PyTorch's own policies.
//!
//! `cargo run --release -p terrace-tests --example device_calls [DIRECTORY]`: the traces of `tests/data`, or of a directory, and eight
//! patterns with three seeds, in 4, 1.05 and 1.03 times their peak. With `--steps FOLDER DIRECTORY` it writes them to files, one
//! each, for programs that are not Rust: `peak BYTES`, then `a SLOT BYTES STREAM` and `f SLOT`.
//!
//! A call is a call of the driver: for pages each handle created, mapped and released, each range opened and unmapped; for segments
//! each one taken or given back. terrace's are counted by its sources over a device made of numbers (the simulated driver counts
//! the same: `device_simcuda::calls::`); PyTorch's by a model of its allocator, with default options and with
//! `expandable_segments:True`. Nothing is launched, so that neither records or queries events for work in flight.

use std::path::{Path, PathBuf};
use terrace::recording::Reader;
use terrace_device::{Device, DeviceOptions, PoolOrigin};
use terrace_models::scenarios::{Expandable, OnDevice, Outcome, Pooled, Scenario, Step, run};
use terrace_models::{PyTorch, Segments};
use terrace_tests::manual::Manual;

/// Bytes of the device: more than any run takes.
const TOTAL: u64 = 256 << 30;

/// Blocks of up to 16 bytes are left out, as in `replay --min-size 17`.
const LEAST: u64 = 17;

/// Capacities in permille of a run's peak.
const CAPACITIES: [u64; 3] = [4000, 1050, 1030];

/// Seeds of the patterns.
const SEEDS: [u64; 3] = [100, 200, 300];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kept = || Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let (to, rest) = match words.as_slice() {
        [option, to, rest @ ..] if option == "--steps" => (Some(Path::new(to)), rest),
        rest => (None, rest),
    };
    let folder = rest.first().map_or_else(kept, PathBuf::from);
    if to.is_none() {
        println!(
            "calls, use of memory, refusals     own                 expandable          pages               segments"
        );
    }
    let hostile = SEEDS.into_iter().flat_map(|seed| Scenario::hostile(seed).into_iter());
    for scenario in recorded(&folder)?.into_iter().chain(hostile) {
        match to {
            Some(to) => std::fs::write(to.join(format!("{}.steps", scenario.name)), steps(&scenario))?,
            None => compare(&scenario)?,
        }
    }
    Ok(())
}

/// A scenario as text.
fn steps(scenario: &Scenario) -> String {
    let lines = scenario.steps.iter().map(|step| match *step {
        Step::Allocate { slot, bytes, stream } => format!("a {slot} {bytes} {stream}\n"),
        Step::Free { slot } => format!("f {slot}\n"),
    });
    std::iter::once(format!("peak {}\n", scenario.peak)).chain(lines).collect()
}

fn recorded(folder: &Path) -> Result<Vec<Scenario>, Box<dyn std::error::Error>> {
    let mut traces: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    traces.retain(|path| path.to_string_lossy().ends_with(".csv.zst") && !path.to_string_lossy().contains("malloc_"));
    traces.sort();
    let scenario = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace(".csv", "");
        let entries = Reader::open(path)?.collect::<Result<Vec<_>, _>>()?;
        Ok(Scenario::recorded(name, LEAST, entries.into_iter().map(|entry| (entry.event, entry.slot))))
    };
    traces.iter().map(scenario).collect()
}

/// Prints one line for each capacity.
fn compare(scenario: &Scenario) -> Result<(), Box<dyn std::error::Error>> {
    for permille in CAPACITIES {
        let scenario = scenario.limited(&scenario.name, permille);
        let limit = scenario.limit;
        let own = run(&scenario, &mut Pooled(PyTorch::new(Segments::new(limit))));
        let expandable = run(&scenario, &mut Expandable::new(limit)?);
        let [pages, segments] = [PoolOrigin::Pages, PoolOrigin::Segments].map(|origin| on_device(&scenario, origin));
        let columns = [own, expandable, pages?, segments?].map(|outcome| shown(&outcome));
        println!("{:24} {:5.2}  {}", scenario.name, permille as f64 / 1000.0, columns.join("  "));
    }
    Ok(())
}

fn shown(outcome: &Outcome) -> String {
    format!("{:6} {:.3} {:5}", outcome.totals.calls, outcome.utilisation(), outcome.failed)
}

fn on_device(scenario: &Scenario, origin: PoolOrigin) -> Result<Outcome, Box<dyn std::error::Error>> {
    let options = DeviceOptions { origin, capacity: scenario.limit, ..DeviceOptions::default() };
    let device = Device::open(Manual::new(TOTAL, origin == PoolOrigin::Pages), options)?;
    let outcome = run(scenario, &mut OnDevice::new(&device, scenario)?);
    device.check()?;
    Ok(outcome)
}
