//! Operations of a trace, which a replay executes without lookups.
//!
//! Promises upward: [`Operation`]s of 24 bytes, in chunks with the samples chosen among them.
//! Asks from below: points of a timeline.

use crate::timeline::{POINTS_MAX, Point, Timeline, index_of_max};
use terrace_core::Owner;

/// The most operations of a chunk: 2^16.
///
/// At 24 bytes they take 1.5 MiB, which stays in a second-level cache while each pool replays them.
pub const CHUNK: usize = 1 << 16;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Allocate a block for the slot.
    Allocate,
    /// Resize the slot's block.
    Reallocate,
    /// Free the slot's block.
    Free,
}

/// One operation of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Bytes requested; 0 for a free.
    pub bytes: u64,
    /// Index of the slot that holds the block during the replay.
    pub slot: u32,
    /// The stream that made the request; 0 without `--streams`.
    pub owner: Owner,
    /// The kind of operation.
    pub kind: OperationKind,
    /// log2 of the alignment.
    pub align_log2: u8,
}

/// Consecutive operations of a trace, with the samples chosen among them.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// Indices of the operations after which the replay samples the pools, in rising order.
    pub samples: Vec<usize>,
    /// Time and live bytes of the trace at each sample.
    pub points: Vec<Point>,
    /// Number of slots that the trace has used so far.
    pub slots: usize,
    /// Time and live bytes of the trace after each operation.
    live: Vec<Point>,
}

impl Chunk {
    /// Removes the operations and samples; the number of slots stays.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.live.clear();
        self.samples.clear();
        self.points.clear();
    }

    /// Appends an operation, with the time and live bytes of the trace after it.
    pub fn push(&mut self, operation: Operation, after: Point) {
        self.operations.push(operation);
        self.live.push(after);
    }

    /// Chooses the samples: of every so many operations the one with the most live memory.
    ///
    /// There are at most `POINTS_MAX` of them, so that sampling stays rare.
    pub fn sample(&mut self, timeline: &Timeline) {
        let stride = timeline.stride().max(self.operations.len().div_ceil(POINTS_MAX).next_power_of_two());
        self.samples.clear();
        for (n, interval) in self.live.chunks(stride).enumerate() {
            self.samples.extend(index_of_max(interval.iter().map(|point| point.live)).map(|i| n * stride + i));
        }
        self.points.clear();
        self.points.extend(self.samples.iter().map(|&i| self.live[i]));
    }
}
