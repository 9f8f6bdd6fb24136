//! Advice: settings of a device that a replay found better than the usual ones.
//!
//! Promises upward: nothing is guessed, each number is of a replay. The choice sees the first half of the trace alone, so that the
//! second half can judge it. It is made on the end of that half, on both halves of this end, and on its middle: settings are advised
//! if they are worse on none of them, nor with all blocks 10, 20 and 30 % larger, so that a gain does not hang on how today's sizes are
//! rounded; and if they save
//! - driver calls, alike on all four, where there are [`LEAST_CALLS`] to save from; or
//! - reserved bytes, on all four and with larger blocks.
//!
//! Asks from below: the pool, with a device's settings.

use super::pool::ReplayedPool;
use super::trace::{Trace, TraceEvent};
use crate::failure::Failure;
use crate::operations::{Operation, OperationKind};
use crate::output::{format_bytes, format_thousands};
use crate::pools::SourceKind;
use serde::Serialize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{ScopedJoinHandle, available_parallelism};
use terrace::device::DeviceOptions;
use terrace_core::Fit;

/// The least gain that is worth a setting, as a share.
const LEAST_GAIN: f64 = 0.05;
/// How much the gains on parts of the first half may differ for a promise.
const ALIKE: f64 = 0.05;
/// The fewest driver calls of which a share says something.
const LEAST_CALLS: u64 = 16;
/// A byte counts as much as so many calls, as shares.
const BYTES_OVER_CALLS: f64 = 4.0;
/// Gains that differ by less are one: the smaller change is advised.
const NEAR: f64 = 0.02;
/// The most events of a part: the end of a long run says as much as the whole.
const EVENTS: usize = 1 << 17;
/// Percent by which blocks are larger.
const LARGER: [u64; 3] = [110, 120, 130];

/// A setting to change, and what that saves.
#[derive(Clone, Debug, Serialize)]
pub struct SettingAdvice {
    /// What to do, in a few words.
    pub title: String,
    /// What a replay says of it.
    pub why: String,
    /// Lines to copy.
    pub setting: String,
    /// What gets less: `reserved_bytes` or `source_calls`.
    pub measure: &'static str,
    /// The measure at the end of the trace's first half, with the usual settings and with these.
    pub before: u64,
    pub after: u64,
}

/// What a replay took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The most bytes reserved.
    pub reserved: u64,
    /// Calls that took memory from the source, moved it or gave it back.
    pub calls: u64,
    /// The most bytes in use.
    pub in_use: u64,
}

/// Settings that a device may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    options: DeviceOptions,
    /// A block that is allocated and freed before all others; 0 for none.
    warm_up: u64,
}

/// A part of a trace: what is live at its beginning is allocated first.
#[derive(Clone)]
pub struct Part {
    events: Vec<TraceEvent>,
    /// Number of slots, which are dense.
    slots: usize,
}

impl Part {
    /// Cuts the events from `begin` to `end` out of a trace.
    pub fn new(trace: &Trace, begin: usize, end: usize) -> Self {
        let mut live = vec![None::<TraceEvent>; trace.slots];
        for event in &trace.events[..begin] {
            let Operation { slot, kind, bytes, .. } = event.operation;
            let slot = &mut live[slot as usize];
            *slot = match kind {
                OperationKind::Free => None,
                OperationKind::Reallocate => slot.map(|mut old| {
                    old.operation.bytes = bytes;
                    old
                }),
                OperationKind::Allocate => Some(*event),
            };
        }
        let mut events: Vec<TraceEvent> = live.into_iter().flatten().collect();
        events.extend_from_slice(&trace.events[begin..end]);
        let (mut numbers, mut slots) = (vec![u32::MAX; trace.slots], 0);
        for event in &mut events {
            let number = &mut numbers[event.operation.slot as usize];
            if *number == u32::MAX {
                (*number, slots) = (slots, slots + 1);
            }
            event.operation.slot = *number;
        }
        Self { events, slots: slots as usize }
    }

    /// The same with blocks of so many percent of their size.
    fn scaled(&self, percent: u64) -> Self {
        let mut scaled = self.clone();
        for TraceEvent { operation, .. } in &mut scaled.events {
            operation.bytes = operation.bytes.saturating_mul(percent) / 100;
        }
        scaled
    }

    /// Replays it with settings; `None` if an allocation failed.
    pub fn take(&self, source: SourceKind, candidate: &Candidate) -> Result<Option<Taken>, Failure> {
        let mut pool = ReplayedPool::device(source, candidate.options, self.slots)?;
        pool.warm_up(candidate.warm_up)?;
        self.events.iter().try_for_each(|event| pool.replay(event))?;
        let stats = pool.stats();
        let calls = stats.misses + stats.returns;
        let taken = Taken { reserved: stats.peak_reserved, calls, in_use: stats.peak_in_use };
        Ok((pool.failed() == 0).then_some(taken))
    }
}

/// The usual settings.
pub fn usual() -> Candidate {
    Candidate { options: DeviceOptions::default(), warm_up: 0 }
}

/// Parts of the first half of a trace, on which settings are tried.
struct Trial {
    source: SourceKind,
    /// Both halves and the middle of the first half's end, and then this end itself: what is worse is seen on the shortest.
    parts: [Part; 4],
    /// What the usual settings took on them.
    usual: Vec<Taken>,
    /// The end with larger blocks, and what the usual settings took there.
    larger: Vec<(Part, Taken)>,
}

impl Trial {
    /// Cuts the parts; `None` if the usual settings fail on one.
    fn new(trace: &Trace, source: SourceKind) -> Result<Option<Self>, Failure> {
        let half = trace.events.len() / 2;
        let length = half.min(EVENTS);
        let cut = |begin: usize, end: usize| Part::new(trace, half - length + begin, half - length + end);
        let parts = [(length / 2, length), (0, length / 2), (length / 4, length / 4 * 3), (0, length)];
        let parts = parts.map(|(begin, end)| cut(begin, end));
        let usually = |part: &Part| part.take(source, &usual());
        let Some(usual) = parts.iter().map(usually).collect::<Result<Option<Vec<_>>, _>>()? else { return Ok(None) };
        let mut larger = Vec::new();
        for part in LARGER.map(|percent| parts[3].scaled(percent)) {
            let Some(taken) = usually(&part)? else { return Ok(None) };
            larger.push((part, taken));
        }
        Ok(Some(Self { source, parts, usual, larger }))
    }

    /// The gain of a candidate, and what it took on the end of the first half; `None` if it is not better, or worse on any part.
    fn judge(&self, candidate: &Candidate) -> Result<Option<(f64, Taken)>, Failure> {
        let mut taken = Vec::new();
        for (part, usual) in self.parts.iter().zip(&self.usual) {
            match part.take(self.source, candidate)? {
                Some(new) if new.reserved <= usual.reserved && new.calls <= usual.calls => taken.push(new),
                _ => return Ok(None),
            }
        }
        let saved = |of: fn(&Taken) -> u64| {
            let shares = self.usual.iter().zip(&taken).map(|(usual, new)| share_saved(of(usual), of(new)));
            shares.fold((f64::MAX, f64::MIN), |(least, most), share| (share.min(least), share.max(most)))
        };
        let ((calls, most), (mut bytes, _)) = (saved(|taken| taken.calls), saved(|taken| taken.reserved));
        let few = self.usual.iter().map(|usual| usual.calls).min().unwrap_or(0);
        let alike = most - calls <= ALIKE && few >= LEAST_CALLS;
        // Where memory was taken once, nothing is known of how it grows.
        if !(alike && calls >= LEAST_GAIN || few > 1 && bytes >= LEAST_GAIN) {
            return Ok(None);
        }
        for (part, usual) in &self.larger {
            match part.take(self.source, candidate)? {
                Some(new) if new.reserved <= usual.reserved => {
                    bytes = bytes.min(share_saved(usual.reserved, new.reserved));
                }
                _ => return Ok(None),
            }
        }
        let counted = |share: f64| if share >= LEAST_GAIN { share } else { 0.0 };
        let gain = counted(bytes) * BYTES_OVER_CALLS + if alike { counted(calls) } else { 0.0 };
        Ok((gain > 0.0).then_some((gain, taken[3])))
    }

    /// The candidates that are better, in their order, with their gains and what they took; a thread for each core judges.
    fn better(&self, candidates: &[Candidate]) -> Result<Vec<(f64, Candidate, Taken)>, Failure> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut found = Vec::new();
            while let Some(candidate) = candidates.get(next.fetch_add(1, Relaxed)) {
                found.extend(self.judge(candidate)?.map(|(gain, taken)| (gain, *candidate, taken)));
            }
            Ok(found)
        };
        let cores = available_parallelism().map_or(1, usize::from);
        let found = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
            let join = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            workers.into_iter().map(join).collect::<Result<Vec<_>, Failure>>()
        })?;
        let mut found = found.concat();
        found.sort_by_key(|(_, candidate, _)| candidates.iter().position(|other| other == candidate));
        Ok(found)
    }
}

/// What was saved, as a share of what there was.
fn share_saved(before: u64, after: u64) -> f64 {
    1.0 - after as f64 / before.max(1) as f64
}

/// The best settings by the first half of a trace; `None` where the usual ones are.
pub fn best(trace: &Trace, source: SourceKind) -> Result<Option<(Candidate, SettingAdvice)>, Failure> {
    let Some(trial) = Trial::new(trace, source)? else { return Ok(None) };
    // What is warmed up is needed in each part.
    let peak = trial.usual.iter().map(|taken| taken.in_use).min().unwrap_or(0);
    let found = trial.better(&candidates(source, peak))?;
    let best = found.iter().map(|(gain, ..)| *gain).fold(0.0, f64::max);
    // The first is the smallest change.
    let found = found.into_iter().find(|(gain, ..)| *gain >= best - NEAR);
    Ok(found.map(|(_, candidate, after)| (candidate, advice(&candidate, &usual(), trial.usual[3], after))))
}

/// The settings that are tried, the smallest change first.
fn candidates(source: SourceKind, peak: u64) -> Vec<Candidate> {
    let own = usual();
    let mut found = Vec::new();
    for strategy in [Fit::Good, Fit::Best] {
        let options = DeviceOptions { strategy, ..own.options };
        let thresholds = [64 << 10, 256 << 10, options.small_threshold, 4 << 20];
        let thresholds = thresholds.map(|small_threshold| DeviceOptions { small_threshold, ..options });
        found.extend(thresholds.map(|options| Candidate { options, ..own }));
        match source {
            SourceKind::Growing => {
                let warm_ups = (10..=120).step_by(5).map(|percent| peak / 100 * percent);
                found.extend(warm_ups.map(|warm_up| Candidate { warm_up, options }));
            }
            SourceKind::Segments => {
                let segments = (0..=9).map(|power| DeviceOptions { segment: 1 << 20 << power, ..options });
                found.extend(segments.map(|options| Candidate { options, ..own }));
            }
        }
    }
    found.retain(|candidate| *candidate != own);
    found.sort_by_key(|candidate| candidate.warm_up);
    found
}

/// A candidate in words.
fn advice(candidate: &Candidate, own: &Candidate, before: Taken, after: Taken) -> SettingAdvice {
    let (mut titles, mut lines) = (Vec::new(), Vec::new());
    let (options, usual) = (&candidate.options, &own.options);
    if options.strategy != usual.strategy {
        titles.push("search the best fit".to_owned());
        lines.push("strategy = \"best\"".to_owned());
    }
    if options.small_threshold != usual.small_threshold {
        let bytes = whole(options.small_threshold);
        titles.push(format!("keep blocks up to {bytes} apart"));
        lines.push(format!("small_threshold = \"{bytes}\""));
    }
    if options.segment != usual.segment {
        let bytes = whole(options.segment);
        titles.push(format!("take segments of {bytes}"));
        lines.push(format!("segment = \"{bytes}\""));
    }
    if candidate.warm_up > 0 {
        titles.push(format!("warm up {}", format_bytes(candidate.warm_up)));
        lines.push(format!("device.warm_up(&stream, &[({}, 1)])?;", candidate.warm_up));
    }
    let share = |before, after| 100.0 * share_saved(before, after);
    let (bytes, calls) = (share(before.reserved, after.reserved), share(before.calls, after.calls));
    let by_bytes = bytes >= 100.0 * LEAST_GAIN;
    let why = format!(
        "At the end of the trace's first half a device reserves {} where it reserved {} ({bytes:.1} % less), and calls the driver {} times \
         for memory where it called {} times ({calls:.0} % less).",
        format_bytes(after.reserved),
        format_bytes(before.reserved),
        format_thousands(after.calls),
        format_thousands(before.calls),
    );
    let mut title = titles.join(", ");
    title[..1].make_ascii_uppercase();
    let (measure, before, after) = match by_bytes {
        true => ("reserved_bytes", before.reserved, after.reserved),
        false => ("source_calls", before.calls, after.calls),
    };
    SettingAdvice { title, why, setting: lines.join("\n"), measure, before, after }
}

/// A size that is a whole number of its unit.
fn whole(bytes: u64) -> String {
    let (unit, name) = crate::output::unit(bytes);
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests;
