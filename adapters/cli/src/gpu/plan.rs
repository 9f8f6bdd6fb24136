//! The scenarios to measure, and their sizes.
//!
//! Promises upward: traces are read to their end before the measurement; a scaled scenario fits its device.
//! Asks from below: recordings; [`Scenario`].

use crate::failure::Failure;
use crate::input;
use std::path::PathBuf;
use terrace::engine::event::Event;
use terrace::recording::{Reader, TraceError};
use terrace_models::scenarios::Scenario;

/// The built-in trace: some steps of a training of ResNet-50, 40,041 events with a peak of 905 MiB.
const BUILT_IN: (&str, &[u8]) =
    ("train_resnet50", include_bytes!("../../../../tests/data/train_resnet50.csv.zst").as_slice());

/// The smallest recorded block to replay: PyTorch allocates scalars of up to 16 bytes on the host, not on the device.
const LEAST_BYTES: u64 = 17;

/// `ROUNDS`: rounds of the scenario `same`. `LARGE` and `MIXED`: steps of the scenarios of these names.
const ROUNDS: u32 = 1000;
const LARGE: u32 = 1000;
const MIXED: u32 = 100_000;

/// The highest peak of live bytes that a scenario may have, in percent of the device's free bytes. Allocators need more
/// than is live: the best policies measured here reserve up to 35 % more, in the scenario `large`.
const LIVE_PERCENT: u64 = 70;

/// The recorded scenarios: one for each of `traces`, or the built-in one if there are none.
pub fn recorded(traces: &[PathBuf]) -> Result<Vec<Scenario>, Failure> {
    if traces.is_empty() {
        let (name, bytes) = BUILT_IN;
        return Ok(vec![scenario(name, Reader::new(name, bytes)?)?]);
    }
    let named = traces.iter().zip(input::names(traces));
    named.map(|(path, name)| scenario(&name, input::open(path)?)).collect()
}

/// The first `most` events of a trace, with their slots.
fn events(reader: Reader<'_>, most: usize) -> Result<Vec<(Event, Option<u32>)>, TraceError> {
    reader.take(most).map(|entry| entry.map(|entry| (entry.event, entry.slot))).collect()
}

fn scenario(name: &str, reader: Reader<'_>) -> Result<Scenario, Failure> {
    let scenario = Scenario::recorded(name, LEAST_BYTES, events(reader, usize::MAX)?);
    if scenario.steps.is_empty() {
        let text = format!("{name}: no event allocates more than 16 bytes; give a trace of a device's memory");
        return Err(Failure::Usage(text));
    }
    Ok(scenario)
}

/// The indices of the events at which the first four steps of the built-in training begin.
const STEP_STARTS: [usize; 4] = [320, 3551, 7265, 10_979];

/// The built-in training up to the end of its third step.
///
/// Also returns the indices at which its first four steps begin.
pub fn training() -> Result<(Scenario, [usize; 4]), Failure> {
    let (name, bytes) = BUILT_IN;
    let events = events(Reader::new(name, bytes)?, STEP_STARTS[3])?;
    // A scenario of the first `count` events is a prefix of the whole scenario, so its length is an index into that.
    let prefix = |count: usize| Scenario::recorded(name, LEAST_BYTES, events.iter().take(count).copied());
    Ok((prefix(STEP_STARTS[3]), STEP_STARTS.map(|start| prefix(start).steps.len())))
}

/// All five scenarios: `same`, `large`, the recorded ones, these again in little memory, and `mixed`.
pub fn scenarios(recorded: Vec<Scenario>, quick: bool) -> Vec<Scenario> {
    let part = |steps: u32| if quick { steps / 10 } else { steps };
    let tight: Vec<_> = recorded.iter().map(Scenario::tight).collect();
    let made = [Scenario::same(part(ROUNDS)), Scenario::large(part(LARGE))];
    made.into_iter().chain(recorded).chain(tight).chain([Scenario::mixed(part(MIXED))]).collect()
}

/// How many times to halve the sizes of a scenario so that it fits into `free` bytes.
pub fn halvings(scenario: &Scenario, free: u64) -> u32 {
    let room = (u128::from(free) * u128::from(LIVE_PERCENT) / 100) as u64;
    (0..64).find(|&shift| scenario.peak >> shift <= room).unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_halved_until_they_fit_and_no_further() {
        let large = Scenario::large(1000);
        let fits = large.peak * 100 / LIVE_PERCENT + 100;
        assert_eq!([fits, fits / 2, fits / 4 - 50].map(|free| halvings(&large, free)), [0, 1, 3]);
        assert!(large.scaled(3).peak <= large.peak / 8);
    }

    #[test]
    fn the_trace_that_is_built_in_is_a_whole_one() {
        let recorded = recorded(&[]).unwrap();
        assert_eq!((recorded.len(), recorded[0].name.as_str()), (1, "train_resnet50"));
        assert_eq!(scenarios(recorded, true).len(), 5);
        let (scenario, marks) = training().unwrap();
        assert!(marks.is_sorted() && marks[0] > 100 && marks[3] == scenario.steps.len(), "{marks:?}");
        let blocks: u64 =
            scenario.at_peak(marks[0]..marks[1]).iter().map(|(bytes, count)| bytes * u64::from(*count)).sum();
        assert!(
            (500 << 20..1000 << 20).contains(&blocks),
            "{blocks} bytes more than the weights at the peak of a step"
        );
    }
}
