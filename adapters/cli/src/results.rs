//! The results of a replay: of each trace a row for each pool, and memory over time.
//!
//! Promises upward: what the table, the JSON and the picture show.
//! Asks from below: rows of pools, points of a timeline.

use terrace_replay::{Point, PoolRow};

/// The results of all pools on one trace.
pub struct TraceResult {
    /// Name of the trace: the file's, without extensions.
    pub trace: String,
    /// Number of events replayed: those of blocks below `--min-size` are left out.
    pub events: u64,
    /// Highest sum of requested bytes of live blocks in the trace.
    pub peak_live: u64,
    /// Live memory over time.
    pub points: Vec<Point>,
    /// A row for each pool.
    pub rows: Vec<PoolRow>,
    /// For each pool, the bytes that it had reserved at each of `points`.
    pub reserved: Vec<Vec<u64>>,
}
