//! Which scenarios, and how large.
//!
//! Promises upward: traces are read to their end before anything is measured; a scenario fits the device it is scaled to.
//! Asks from below: recordings; [`Scenario`].

use crate::failure::Failure;
use crate::input;
use std::path::PathBuf;
use terrace::recording::{Reader, TraceError};
use terrace_models::scenarios::Scenario;

/// For those who have no trace at hand: one step of memory's life in a training, 40,041 events with a peak of 905 MiB.
const BUILT_IN: (&str, &[u8]) =
    ("train_resnet50", include_bytes!("../../../../tests/data/train_resnet50.csv.zst").as_slice());

/// The least size of a recorded block. PyTorch's host allocator gives scalars of up to 16 bytes that a device never sees.
const LEAST: u64 = 17;

/// Rounds of `same`, and steps of `large` and `mixed`.
const ROUNDS: u32 = 1000;
const LARGE: u32 = 1000;
const MIXED: u32 = 100_000;

/// Live bytes are at most this share of what the device has free, in percent: the best policies of those that are measured
/// reserve up to 35 % more than is live (see the table of `large`).
const SHARE: u64 = 70;

/// The recorded scenarios.
pub fn recorded(traces: &[PathBuf]) -> Result<Vec<Scenario>, Failure> {
    if traces.is_empty() {
        let (name, bytes) = BUILT_IN;
        return Ok(vec![scenario(name, Reader::new(name, bytes)?)?]);
    }
    let named = traces.iter().zip(input::names(traces));
    named.map(|(path, name)| scenario(&name, input::open(path)?)).collect()
}

fn scenario(name: &str, reader: Reader<'_>) -> Result<Scenario, Failure> {
    let entries: Vec<_> =
        reader.map(|entry| entry.map(|entry| (entry.event, entry.slot))).collect::<Result<_, TraceError>>()?;
    let scenario = Scenario::recorded(name, LEAST, entries);
    if scenario.steps.is_empty() {
        let text = format!("{name}: no event allocates more than 16 bytes; give a trace of a device's memory");
        return Err(Failure::Usage(text));
    }
    Ok(scenario)
}

/// Where the first three steps of [`BUILT_IN`] begin, and the fourth: events of the recording.
const MARKS: [usize; 4] = [320, 3551, 7265, 10_979];

/// The training that is built in, up to the end of its third step, and where its steps begin.
pub fn training() -> Result<(Scenario, [usize; 4]), Failure> {
    let (name, bytes) = BUILT_IN;
    let entries = Reader::new(name, bytes)?.take(MARKS[3]);
    let events: Vec<_> =
        entries.map(|entry| entry.map(|entry| (entry.event, entry.slot))).collect::<Result<_, TraceError>>()?;
    // A scenario of fewer events begins like one of more.
    let upto = |count: usize| Scenario::recorded(name, LEAST, events.iter().take(count).copied());
    Ok((upto(MARKS[3]), MARKS.map(|mark| upto(mark).steps.len())))
}

/// All five; each recorded one as it is, then in little memory.
pub fn scenarios(recorded: Vec<Scenario>, quick: bool) -> Vec<Scenario> {
    let part = |steps: u32| if quick { steps / 10 } else { steps };
    let tight: Vec<_> = recorded.iter().map(Scenario::tight).collect();
    let made = [Scenario::same(part(ROUNDS)), Scenario::large(part(LARGE))];
    made.into_iter().chain(recorded).chain(tight).chain([Scenario::mixed(part(MIXED))]).collect()
}

/// How often sizes are halved so that the scenario fits into `free` bytes.
pub fn halvings(scenario: &Scenario, free: u64) -> u32 {
    let room = (u128::from(free) * u128::from(SHARE) / 100) as u64;
    (0..64).find(|&shift| scenario.peak >> shift <= room).unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_halved_until_they_fit_and_no_further() {
        let large = Scenario::large(1000);
        let fits = large.peak * 100 / SHARE + 100;
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
