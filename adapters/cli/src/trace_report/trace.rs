//! A trace in memory: what the page shows of each block, and the operations that pools replay.
//!
//! Promises upward: events in order, blocks by dense slots; at most [`EVENTS_MAX`] events, 48 bytes each.
//! Asks from below: checked entries of the reader.

use crate::failure::Failure;
use crate::input::{TraceInput, tell_remark};
use crate::operations::{OperationFilter, nothing_left};
use crate::progress;
use terrace::engine::event::Kind;
use terrace_replay::Operation;

/// Most events of a trace: 2^24 take 768 MiB. Longer ones are to be cut: what a page shows of them is no finer.
const EVENTS_MAX: usize = 1 << 24;

/// An allocation, a reallocation or a free.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent {
    /// What was done; its owner is the stream or thread that made the call.
    pub operation: Operation,
    /// Microseconds since the first event.
    pub time_us: u64,
    /// Number of the tag in [`Trace::texts`]; 0 for none.
    pub tag: u32,
    /// Number of the call site in [`Trace::texts`]; 0 for none.
    pub site: u32,
}

/// Bytes that were copied from one tier to another.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub time_us: u64,
    pub from: u8,
    pub to: u8,
    pub bytes: u64,
}

/// A trace, read whole.
pub struct Trace {
    pub name: String,
    pub events: Vec<TraceEvent>,
    /// Live bytes after each event.
    pub live: Vec<u64>,
    /// Number of slots.
    pub slots: usize,
    /// Microseconds from the first entry to the last.
    pub duration_us: u64,
    pub copies: Vec<Copied>,
    /// Moments with a text, such as steps of a training.
    pub marks: Vec<(u64, u32)>,
    /// Tags and call sites by number; the first is empty.
    pub texts: Vec<String>,
}

impl Trace {
    /// Reads a trace, with a bar of progress on a terminal.
    pub fn read(input: &TraceInput, min_size: u64) -> Result<Self, Failure> {
        let TraceInput { path, name, .. } = input;
        let mut reader = input.open()?;
        let length = reader.progress().1;
        let template = length.map_or("{spinner} {msg}", |_| "{msg} {bar:40} {bytes} of {total_bytes}, {eta} left");
        let bar = progress::bar(length, template).with_message(format!("read {name}"));
        let mut trace = Self {
            name: name.clone(),
            events: Vec::new(),
            live: Vec::new(),
            slots: 0,
            duration_us: 0,
            copies: Vec::new(),
            marks: Vec::new(),
            texts: Vec::new(),
        };
        let (mut begin, mut filter) = (None, OperationFilter::new(min_size, true));
        while let Some(entry) = reader.next().transpose()? {
            let event = entry.event;
            let time_us = event.time_us - *begin.get_or_insert(event.time_us);
            trace.duration_us = time_us;
            if trace.events.len() + trace.copies.len() + trace.marks.len() >= EVENTS_MAX {
                let text =
                    format!("{}: more than {EVENTS_MAX} events; cut the trace, or take --min-size", path.display());
                return Err(Failure::Usage(text));
            }
            match event.kind {
                Kind::Transfer => {
                    trace.copies.push(Copied { time_us, from: event.from_tier, to: event.tier, bytes: event.bytes });
                }
                Kind::Mark => trace.marks.push((time_us, event.tag)),
                _ => {}
            }
            let Some(operation) = entry.slot.and_then(|slot| filter.operation(&event, slot)) else { continue };
            trace.live.push(filter.live());
            trace.events.push(TraceEvent { operation, time_us, tag: event.tag, site: event.site });
            if trace.events.len().is_multiple_of(1 << 16) {
                bar.set_position(reader.progress().0);
            }
        }
        bar.finish_and_clear();
        tell_remark(name, reader.remark());
        trace.slots = filter.slots();
        let texts = reader.texts();
        trace.texts = (0..).map_while(|id| texts.get(id).map(str::to_owned)).collect();
        if trace.events.is_empty() {
            return Err(nothing_left(path, min_size));
        }
        Ok(trace)
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }
}
