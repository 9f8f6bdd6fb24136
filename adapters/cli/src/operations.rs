//! A trace in chunks of small steps, ready to be replayed without looking anything up.
//!
//! Promises upward: [`Operation`]s of 24 bytes whose slots are dense and used again, after `--min-size` and `--streams`;
//! memory bounded by [`CHUNK`] and by the blocks live at once.
//! Asks from below: checked entries of the reader.

use crate::failure::Failure;
use crate::timeline::{POINTS_MAX, Point, Timeline, highest};
use terrace::Owner;
use terrace::event::{Event, Kind};
use terrace::recording::Reader;

/// Steps of a chunk: 2^16 of 24 bytes are 1.5 MiB, which stays in a second-level cache while pools take turns.
pub const CHUNK: usize = 1 << 16;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Fill the slot.
    Allocate,
    /// Change the size of what is in the slot.
    Reallocate,
    /// Empty the slot.
    Free,
}

/// One event, ready to be replayed.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Bytes asked for.
    pub bytes: u64,
    /// Which block.
    pub slot: u32,
    /// Who.
    pub owner: Owner,
    /// What to do.
    pub kind: OperationKind,
    /// log2 of the alignment.
    pub align_log2: u8,
}

/// Steps that follow each other.
#[derive(Debug, Default)]
pub struct Chunk {
    /// What to do, in order.
    pub operations: Vec<Operation>,
    /// Steps after which pools are looked at, rising.
    pub samples: Vec<usize>,
    /// The samples in the trace, as many.
    pub points: Vec<Point>,
    /// All slots so far are below this.
    pub slots: usize,
    /// After each step.
    live: Vec<Point>,
}

/// What a slot holds, as the trace says.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    bytes: u64,
    /// Allocated with less than `--min-size`.
    skipped: bool,
}

/// Makes chunks of a trace.
pub struct OperationReader<'a> {
    reader: Reader<'a>,
    min_size: u64,
    streams: bool,
    held: Vec<SlotState>,
    /// Sum of `bytes` over what is held and not left out.
    live: u64,
    /// Time of the first event, from which all times count.
    begin_us: Option<u64>,
}

impl<'a> OperationReader<'a> {
    /// Steps of what `reader` gives.
    pub fn new(reader: Reader<'a>, min_size: u64, streams: bool) -> Self {
        Self { reader, min_size, streams, held: Vec::new(), live: 0, begin_us: None }
    }

    /// Bytes read of the file, and its length where known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.reader.progress()
    }

    /// Fills `chunk` with what comes next; empty at the end.
    pub fn fill(&mut self, chunk: &mut Chunk, timeline: &Timeline) -> Result<(), Failure> {
        chunk.operations.clear();
        chunk.live.clear();
        while chunk.operations.len() < CHUNK {
            let Some(entry) = self.reader.next().transpose()? else { break };
            let begin_us = *self.begin_us.get_or_insert(entry.event.time_us);
            let Some(slot) = entry.slot else { continue };
            if let Some(operation) = self.operation(&entry.event, slot) {
                chunk.operations.push(operation);
                chunk.live.push(Point { time_us: entry.event.time_us - begin_us, live: self.live });
            }
        }
        chunk.slots = self.held.len();
        // At most POINTS_MAX samples a chunk, so that looking at pools stays rare.
        chunk.choose(timeline.stride().max(chunk.operations.len().div_ceil(POINTS_MAX).next_power_of_two()));
        Ok(())
    }

    /// The step of an event, `None` when it is left out.
    fn operation(&mut self, event: &Event, slot: u32) -> Option<Operation> {
        let kind = match event.kind {
            Kind::Allocate => OperationKind::Allocate,
            Kind::Reallocate => OperationKind::Reallocate,
            Kind::Free => OperationKind::Free,
            _ => return None,
        };
        let at = slot as usize;
        if at >= self.held.len() {
            self.held.resize(at + 1, SlotState::default());
        }
        let held = &mut self.held[at];
        if kind == OperationKind::Allocate {
            *held = SlotState { bytes: 0, skipped: event.bytes < self.min_size };
        }
        if held.skipped {
            return None;
        }
        let bytes = if kind == OperationKind::Free { 0 } else { event.bytes };
        self.live = self.live - held.bytes + bytes;
        held.bytes = bytes;
        let owner = if self.streams { event.owner } else { Owner(0) };
        Some(Operation { bytes, slot, owner, kind, align_log2: event.align.max(1).trailing_zeros() as u8 })
    }
}

impl Chunk {
    /// Chooses the samples: the highest of every `stride` steps.
    fn choose(&mut self, stride: usize) {
        self.samples.clear();
        for (n, stretch) in self.live.chunks(stride).enumerate() {
            self.samples.extend(highest(stretch.iter().map(|point| point.live)).map(|i| n * stride + i));
        }
        self.points.clear();
        self.points.extend(self.samples.iter().map(|&i| self.live[i]));
    }
}
