//! A trace as chunks of operations, which a replay executes without lookups.
//!
//! Promises upward: [`Operation`]s of 24 bytes whose slots are dense and reused, after `--min-size` and `--streams`. Memory is
//! bounded by [`CHUNK`] and by the blocks live at once.
//! Asks from below: validated entries of the reader.

use crate::failure::Failure;
use std::path::Path;
use terrace::engine::Owner;
use terrace::engine::event::{Event, Kind};
use terrace::recording::Reader;
use terrace_replay::{CHUNK, Chunk, Operation, OperationKind, Point, Timeline};

/// The block in a slot, as the trace has it.
#[derive(Clone, Copy, Debug, Default)]
struct RecordedSlot {
    bytes: u64,
    /// Whether the block was allocated with fewer bytes than `--min-size`, so that the replay leaves it out.
    skipped: bool,
}

/// Turns the events of a trace into operations.
#[derive(Debug)]
pub struct OperationFilter {
    min_size: u64,
    streams: bool,
    /// The trace's block in each slot.
    slots: Vec<RecordedSlot>,
    /// Sum of `bytes` over all slots that are not skipped.
    live: u64,
}

/// Reads the operations of a trace, in chunks.
pub struct OperationReader<'a> {
    reader: Reader<'a>,
    filter: OperationFilter,
    /// Time of the first event, the origin of all times.
    begin_us: Option<u64>,
}

impl<'a> OperationReader<'a> {
    /// Reads operations from a trace's entries.
    pub fn new(reader: Reader<'a>, min_size: u64, streams: bool) -> Self {
        Self { reader, filter: OperationFilter::new(min_size, streams), begin_us: None }
    }

    /// What the reader left out and added so far, in words.
    pub fn remark(&self) -> Option<String> {
        self.reader.remark()
    }

    /// Number of bytes read of the file, and the file's length if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.reader.progress()
    }

    /// Reads the next chunk; an empty one at the end of the trace.
    pub fn fill(&mut self, chunk: &mut Chunk, timeline: &Timeline) -> Result<(), Failure> {
        chunk.clear();
        while chunk.operations.len() < CHUNK {
            let Some(entry) = self.reader.next().transpose()? else { break };
            let begin_us = *self.begin_us.get_or_insert(entry.event.time_us);
            let Some(slot) = entry.slot else { continue };
            if let Some(operation) = self.filter.operation(&entry.event, slot) {
                chunk.push(operation, Point { time_us: entry.event.time_us - begin_us, live: self.filter.live() });
            }
        }
        chunk.slots = self.filter.slots();
        chunk.sample(timeline);
        Ok(())
    }
}

impl OperationFilter {
    /// Leaves out blocks below `min_size` bytes; without `streams` all blocks have one owner.
    pub fn new(min_size: u64, streams: bool) -> Self {
        Self { min_size, streams, slots: Vec::new(), live: 0 }
    }

    /// Live bytes after the last event.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Number of slots that the trace has used so far.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The operation for an event; `None` if it is left out.
    pub fn operation(&mut self, event: &Event, slot: u32) -> Option<Operation> {
        let kind = match event.kind {
            Kind::Allocate => OperationKind::Allocate,
            Kind::Reallocate => OperationKind::Reallocate,
            Kind::Free => OperationKind::Free,
            _ => return None,
        };
        let at = slot as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, RecordedSlot::default());
        }
        let state = &mut self.slots[at];
        if kind == OperationKind::Allocate {
            *state = RecordedSlot { bytes: 0, skipped: event.bytes < self.min_size };
        }
        if state.skipped {
            return None;
        }
        let bytes = if kind == OperationKind::Free { 0 } else { event.bytes };
        self.live = self.live - state.bytes + bytes;
        state.bytes = bytes;
        let owner = if self.streams { event.owner } else { Owner(0) };
        Some(Operation { bytes, slot, owner, kind, align_log2: event.align.max(1).trailing_zeros() as u8 })
    }
}

/// The error for a trace without operations.
pub fn nothing_left(path: &Path, min_size: u64) -> Failure {
    let path = path.display();
    Failure::Usage(match min_size {
        0 => format!("{path}: no event allocates, resizes or frees; record again with those switched on"),
        _ => format!("{path}: no event is left with --min-size {min_size}; give a smaller one"),
    })
}
