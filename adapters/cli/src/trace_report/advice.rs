//! Advice: settings of a device that a replay found better than the usual ones.
//!
//! Promises upward: nothing is guessed, each number is of a replay on a device. The choice sees the first half of the trace alone, so that
//! the second half can judge it. It is made on the end of that half, on both halves of this end, on its middle, and on the whole end with
//! all blocks 10, 20 and 30 % larger, so that a gain does not hang on how today's sizes are rounded. Settings are advised if they are
//! worse on none of these parts, and save alike much of
//! - reserved bytes on all of them, and more than the pool takes at a time; or
//! - driver calls alone, with the blocks as they are, where there are [`LEAST_CALLS`] to save from.
//!
//! The least that was saved anywhere is what the advice promises.
//!
//! Asks from below: a simulated device.

use super::pool::ReplayedPool;
use super::trace::{Trace, TraceEvent};
use crate::failure::Failure;
use crate::output::{format_bytes, format_thousands};
use serde::Serialize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{ScopedJoinHandle, available_parallelism};
use terrace::device::DeviceOptions;
use terrace_core::Fit;
use terrace_core::arena::ArenaSettings;
use terrace_core::settings::{SEGMENT, SMALL_THRESHOLD, STRATEGY, Value};
use terrace_replay::pools::SourceKind;
use terrace_replay::{Operation, OperationKind};

/// The least gain that is worth a setting, as a share.
const LEAST_GAIN: f64 = 0.05;
/// How much the shares of calls saved on parts of the first half may differ.
const ALIKE_CALLS: f64 = 0.05;
/// How much the shares of bytes may differ, or by what the pool takes at a time if that is more.
const ALIKE_BYTES: f64 = 0.10;
/// The fewest driver calls of which a share says something.
const LEAST_CALLS: u64 = 16;
/// A byte counts as much as so many calls, as shares.
const BYTES_OVER_CALLS: f64 = 4.0;
/// Gains that differ by less are one: the smaller change is advised.
const NEAR: f64 = 0.02;
/// The most events of a part: the end of a long run says as much as the whole.
const EVENTS: usize = 1 << 17;
/// Percent of their size that blocks have on parts.
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
    /// The share of the measure that is saved at least.
    pub promised: f64,
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
    /// The halves and the middle of the first half's end, and this end; then the end with larger blocks, by percent of their size.
    parts: Vec<(Part, u64)>,
    /// What the usual settings took on them.
    usual: Vec<Taken>,
}

/// Where the end of the first half is among the parts.
const END: usize = 3;

impl Trial {
    /// Cuts the parts; `None` if the usual settings fail on one.
    fn new(trace: &Trace, source: SourceKind) -> Result<Option<Self>, Failure> {
        let half = trace.events.len() / 2;
        let length = half.min(EVENTS);
        // What is worse is seen on the shortest.
        let cuts = [(length / 2, length), (0, length / 2), (length / 4, length / 4 * 3), (0, length)];
        let cut = |(begin, end)| (Part::new(trace, half - length + begin, half - length + end), 100);
        let mut parts = Vec::from(cuts.map(cut));
        parts.extend(LARGER.map(|percent| (parts[END].0.scaled(percent), percent)));
        let taken = parts.iter().map(|(part, _)| part.take(source, &usual()));
        let taken = taken.collect::<Result<Option<Vec<_>>, _>>()?;
        Ok(taken.map(|usual| Self { source, parts, usual }))
    }

    /// The gain of a candidate; `None` if there is none, or if it is worse on any part.
    fn judge(&self, candidate: &Candidate) -> Result<Option<Gain>, Failure> {
        let (mut bytes, mut calls, mut end) = (Vec::new(), Vec::new(), None);
        for (at, ((part, percent), usual)) in self.parts.iter().zip(&self.usual).enumerate() {
            let candidate = Candidate { warm_up: candidate.warm_up * percent / 100, ..*candidate };
            // What no run did need not come out to the page.
            let allowed = usual.reserved + if at <= END { 0 } else { usual.reserved / 100 };
            let taken = part.take(self.source, &candidate)?;
            let Some(taken) = taken.filter(|new| new.reserved <= allowed && new.calls <= usual.calls) else {
                return Ok(None);
            };
            bytes.push(share_saved(usual.reserved, taken.reserved));
            if at <= END {
                calls.push(share_saved(usual.calls, taken.calls));
                end = Some(taken);
            }
            // Most save nothing, which the first part shows.
            if [&bytes, &calls].iter().all(|shares| shares.iter().any(|share| *share < LEAST_GAIN)) {
                return Ok(None);
            }
        }
        let Some(taken) = end else { return Ok(None) };
        let fewest = self.usual.iter().map(|usual| usual.calls).min().unwrap_or(0).max(1);
        // What the pool takes at a time, as a share; a gain of one step is how sizes are rounded. Pages come in multiples of a unit.
        let unit = if self.source == SourceKind::Growing { ArenaSettings::device_pages().ample_multiple } else { 0 };
        let least = self.usual.iter().map(|usual| usual.reserved).min().unwrap_or(0).max(1);
        let step = (1.0 / fewest as f64).max(unit as f64 / least as f64);
        let follows = bytes.iter().any(|share| *share >= LEAST_GAIN);
        let gain = Gain {
            bytes: if bytes.iter().all(|share| *share > 1.5 * step) {
                least_share(&bytes, step.max(ALIKE_BYTES))
            } else {
                0.0
            },
            // Where memory shrinks, calls follow: then its share is what is promised.
            calls: if fewest >= LEAST_CALLS && !follows { least_share(&calls, ALIKE_CALLS) } else { 0.0 },
            taken,
        };
        Ok((gain.weight() > 0.0).then_some(gain))
    }

    /// The candidates that are better, in their order, with their gains; a thread for each core judges.
    fn better(&self, candidates: &[Candidate]) -> Result<Vec<(Candidate, Gain)>, Failure> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut found = Vec::new();
            while let Some(candidate) = candidates.get(next.fetch_add(1, Relaxed)) {
                found.extend(self.judge(candidate)?.map(|gain| (*candidate, gain)));
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
        found.sort_by_key(|(candidate, _)| candidates.iter().position(|other| other == candidate));
        Ok(found)
    }
}

/// What a candidate saves.
#[derive(Clone, Copy)]
struct Gain {
    /// The least shares of reserved bytes and of driver calls saved; 0 where they do not count.
    bytes: f64,
    calls: f64,
    /// What it took on the end of the first half.
    taken: Taken,
}

impl Gain {
    fn weight(&self) -> f64 {
        self.bytes * BYTES_OVER_CALLS + self.calls
    }
}

/// The least of the shares saved; 0 if it is too little, or if they are not alike.
fn least_share(shares: &[f64], alike: f64) -> f64 {
    let least = shares.iter().copied().fold(f64::MAX, f64::min);
    let most = shares.iter().copied().fold(f64::MIN, f64::max);
    if least >= LEAST_GAIN && most - least <= alike { least } else { 0.0 }
}

/// What was saved, as a share of what there was.
fn share_saved(before: u64, after: u64) -> f64 {
    1.0 - after as f64 / before.max(1) as f64
}

/// The best settings by the first half of a trace; `None` where the usual ones are.
pub fn best(trace: &Trace, source: SourceKind) -> Result<Option<(Candidate, SettingAdvice)>, Failure> {
    let Some(trial) = Trial::new(trace, source)? else { return Ok(None) };
    // What is warmed up is needed in each part.
    let peak = trial.usual[..=END].iter().map(|taken| taken.in_use).min().unwrap_or(0);
    let align = trace.events.iter().map(|event| event.operation.align_log2).max().unwrap_or(0);
    let found = trial.better(&candidates(source, peak, 1 << align))?;
    let best = found.iter().map(|(_, gain)| gain.weight()).fold(0.0, f64::max);
    // The first is the smallest change.
    let found = found.into_iter().find(|(_, gain)| gain.weight() >= best - NEAR);
    Ok(found.map(|(candidate, gain)| (candidate, advice(&candidate, &usual(), trial.usual[END], &gain))))
}

/// The settings that are tried, the smallest change first; `align` is the most that the trace asks for.
fn candidates(source: SourceKind, peak: u64, align: u64) -> Vec<Candidate> {
    let own = usual();
    let with = |options| Candidate { options, ..own };
    let mut found = Vec::new();
    found.extend([Fit::Good, Fit::Best].map(|strategy| with(DeviceOptions { strategy, ..own.options })));
    let thresholds = [64 << 10, 256 << 10, 4 << 20];
    found.extend(thresholds.map(|small_threshold| with(DeviceOptions { small_threshold, ..own.options })));
    let caps = [1, 8, 16];
    found.extend(caps.map(|pooled_per_bucket| with(DeviceOptions { pooled_per_bucket, ..own.options })));
    let granules = [256, 128, 64].into_iter().filter(|granule| *granule >= align);
    found.extend(granules.map(|granule| with(DeviceOptions { granule, ..own.options })));
    match source {
        SourceKind::Growing => {
            let warm_ups = (10..=120).step_by(5).map(|percent| peak / 100 * percent);
            found.extend(warm_ups.map(|warm_up| Candidate { warm_up, ..own }));
        }
        SourceKind::Segments => {
            found.extend((0..=9).map(|power| with(DeviceOptions { segment: 1 << 20 << power, ..own.options })));
        }
    }
    found.retain(|candidate| *candidate != own);
    found
}

/// A candidate in words.
fn advice(candidate: &Candidate, own: &Candidate, before: Taken, gain: &Gain) -> SettingAdvice {
    let (mut titles, mut lines) = (Vec::new(), Vec::new());
    let (options, usual) = (&candidate.options, &own.options);
    if options.strategy != usual.strategy {
        let strategy = STRATEGY.text(Value::Word(options.strategy as usize));
        titles.push(format!("search by the strategy {strategy}"));
        lines.push(format!("strategy = \"{strategy}\""));
    }
    if options.small_threshold != usual.small_threshold {
        let bytes = SMALL_THRESHOLD.text(Value::Number(options.small_threshold));
        titles.push(format!("keep blocks up to {bytes} apart"));
        lines.push(format!("small_threshold = \"{bytes}\""));
    }
    if options.pooled_per_bucket != usual.pooled_per_bucket {
        titles.push(format!("keep at most {} freed blocks of a size in a cache", options.pooled_per_bucket));
        lines.push(format!("pooled_per_bucket = {}", options.pooled_per_bucket));
    }
    if options.granule != usual.granule {
        titles.push(format!("round sizes to {} bytes, the alignment of blocks", options.granule));
        lines.push(format!("granule = {}", options.granule));
    }
    if options.segment != usual.segment {
        let bytes = SEGMENT.text(Value::Number(options.segment));
        titles.push(format!("take segments of {bytes}"));
        lines.push(format!("segment = \"{bytes}\""));
    }
    if candidate.warm_up > 0 {
        titles.push(format!("warm up {}", format_bytes(candidate.warm_up)));
        lines.push(format!("device.warm_up(&stream, &[({}, 1)])?;", candidate.warm_up));
    }
    let after = gain.taken;
    let by_bytes = gain.bytes > 0.0;
    let promised = if by_bytes { gain.bytes } else { gain.calls };
    let why = format!(
        "At the end of the trace's first half a device reserves {} where it reserved {}, and calls the driver {} times for memory where it \
         called {} times: at least {:.0} % fewer {} on each part of it.",
        format_bytes(after.reserved),
        format_bytes(before.reserved),
        format_thousands(after.calls),
        format_thousands(before.calls),
        100.0 * promised,
        if by_bytes { "bytes" } else { "calls" },
    );
    let mut title = titles.join(", ");
    title[..1].make_ascii_uppercase();
    let (measure, before, after) = match by_bytes {
        true => ("reserved_bytes", before.reserved, after.reserved),
        false => ("source_calls", before.calls, after.calls),
    };
    SettingAdvice { title, why, setting: lines.join("\n"), measure, before, after, promised }
}

#[cfg(test)]
mod tests;
