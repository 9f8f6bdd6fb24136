//! A trace in memory: what the page shows of each block, and the operations that pools replay.
//!
//! Promises upward: events in order, blocks by dense slots; at most [`EVENTS_MAX`] events, 40 bytes each.
//! Asks from below: checked entries of the reader.

use crate::failure::Failure;
use crate::input;
use crate::progress;
use std::path::Path;
use terrace::engine::event::Kind;

/// Most events of a trace: 2^24 take 640 MiB. Longer ones are to be cut: what a page shows of them is no finer.
const EVENTS_MAX: usize = 1 << 24;

/// An allocation, a resize or a free.
#[derive(Clone, Copy, Debug)]
pub struct TraceEvent {
    /// Microseconds since the first event.
    pub time_us: u64,
    /// Bytes requested; 0 for a free.
    pub bytes: u64,
    /// The block's slot: dense, reused after the free.
    pub slot: u32,
    /// Number of the tag in [`Trace::texts`]; 0 for none.
    pub tag: u32,
    /// Number of the call site in [`Trace::texts`]; 0 for none.
    pub site: u32,
    /// The stream or thread that made the call.
    pub owner: u32,
    /// What was done.
    pub kind: EventKind,
    /// log2 of the alignment.
    pub align_log2: u8,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A block was allocated.
    Allocate,
    /// A block got another size.
    Resize,
    /// A block was freed.
    Free,
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
    /// Number of slots.
    pub slots: usize,
    pub copies: Vec<Copied>,
    /// Moments with a text, such as steps of a training.
    pub marks: Vec<(u64, u32)>,
    /// Tags and call sites by number; the first is empty.
    pub texts: Vec<String>,
}

impl Trace {
    /// Reads a trace, with a bar of progress on a terminal.
    pub fn read(path: &Path, name: String, min_size: u64) -> Result<Self, Failure> {
        let mut reader = input::open(path)?;
        let length = reader.progress().1;
        let template = length.map_or("{spinner} {msg}", |_| "{msg} {bar:40} {bytes} of {total_bytes}, {eta} left");
        let bar = progress::bar(length, template).with_message(format!("read {name}"));
        let mut trace =
            Self { name, events: Vec::new(), slots: 0, copies: Vec::new(), marks: Vec::new(), texts: vec![] };
        let (mut begin, mut skipped) = (None, Vec::new());
        while let Some(entry) = reader.next().transpose()? {
            let event = entry.event;
            let time_us = event.time_us - *begin.get_or_insert(event.time_us);
            let kind = match event.kind {
                Kind::Allocate => EventKind::Allocate,
                Kind::Reallocate => EventKind::Resize,
                Kind::Free => EventKind::Free,
                Kind::Transfer => {
                    trace.copies.push(Copied { time_us, from: event.from_tier, to: event.tier, bytes: event.bytes });
                    continue;
                }
                Kind::Mark => {
                    trace.marks.push((time_us, event.tag));
                    continue;
                }
                _ => continue,
            };
            let Some(slot) = entry.slot else { continue };
            let at = slot as usize;
            if at >= skipped.len() {
                skipped.resize(at + 1, false);
            }
            if kind == EventKind::Allocate {
                skipped[at] = event.bytes < min_size;
            }
            if skipped[at] {
                continue;
            }
            trace.slots = skipped.len();
            trace.events.push(TraceEvent {
                time_us,
                bytes: if kind == EventKind::Free { 0 } else { event.bytes },
                slot,
                tag: event.tag,
                site: event.site,
                owner: event.owner.0,
                kind,
                align_log2: event.align.max(1).trailing_zeros() as u8,
            });
            if trace.events.len() > EVENTS_MAX {
                let text =
                    format!("{}: more than {EVENTS_MAX} events; cut the trace, or take --min-size", path.display());
                return Err(Failure::Usage(text));
            }
            if trace.events.len().is_multiple_of(1 << 16) {
                bar.set_position(reader.progress().0);
            }
        }
        bar.finish_and_clear();
        let texts = reader.texts();
        trace.texts = (0..).map_while(|id| texts.get(id).map(str::to_owned)).collect();
        if trace.events.is_empty() {
            let text = format!(
                "{}: no event allocates, resizes or frees; record again with those switched on",
                path.display()
            );
            return Err(Failure::Usage(text));
        }
        Ok(trace)
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }

    /// Microseconds from the first event to the last.
    pub fn duration_us(&self) -> u64 {
        self.events.last().map_or(0, |event| event.time_us)
    }
}
