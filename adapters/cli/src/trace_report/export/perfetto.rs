//! Chrome's trace format, as JSON: counters of live and reserved bytes, and a slice for each of the largest blocks.
//!
//! Promises upward: Perfetto and chrome://tracing open it. At most [`SLICES`] blocks are slices, the largest.
//! Asks from below: the timeline of the page. The format:
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use crate::trace_report::data::TraceData;
use crate::trace_report::trace::Trace;
use serde_json::json;
use terrace_replay::{Operation, OperationKind};

/// Most blocks that are slices: what the viewers draw fluently.
const SLICES: usize = 20_000;

/// The file's text.
pub fn perfetto(trace: &Trace, data: &TraceData) -> Vec<u8> {
    let mut events = vec![json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": data.name}})];
    let line = &data.timeline;
    for (at, time) in line.time_us.iter().enumerate() {
        let counter =
            |name: &str, bytes: u64| json!({"ph": "C", "pid": 1, "ts": time, "name": name, "args": {"bytes": bytes}});
        events.push(counter("live", line.live_bytes[at]));
        events.push(counter("reserved", line.reserved_bytes[at]));
        events.push(counter("largest free", line.largest_free_bytes[at]));
        let tags = line.by_tag.iter().map(|series| (shown(&series.tag), json!(series.live_bytes[at])));
        let tags: serde_json::Map<String, serde_json::Value> = tags.collect();
        events.push(json!({"ph": "C", "pid": 1, "ts": time, "name": "live by tag", "args": tags}));
    }
    for mark in &data.marks {
        events.push(json!({"ph": "i", "pid": 1, "tid": 1, "s": "p", "ts": mark.time_us, "name": mark.text}));
    }
    for (number, block) in largest(trace).into_iter().enumerate() {
        let name = shown(trace.text(block.tag));
        let args = json!({"bytes": block.bytes, "site": trace.text(block.site), "owner": block.owner});
        let id = format!("{number:#x}");
        events.push(json!({"ph": "b", "cat": "block", "pid": 1, "tid": block.owner, "id": id, "ts": block.begin, "name": name, "args": args}));
        events.push(
            json!({"ph": "e", "cat": "block", "pid": 1, "tid": block.owner, "id": id, "ts": block.end, "name": name}),
        );
    }
    let mut text = json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string().into_bytes();
    text.push(b'\n');
    text
}

fn shown(tag: &str) -> String {
    if tag.is_empty() { "(no tag)".into() } else { tag.into() }
}

/// A block's life.
struct BlockSlice {
    begin: u64,
    end: u64,
    bytes: u64,
    tag: u32,
    site: u32,
    owner: u32,
}

/// The largest blocks of the trace, in order of their begin.
fn largest(trace: &Trace) -> Vec<BlockSlice> {
    let (mut open, mut slices) = (vec![None::<usize>; trace.slots], Vec::<BlockSlice>::new());
    let end = trace.duration_us;
    for event in &trace.events {
        let Operation { slot, kind, bytes, owner, .. } = event.operation;
        let slot = &mut open[slot as usize];
        match (kind, *slot) {
            (OperationKind::Allocate, _) => {
                *slot = Some(slices.len());
                let (tag, site, owner) = (event.tag, event.site, owner.0);
                slices.push(BlockSlice { begin: event.time_us, end, bytes, tag, site, owner });
            }
            (OperationKind::Reallocate, Some(at)) => slices[at].bytes = slices[at].bytes.max(bytes),
            (OperationKind::Free, Some(at)) => {
                slices[at].end = event.time_us;
                *slot = None;
            }
            (_, None) => {}
        }
    }
    if slices.len() > SLICES {
        slices.select_nth_unstable_by_key(SLICES, |slice| std::cmp::Reverse(slice.bytes));
        slices.truncate(SLICES);
        slices.sort_by_key(|slice| slice.begin);
    }
    slices
}
