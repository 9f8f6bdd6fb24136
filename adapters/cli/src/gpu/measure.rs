//! The measurements of `terrace bench gpu`.
//!
//! Promises upward: each row has a newly opened device. Times are those of a loop over the scenario, frees included, and contain
//! a few ns of the loop itself.
//! Asks from below: a device, a monotonic clock.

use super::access::{self, AccessTime, BATCHES};
use super::open::DeviceName;
use super::plan::halvings;
use super::transfers::{self, CopyRates};
use super::warm_up::{self, WarmUpTimes};
use crate::failure::Failure;
use crate::progress;
use serde::Serialize;
use std::time::Instant;
use terrace::Device;
use terrace::device::{Capabilities, DeviceError, DeviceOptions, PoolOrigin};
use terrace::engine::NoFence;
use terrace_models::scenarios::{OnDevice, Outcome, Pooled, Scenario, Totals, run};
use terrace_models::{Growing, PyTorch, PyTorchOptions, Segments};
use terrace_replay::PoolFailure;

/// All measurements on a device. The field names are the JSON keys.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// The name that `--device` takes.
    pub device: String,
    /// Why the host was chosen, if no device was requested.
    pub chosen_because: Option<String>,
    /// The product name of the device.
    pub name: String,
    /// The name and version of the driver.
    pub driver: String,
    /// Bytes of memory that the device has.
    pub total_bytes: u64,
    /// Bytes of device memory that were free at the start.
    pub free_bytes: u64,
    /// Whether a tenth of the steps was run.
    pub quick: bool,
    /// Nanoseconds to allocate and drop a block of 4 KiB from the stream's cache: the best of [`BATCHES`] batches.
    pub hit_ns: f64,
    /// Nanoseconds to allocate and drop a block of 4 KiB from the stream's cache: the median of the batches.
    pub hit_ns_p50: f64,
    /// Rates of copying a large buffer.
    pub copies: Vec<CopyRates>,
    /// Latencies of accesses to host slices whose bytes are resident.
    pub access: Vec<AccessTime>,
    /// Times of the steps of a training, without and with a warm-up.
    pub warm_up: Vec<WarmUpTimes>,
    /// Time of the measurement, in seconds since 1970.
    pub unix_seconds: u64,
    /// A row for each scenario on each subject: an allocator, or a model of one.
    pub rows: Vec<ScenarioRow>,
}

/// The result of one scenario on one subject. The field names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRow {
    /// Name of the scenario.
    pub scenario: String,
    /// The name of the subject: an allocator, or a model of one.
    pub subject: &'static str,
    /// Whether the subject is a model, which runs without a device.
    pub model: bool,
    /// The number by which all sizes of the scenario were divided, so that it fits into the device.
    pub divided_by: u64,
    /// Number of steps of the scenario: allocations and frees.
    pub operations: u64,
    /// Mean nanoseconds of a step; `null` for a model.
    pub ns_per_operation: Option<f64>,
    /// Number of calls to the device by which the subject took, moved or returned memory.
    pub calls: u64,
    /// Number of handles of device memory that these calls created.
    pub handles: u64,
    /// The most bytes that the subject may reserve; 0: as many as the device has.
    pub limit_bytes: u64,
    /// Peak of the sum of requested bytes of live blocks.
    pub peak_live_bytes: u64,
    /// Peak of the sum of allocated bytes of live blocks, rounding included.
    pub peak_in_use_bytes: u64,
    /// Peak of the bytes reserved from the device.
    pub peak_reserved_bytes: u64,
    /// `peak_live_bytes / peak_reserved_bytes`.
    pub utilisation: f64,
    /// Number of allocations that failed.
    pub failed: u64,
}

/// Number of allocations in a batch, each served from the stream's cache.
const HITS: u32 = 100_000;

/// The most that a pool may reserve, in percent of free memory: contexts and other programs need the rest.
const POOL_PERCENT: u64 = 90;

/// Runs all measurements of `terrace bench gpu` on one device.
pub fn measure_all(
    name: DeviceName,
    why: Option<String>,
    scenarios: &[Scenario],
    quick: bool,
) -> Result<BenchReport, Failure> {
    let device = name.open(DeviceOptions::default())?;
    let description = device.description().clone();
    let free = device.memory().map_err(|error| name.failure(error))?.free;
    let hits = hits(&device).map_err(|error| name.failure(error))?;
    let copies = transfers::measure_copies(&device, quick).map_err(|error| name.failure(error))?;
    let access = access::measure(&device).map_err(|error| name.failure(error))?;
    drop(device);
    let warm_up = warm_up::measure(name, free)?;
    let pages = description.capabilities.contains(Capabilities::PAGES);
    let origins: &[_] = if pages { &[PoolOrigin::Segments, PoolOrigin::Pages] } else { &[PoolOrigin::Segments] };
    let rows_to_come = scenarios.len() * (origins.len() + 2);
    let bar = progress::bar(Some(rows_to_come as u64), "{msg} {bar:40} {pos} of {len}, {eta} left");
    let mut rows = Vec::new();
    for scenario in scenarios {
        let shift = halvings(scenario, free);
        let scaled = scenario.scaled(shift);
        let mut keep = |row: ScenarioRow| {
            rows.push(ScenarioRow { divided_by: 1 << shift, ..row });
            bar.inc(1);
        };
        for &origin in origins {
            bar.set_message(scenario.name.clone());
            keep(on_device(name, origin, &scaled, free)?);
        }
        models(&scaled)?.into_iter().for_each(&mut keep);
    }
    bar.finish_and_clear();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(BenchReport {
        device: name.to_string(),
        chosen_because: why,
        name: description.name,
        driver: description.driver,
        total_bytes: description.total,
        free_bytes: free,
        quick,
        hit_ns: hits[0],
        hit_ns_p50: hits[BATCHES / 2],
        copies,
        access,
        warm_up,
        unix_seconds: now.map_or(0, |now| now.as_secs()),
        rows,
    })
}

/// For each batch the mean nanoseconds of an allocation and its drop, sorted.
fn hits(device: &Device) -> Result<[f64; BATCHES], DeviceError> {
    let stream = device.stream()?;
    drop(device.allocate(&stream, 4096)?);
    let mut times = [0.0; BATCHES];
    for time in &mut times {
        let begin = Instant::now();
        for _ in 0..HITS {
            drop(std::hint::black_box(device.allocate(&stream, std::hint::black_box(4096))?));
        }
        *time = begin.elapsed().as_nanos() as f64 / f64::from(HITS);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Runs a scenario on a device.
fn on_device(name: DeviceName, origin: PoolOrigin, scenario: &Scenario, free: u64) -> Result<ScenarioRow, Failure> {
    let most = (u128::from(free) * u128::from(POOL_PERCENT) / 100) as u64;
    let capacity = if scenario.limit == 0 { most } else { scenario.limit };
    let device = name.open(DeviceOptions { origin, capacity, ..DeviceOptions::default() })?;
    let mut subject = OnDevice::new(&device, scenario).map_err(|error| name.failure(error))?;
    let begin = Instant::now();
    let outcome = run(scenario, &mut subject);
    let ns = begin.elapsed().as_nanos() as f64 / scenario.steps.len().max(1) as f64;
    let subject_name = if origin == PoolOrigin::Pages { "terrace, pages" } else { "terrace, segments" };
    Ok(ScenarioRow { model: false, ns_per_operation: Some(ns), ..row(scenario, subject_name, &outcome) })
}

/// Runs a scenario on the models of PyTorch's allocator: the default one, and with expandable segments.
fn models(scenario: &Scenario) -> Result<[ScenarioRow; 2], Failure> {
    let plain = run(scenario, &mut Pooled(PyTorch::new(Segments::new(scenario.limit))));
    let options = PyTorchOptions { expandable: true, ..PyTorchOptions::default() };
    let expandable = PyTorch::with(Growing::new(scenario.limit), NoFence, options)
        .map_err(|error| PoolFailure { pool: "pytorch", what: error.to_string() })?;
    let expandable = run(scenario, &mut Pooled(expandable));
    Ok([row(scenario, "PyTorch (model)", &plain), row(scenario, "PyTorch expandable (model)", &expandable)])
}

/// The row of a model; for a device, the caller overwrites the fields that differ.
fn row(scenario: &Scenario, subject: &'static str, outcome: &Outcome) -> ScenarioRow {
    let Totals { calls, handles, peak_reserved, peak_in_use } = outcome.totals;
    ScenarioRow {
        scenario: scenario.name.clone(),
        subject,
        model: true,
        divided_by: 1,
        operations: scenario.steps.len() as u64,
        ns_per_operation: None,
        calls,
        handles,
        limit_bytes: scenario.limit,
        peak_live_bytes: outcome.peak_live,
        peak_in_use_bytes: peak_in_use,
        peak_reserved_bytes: peak_reserved,
        utilisation: outcome.utilisation(),
        failed: outcome.failed,
    }
}
