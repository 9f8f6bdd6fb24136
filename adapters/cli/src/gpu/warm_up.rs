//! The effect of a warm-up: the first three steps of the built-in training, without and with one.
//!
//! Promises upward: each run has a newly opened device, and both kinds of run alternate. Times are those of the allocator alone:
//! no kernel is launched.
//! Asks from below: a device, a monotonic clock.

use super::open::DeviceName;
use super::plan;
use crate::failure::Failure;
use serde::Serialize;
use std::time::Instant;
use terrace::device::{DeviceBlock, DeviceError, DeviceOptions};
use terrace_models::scenarios::{Scenario, Step};

/// The times of the first three steps of the training. The field names are the JSON keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WarmUpTimes {
    /// Whether there was a warm-up.
    pub warm: bool,
    /// Milliseconds of each step, the best of [`RUNS`] runs.
    pub ms: [f64; 3],
    /// Number of calls to the device in each step.
    pub calls: [u64; 3],
    /// Milliseconds of the warm-up.
    pub warm_up_ms: f64,
}

/// Number of runs with a warm-up, and of runs without.
const RUNS: usize = 5;

/// Measures runs without and with a warm-up; nothing if the training does not fit into `free` bytes.
pub fn measure(name: DeviceName, free: u64) -> Result<Vec<WarmUpTimes>, Failure> {
    let (scenario, starts) = plan::training()?;
    if free / 10 * 7 < scenario.peak {
        return Ok(Vec::new());
    }
    let mut best: [Option<WarmUpTimes>; 2] = [None; 2];
    for _ in 0..RUNS {
        for (warm, best) in [false, true].into_iter().zip(&mut best) {
            let steps = run(name, &scenario, starts, warm)?;
            let least =
                |old: WarmUpTimes| WarmUpTimes { ms: std::array::from_fn(|at| old.ms[at].min(steps.ms[at])), ..steps };
            *best = Some(best.map_or(steps, least));
        }
    }
    Ok(best.into_iter().flatten().collect())
}

/// Runs the three steps once, after a warm-up if `warm`.
fn run(name: DeviceName, scenario: &Scenario, starts: [usize; 4], warm: bool) -> Result<WarmUpTimes, Failure> {
    let device = name.open(DeviceOptions::default())?;
    let fail = |error: DeviceError| name.failure(error);
    let stream = device.stream().map_err(fail)?;
    let mut blocks_by_slot: Vec<Option<DeviceBlock>> = (0..scenario.slots).map(|_| None).collect();
    let mut part = |steps: &[Step]| -> Result<(f64, u64), DeviceError> {
        let (begin, before) = (Instant::now(), device.stats().pool.source_calls);
        for step in steps {
            match *step {
                Step::Allocate { slot, bytes, .. } => {
                    blocks_by_slot[slot as usize] = Some(device.allocate(&stream, bytes)?)
                }
                Step::Free { slot } => blocks_by_slot[slot as usize] = None,
            }
        }
        Ok((begin.elapsed().as_secs_f64() * 1e3, device.stats().pool.source_calls - before))
    };
    part(&scenario.steps[..starts[0]]).map_err(fail)?;
    let begin = Instant::now();
    if warm {
        let mut blocks = scenario.at_peak(starts[0]..starts[1]);
        // Warm up a twentieth more than the peak, since free memory is fragmented.
        let bytes: u64 = blocks.iter().map(|(bytes, count)| bytes * u64::from(*count)).sum();
        blocks.push((bytes / 160, 8));
        device.warm_up(&stream, &blocks).map_err(fail)?;
    }
    let mut steps = WarmUpTimes { warm, ms: [0.0; 3], calls: [0; 3], warm_up_ms: begin.elapsed().as_secs_f64() * 1e3 };
    for at in 0..3 {
        (steps.ms[at], steps.calls[at]) = part(&scenario.steps[starts[at]..starts[at + 1]]).map_err(fail)?;
    }
    Ok(steps)
}
