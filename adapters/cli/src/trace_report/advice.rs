//! Advice: settings of a device that a replay found better than the usual ones.
//!
//! Promises upward: a setting is advised only if it was better on the first half of the trace, on both of its quarters and on the
//! middle of them, by alike much, and on none of them worse: so that what it promises is likely to hold for the second half, which the
//! choice never saw. Nothing is guessed: each number is of a replay.
//! Asks from below: the pool, with a device's settings.

use super::pool::ReplayedPool;
use super::trace::{Trace, TraceEvent};
use crate::failure::Failure;
use crate::operations::{Operation, OperationKind};
use crate::output::{format_bytes, format_thousands};
use crate::pools::SourceKind;
use serde::Serialize;
use terrace::device::DeviceOptions;
use terrace_core::Fit;

/// The least gain that is worth a setting, as a share.
const LEAST_GAIN: f64 = 0.05;
/// How much the gains on parts of the first half may differ for a promise.
const ALIKE: f64 = 0.10;

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
    /// The measure on the first half of the trace, with the usual settings and with these.
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
pub fn part(trace: &Trace, begin: usize, end: usize) -> Vec<TraceEvent> {
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
    let mut part: Vec<TraceEvent> = live.into_iter().flatten().collect();
    part.extend_from_slice(&trace.events[begin..end]);
    part
}

/// Replays events with settings; `None` if an allocation failed.
pub fn take(
    events: &[TraceEvent],
    slots: usize,
    source: SourceKind,
    candidate: &Candidate,
) -> Result<Option<Taken>, Failure> {
    let mut pool = ReplayedPool::device(source, candidate.options, slots)?;
    pool.warm_up(candidate.warm_up)?;
    events.iter().try_for_each(|event| pool.replay(event))?;
    let stats = pool.stats();
    let taken = Taken { reserved: stats.peak_reserved, calls: stats.misses + stats.returns, in_use: stats.peak_in_use };
    Ok((pool.failed() == 0).then_some(taken))
}

/// The usual settings.
pub fn usual() -> Candidate {
    Candidate { options: DeviceOptions::default(), warm_up: 0 }
}

/// The best settings by the first half of a trace; `None` where the usual ones are.
pub fn best(trace: &Trace, source: SourceKind) -> Result<Option<(Candidate, SettingAdvice)>, Failure> {
    let half = trace.events.len() / 2;
    let cuts = [(0, half), (0, half / 2), (half / 2, half), (half / 4, half / 4 * 3)];
    let parts = cuts.map(|(begin, end)| part(trace, begin, end));
    let own = usual();
    let mut before = Vec::new();
    for events in &parts {
        let Some(taken) = take(events, trace.slots, source, &own)? else { return Ok(None) };
        before.push(taken);
    }
    let mut found: Option<(f64, Candidate, Vec<Taken>)> = None;
    // The least peak of the parts: what is warmed up is needed in each.
    let peak = before.iter().map(|taken| taken.in_use).min().unwrap_or(0);
    for candidate in candidates(source, peak) {
        if let Some((gain, after)) = judge(&candidate, &parts, &before, trace.slots, source)?
            && found.as_ref().is_none_or(|(best, ..)| gain > *best)
        {
            found = Some((gain, candidate, after));
        }
    }
    Ok(found.map(|(_, candidate, after)| (candidate, advice(&candidate, &own, before[0], after[0]))))
}

/// The gain of a candidate, and what it took on each part; `None` if it is not better, or worse anywhere.
fn judge(
    candidate: &Candidate,
    parts: &[Vec<TraceEvent>],
    before: &[Taken],
    slots: usize,
    source: SourceKind,
) -> Result<Option<(f64, Vec<Taken>)>, Failure> {
    let mut after = Vec::new();
    for (events, before) in parts.iter().zip(before) {
        match take(events, slots, source, candidate)? {
            Some(taken) if taken.reserved <= before.reserved && taken.calls <= before.calls => after.push(taken),
            _ => return Ok(None),
        }
    }
    let saved = |of: fn(&Taken) -> u64| {
        let saved = before.iter().zip(&after).map(|(before, after)| 1.0 - of(after) as f64 / of(before).max(1) as f64);
        let (least, most) = saved.fold((f64::MAX, f64::MIN), |(least, most), gain| (gain.min(least), gain.max(most)));
        if least >= LEAST_GAIN && most - least <= ALIKE { least } else { 0.0 }
    };
    // A byte counts more than a call.
    let gain = saved(|taken| taken.reserved) + saved(|taken| taken.calls) / 4.0;
    Ok((gain > 0.0).then_some((gain, after)))
}

/// The settings that are tried.
fn candidates(source: SourceKind, peak: u64) -> Vec<Candidate> {
    let own = usual();
    let with = |options: DeviceOptions| Candidate { options, ..own };
    let mut found = Vec::new();
    for strategy in [Fit::Good, Fit::Best] {
        for small_threshold in [64 << 10, 256 << 10, own.options.small_threshold, 4 << 20] {
            found.push(with(DeviceOptions { strategy, small_threshold, ..own.options }));
        }
    }
    let best = DeviceOptions { strategy: Fit::Best, ..own.options };
    match source {
        SourceKind::Growing => {
            let warm = |percent: u64| Candidate { warm_up: peak / 100 * percent, ..own };
            found.extend([50, 75, 90, 95, 98, 100].map(warm));
            found.extend([95, 100].map(|percent| Candidate { options: best, ..warm(percent) }));
        }
        SourceKind::Segments => {
            let sizes = [1, 2, 8, 16, 32, 64, 128, 256].map(|mib: u64| mib << 20);
            found.extend(sizes.map(|segment| with(DeviceOptions { segment, ..own.options })));
            found.extend([32, 64].map(|mib: u64| with(DeviceOptions { segment: mib << 20, ..best })));
        }
    }
    found.retain(|candidate| *candidate != own);
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
    let share = |before: u64, after: u64| 100.0 * (1.0 - after as f64 / before.max(1) as f64);
    let (bytes, calls) = (share(before.reserved, after.reserved), share(before.calls, after.calls));
    let by_bytes = bytes >= 100.0 * LEAST_GAIN;
    let why = format!(
        "On the first half of the trace a device reserves {} where it reserved {} ({bytes:.1} % less), and calls the driver {} times \
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
