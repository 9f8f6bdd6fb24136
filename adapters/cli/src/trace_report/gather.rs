//! Gathers what a page shows of a trace, in two replays: one for memory over time, one for the address map.
//!
//! Promises upward: O(events) time; what is gathered is bounded whatever the trace.
//! Asks from below: a trace in memory, the pool.

use super::data::{CopyData, LeakData, MarkData, SizesData, TagData, TagSeries, TimelineData, TraceData};
use super::map;
use super::pool::ReplayedPool;
use super::trace::Trace;
use crate::failure::Failure;
use std::cmp::Reverse;
use std::collections::HashMap;
use terrace_replay::pools::SourceKind;
use terrace_replay::{Operation, OperationKind, index_of_max};

/// Most points of the timeline: about as many as a wide screen has pixels.
const POINTS: usize = 1200;
/// Tags that have a series of their own.
const SERIES: usize = 8;
/// Most rows of tables.
const ROWS: usize = 200;
/// Most marks.
const MARKS: usize = 500;
/// Parts of the time for copies.
const PARTS: usize = 64;

/// A live block as the trace has it.
#[derive(Clone, Copy, Default)]
struct TracedBlock {
    bytes: u64,
    born_us: u64,
    tag: u32,
    site: u32,
}

/// Gathers all but the advice.
pub fn gather(trace: &Trace, source: SourceKind) -> Result<TraceData, Failure> {
    let samples = samples(&trace.live);
    let tags = tags(trace);
    let shown: Vec<u32> = tags.iter().take(SERIES).map(|(number, _)| *number).collect();
    let mut sizes = Sizes::default();
    let mut pool = ReplayedPool::terrace(source, trace.slots)?;
    let mut blocks = vec![None::<TracedBlock>; trace.slots];
    let (mut by_tag, mut timeline) = (vec![0u64; shown.len() + 1], TimelineData::default());
    let mut series = vec![Vec::new(); shown.len() + 1];
    let mut next = samples.iter().peekable();
    for (at, event) in trace.events.iter().enumerate() {
        pool.replay(event)?;
        let Operation { slot, kind, bytes, .. } = event.operation;
        let block = &mut blocks[slot as usize];
        let index = |tag: u32| shown.iter().position(|other| *other == tag).unwrap_or(shown.len());
        if let Some(old) = *block {
            by_tag[index(old.tag)] -= old.bytes;
        }
        match (kind, *block) {
            (OperationKind::Allocate, _) => {
                *block = Some(TracedBlock { bytes, born_us: event.time_us, tag: event.tag, site: event.site });
            }
            (OperationKind::Reallocate, Some(old)) => *block = Some(TracedBlock { bytes, ..old }),
            (OperationKind::Free, Some(old)) => {
                sizes.add(old.bytes, Some(event.time_us - old.born_us));
                *block = None;
            }
            (_, None) => {}
        }
        if let Some(new) = *block {
            by_tag[index(new.tag)] += new.bytes;
        }
        if next.next_if(|sample| **sample == at).is_some() {
            let stats = pool.stats();
            timeline.time_us.push(event.time_us);
            timeline.event.push(at as u64);
            timeline.live_bytes.push(trace.live[at]);
            timeline.reserved_bytes.push(stats.reserved);
            timeline.largest_free_bytes.push(stats.largest_free);
            series.iter_mut().zip(&by_tag).for_each(|(series, live)| series.push(*live));
        }
    }
    let names = shown.iter().map(|tag| trace.text(*tag).to_owned()).chain(["(all others)".to_owned()]);
    timeline.by_tag = names.zip(series).map(|(tag, live_bytes)| TagSeries { tag, live_bytes }).collect();
    timeline.by_tag.retain(|series| series.live_bytes.iter().any(|live| *live > 0));
    let live: Vec<TracedBlock> = blocks.into_iter().flatten().collect();
    live.iter().for_each(|block| sizes.add(block.bytes, None));
    let stats = pool.stats();
    Ok(TraceData {
        name: trace.name.clone(),
        events: trace.events.len() as u64,
        duration_us: trace.duration_us,
        peak_live_bytes: trace.live.iter().copied().max().unwrap_or(0),
        live_at_end_bytes: trace.live.last().copied().unwrap_or(0),
        peak_in_use_bytes: pool.peak_live(),
        peak_reserved_bytes: stats.peak_reserved,
        failed: pool.failed(),
        timeline,
        marks: marks(trace),
        map: map::map(trace, source, &shown, stats.peak_reserved)?,
        tags: tags.into_iter().map(|(_, tag)| tag).take(ROWS).collect(),
        sizes: sizes.finish(),
        leaks: leaks(trace, &live),
        copies: copies(trace),
        advice: Vec::new(),
        no_advice: None,
    })
}

/// The event with the most live bytes of each of [`POINTS`] parts, and the last.
fn samples(live: &[u64]) -> Vec<usize> {
    let part = live.len().div_ceil(POINTS);
    let highest = |(n, part_of): (usize, &[u64])| Some(n * part + index_of_max(part_of.iter().copied())?);
    let mut samples: Vec<usize> = live.chunks(part).enumerate().filter_map(highest).collect();
    samples.push(live.len() - 1);
    samples.dedup();
    samples
}

/// Tags by number, the highest peak first.
fn tags(trace: &Trace) -> Vec<(u32, TagData)> {
    let mut tags: HashMap<u32, TagData> = HashMap::new();
    let mut blocks = vec![(0u32, 0u64); trace.slots];
    for event in &trace.events {
        let Operation { slot, kind, bytes, .. } = event.operation;
        let (tag, old) = blocks[slot as usize];
        let tag = if kind == OperationKind::Allocate { event.tag } else { tag };
        let data = tags.entry(tag).or_insert_with(|| TagData {
            tag: trace.text(tag).to_owned(),
            allocations: 0,
            allocated_bytes: 0,
            peak_bytes: 0,
            live_bytes: 0,
        });
        let old = if kind == OperationKind::Allocate { 0 } else { old };
        data.allocations += u64::from(kind == OperationKind::Allocate);
        data.allocated_bytes += bytes.saturating_sub(old);
        data.live_bytes = data.live_bytes - old + bytes;
        data.peak_bytes = data.peak_bytes.max(data.live_bytes);
        blocks[slot as usize] = (tag, bytes);
    }
    let mut tags: Vec<_> = tags.into_iter().collect();
    tags.sort_by(|a, b| (Reverse(a.1.peak_bytes), &a.1.tag).cmp(&(Reverse(b.1.peak_bytes), &b.1.tag)));
    tags
}

/// What is live at the end by tag and call site, the most bytes first.
fn leaks(trace: &Trace, live: &[TracedBlock]) -> Vec<LeakData> {
    let end = trace.duration_us;
    let mut groups: HashMap<(u32, u32), LeakData> = HashMap::new();
    for block in live {
        let group = groups.entry((block.tag, block.site)).or_insert_with(|| LeakData {
            tag: trace.text(block.tag).to_owned(),
            site: trace.text(block.site).to_owned(),
            blocks: 0,
            bytes: 0,
            oldest_us: 0,
        });
        group.blocks += 1;
        group.bytes += block.bytes;
        group.oldest_us = group.oldest_us.max(end - block.born_us);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| (Reverse(a.bytes), &a.tag, &a.site).cmp(&(Reverse(b.bytes), &b.tag, &b.site)));
    groups.truncate(ROWS);
    groups
}

/// Marks, evenly thinned out to [`MARKS`].
fn marks(trace: &Trace) -> Vec<MarkData> {
    let step = trace.marks.len().div_ceil(MARKS).max(1);
    let marks = trace.marks.iter().step_by(step);
    marks.map(|(time_us, text)| MarkData { time_us: *time_us, text: trace.text(*text).to_owned() }).collect()
}

/// Copies by their tiers.
fn copies(trace: &Trace) -> Vec<CopyData> {
    let mut found: Vec<CopyData> = Vec::new();
    let end = trace.duration_us;
    for copy in &trace.copies {
        let at = found.iter().position(|other| (other.from, other.to) == (copy.from, copy.to)).unwrap_or_else(|| {
            found.push(CopyData { from: copy.from, to: copy.to, copies: 0, bytes: 0, over_time: vec![0; PARTS] });
            found.len() - 1
        });
        let part = (u128::from(copy.time_us) * PARTS as u128 / (u128::from(end) + 1)) as usize;
        found[at].copies += 1;
        found[at].bytes = found[at].bytes.saturating_add(copy.bytes);
        found[at].over_time[part] = found[at].over_time[part].saturating_add(copy.bytes);
    }
    found.sort_by_key(|copy| (copy.from, copy.to));
    found
}

/// Counts blocks by size and life.
#[derive(Default)]
struct Sizes {
    /// Blocks and bytes by log2 of the size, and log2 of the life plus one; `LIVES` for live ones.
    cells: HashMap<(u32, u32), (u64, u64)>,
}

/// The column of blocks that are live at the end, before columns without blocks are left out.
const LIVES: u32 = 64;

impl Sizes {
    fn add(&mut self, bytes: u64, life_us: Option<u64>) {
        let row = bytes.max(1).ilog2();
        let column = life_us.map_or(LIVES, |life| life.saturating_add(1).ilog2().min(LIVES - 1));
        let cell = self.cells.entry((row, column)).or_default();
        *cell = (cell.0 + 1, cell.1.saturating_add(bytes));
    }

    fn finish(self) -> SizesData {
        let rows = self.cells.keys().map(|(row, _)| *row);
        let (least, most) = (rows.clone().min().unwrap_or(0), rows.max().unwrap_or(0));
        let columns = self.cells.keys().filter(|(_, column)| *column != LIVES).map(|(_, column)| column + 1).max();
        let columns = columns.unwrap_or(0) as usize;
        let empty = vec![vec![0; columns + 1]; (most - least + 1) as usize];
        let mut sizes = SizesData { least_size: least, blocks: empty.clone(), bytes: empty };
        for ((row, column), (blocks, bytes)) in self.cells {
            let (row, column) = ((row - least) as usize, (column as usize).min(columns));
            sizes.blocks[row][column] = blocks;
            sizes.bytes[row][column] = bytes;
        }
        sizes
    }
}
