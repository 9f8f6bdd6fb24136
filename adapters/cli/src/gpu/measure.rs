//! The measurements.
//!
//! Promises upward: a fresh device for each row; times are of the whole loop over a scenario, freeing included, so that they
//! hold a few ns of the loop's own.
//! Asks from below: a device, a monotonic clock.

use super::access::{self, AccessTime};
use super::open::DeviceName;
use super::plan::halvings;
use super::transfers::{self, CopyRates};
use super::warm_up::{self, WarmUpTimes};
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Instant;
use terrace::device::{Capabilities, DeviceError, DeviceOptions, PoolOrigin};
use terrace::{Device, NoFence};
use terrace_models::scenarios::{OnDevice, Outcome, Pooled, Scenario, Totals, run};
use terrace_models::{Growing, PyTorch, PyTorchOptions, Segments};

/// What was measured. The names are the JSON keys.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// As `--device` takes it.
    pub device: String,
    /// Why it is the host, where nothing was asked for.
    pub chosen_because: Option<String>,
    /// The device's own name.
    pub name: String,
    /// Driver and version.
    pub driver: String,
    /// Memory of the device.
    pub total_bytes: u64,
    /// Memory that was free at the start.
    pub free_bytes: u64,
    /// Whether a tenth of the steps was run.
    pub quick: bool,
    /// Allocate and drop 4 KiB that the stream's cache has, best of [`BATCHES`].
    pub hit_ns: f64,
    /// The same, half of the batches took at most this.
    pub hit_ns_p50: f64,
    /// Copies of a large buffer.
    pub copies: Vec<CopyRates>,
    /// Slices of host memory whose bytes are there.
    pub access: Vec<AccessTime>,
    /// Steps of a training, cold and after a warm-up.
    pub warm_up: Vec<WarmUpTimes>,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// One for each scenario and subject.
    pub rows: Vec<ScenarioRow>,
}

/// One scenario on one subject. The names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRow {
    /// Name of the scenario.
    pub scenario: String,
    /// Who served it.
    pub subject: &'static str,
    /// Whether it is a model of a policy, without a device.
    pub model: bool,
    /// All sizes were divided by this, so that they fit.
    pub divided_by: u64,
    /// Steps: allocations and frees.
    pub operations: u64,
    /// Nanoseconds of a step; `null` for a model.
    pub ns_per_operation: Option<f64>,
    /// Calls to the device.
    pub calls: u64,
    /// Handles made for them.
    pub handles: u64,
    /// The most bytes to take; 0: the device's.
    pub limit_bytes: u64,
    /// Peak of live bytes as asked for.
    pub peak_live_bytes: u64,
    /// Peak of live bytes as given.
    pub peak_in_use_bytes: u64,
    /// Peak of bytes taken.
    pub peak_reserved_bytes: u64,
    /// `peak_live_bytes / peak_reserved_bytes`.
    pub utilisation: f64,
    /// Allocations refused.
    pub failed: u64,
}

/// Batches of hits, and hits of a batch: some ms each, so that a batch in which nothing else ran is among them.
pub const BATCHES: usize = 25;
const HITS: u32 = 100_000;

/// Percent of what is free that the pool may take: contexts and other programs need some.
const MOST: u64 = 90;

/// Measures everything.
pub fn measure_all(
    which: DeviceName,
    why: Option<String>,
    scenarios: &[Scenario],
    quick: bool,
) -> Result<BenchReport, Failure> {
    let device = which.open(DeviceOptions::default())?;
    let description = device.description().clone();
    let free = device.memory().map_err(|error| which.fail(error))?.free;
    let hits = hits(&device).map_err(|error| which.fail(error))?;
    let copies = transfers::measure_copies(&device, quick).map_err(|error| which.fail(error))?;
    let access = access::measure(&device).map_err(|error| which.fail(error))?;
    drop(device);
    let warm_up = warm_up::measure(which, free)?;
    let pages = description.capabilities.contains(Capabilities::PAGES);
    let origins: &[_] = if pages { &[PoolOrigin::Segments, PoolOrigin::Pages] } else { &[PoolOrigin::Segments] };
    let bar = bar(scenarios.len() * (origins.len() + 2));
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
            keep(on_device(which, origin, &scaled, free)?);
        }
        models(&scaled)?.into_iter().for_each(&mut keep);
    }
    bar.finish_and_clear();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Ok(BenchReport {
        device: which.to_string(),
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

/// Nanoseconds of an allocation and its drop, of each batch, rising.
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

fn on_device(which: DeviceName, origin: PoolOrigin, scenario: &Scenario, free: u64) -> Result<ScenarioRow, Failure> {
    let most = (u128::from(free) * u128::from(MOST) / 100) as u64;
    let capacity = if scenario.limit == 0 { most } else { scenario.limit };
    let device = which.open(DeviceOptions { origin, capacity, ..DeviceOptions::default() })?;
    let mut subject = OnDevice::new(&device, scenario).map_err(|error| which.fail(error))?;
    let begin = Instant::now();
    let outcome = run(scenario, &mut subject);
    let ns = begin.elapsed().as_nanos() as f64 / scenario.steps.len().max(1) as f64;
    let name = if origin == PoolOrigin::Pages { "terrace, pages" } else { "terrace, segments" };
    Ok(ScenarioRow { model: false, ns_per_operation: Some(ns), ..row(scenario, name, &outcome) })
}

/// PyTorch's policy, as it is and with expandable segments.
fn models(scenario: &Scenario) -> Result<[ScenarioRow; 2], Failure> {
    let plain = run(scenario, &mut Pooled(PyTorch::new(Segments::new(scenario.limit))));
    let options = PyTorchOptions { expandable: true, ..PyTorchOptions::default() };
    let expandable = PyTorch::with(Growing::new(scenario.limit), NoFence, options)
        .map_err(|error| Failure::Pool { pool: "pytorch", what: error.to_string() })?;
    let expandable = run(scenario, &mut Pooled(expandable));
    Ok([row(scenario, "PyTorch (model)", &plain), row(scenario, "PyTorch expandable (model)", &expandable)])
}

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

/// Progress over rows; hidden unless standard error is a terminal.
fn bar(rows: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(rows as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {pos} of {len}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
