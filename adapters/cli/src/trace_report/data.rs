//! What a page shows, as plain values; also the JSON of `--json`.
//!
//! Promises upward: keys are stable; bytes are `_bytes`, microseconds `_us`; lists are bounded, so a page is at most some 600 KB
//! a trace.
//! Asks from below: nothing.

use serde::Serialize;

/// A page: the traces that were given.
#[derive(Serialize)]
pub struct PageData {
    pub version: &'static str,
    /// Where the replayed pool took memory from.
    pub source: &'static str,
    pub traces: Vec<TraceData>,
}

/// One trace.
#[derive(Serialize)]
pub struct TraceData {
    pub name: String,
    pub events: u64,
    pub duration_us: u64,
    /// Highest sum of requested bytes of live blocks.
    pub peak_live_bytes: u64,
    /// Sum of requested bytes of the blocks live at the end.
    pub live_at_end_bytes: u64,
    /// As `peak_live_bytes`, without allocations that failed on the replayed pool.
    pub peak_in_use_bytes: u64,
    /// The most that the replayed pool had reserved.
    pub peak_reserved_bytes: u64,
    /// Number of allocations that failed on the replayed pool.
    pub failed: u64,
    pub timeline: TimelineData,
    /// Moments with a text.
    pub marks: Vec<MarkData>,
    /// Tags, those with the highest peak first.
    pub tags: Vec<TagData>,
    pub sizes: SizesData,
    /// What is live at the end, the most bytes first.
    pub leaks: Vec<LeakData>,
    pub map: MapData,
    /// Copies between tiers.
    pub copies: Vec<CopyData>,
    pub advice: Vec<super::advice::SettingAdvice>,
    /// Why there is no advice, in words.
    pub no_advice: Option<&'static str>,
}

/// Memory over time: each list has a value for each point.
#[derive(Default, Serialize)]
pub struct TimelineData {
    pub time_us: Vec<u64>,
    /// Number of the event at each point.
    pub event: Vec<u64>,
    pub live_bytes: Vec<u64>,
    pub reserved_bytes: Vec<u64>,
    pub largest_free_bytes: Vec<u64>,
    /// Live bytes of the tags with the highest peaks, and of all others together.
    pub by_tag: Vec<TagSeries>,
}

/// Live bytes of one tag over time.
#[derive(Serialize)]
pub struct TagSeries {
    pub tag: String,
    pub live_bytes: Vec<u64>,
}

/// A moment with a text.
#[derive(Serialize)]
pub struct MarkData {
    pub time_us: u64,
    pub text: String,
}

/// What was allocated under one tag.
#[derive(Clone, Serialize)]
pub struct TagData {
    pub tag: String,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    /// Live at the end.
    pub live_bytes: u64,
}

/// Blocks by the powers of two of their size and of their life.
///
/// Row `r` holds sizes from 2^(`least_size` + r) bytes, column `c` lives from 2^`c` - 1 microseconds; the last column holds blocks
/// that are live at the end.
#[derive(Serialize)]
pub struct SizesData {
    pub least_size: u32,
    pub blocks: Vec<Vec<u64>>,
    pub bytes: Vec<Vec<u64>>,
}

/// Blocks of one tag and call site that are live at the end.
#[derive(Serialize)]
pub struct LeakData {
    pub tag: String,
    pub site: String,
    pub blocks: u64,
    pub bytes: u64,
    /// Time from the allocation of the oldest to the end.
    pub oldest_us: u64,
}

/// The address space of the replayed pool at some moments.
///
/// Addresses that no block had at any of them are left out.
#[derive(Default, Serialize)]
pub struct MapData {
    /// Bytes of a column.
    pub column_bytes: u64,
    /// First address of each column.
    pub addresses: Vec<u64>,
    /// The moments: number of the event, and time.
    pub event: Vec<u64>,
    pub time_us: Vec<u64>,
    /// For each moment a hexadecimal digit a column: fifteenths of the column that live blocks take.
    pub fill: Vec<String>,
    /// For each moment a digit a column: the index in `tags` of the tag with the most bytes there, 9 for all others.
    pub tag: Vec<String>,
    /// The tags of the digits.
    pub tags: Vec<String>,
}

/// Copies from one tier to another.
#[derive(Serialize)]
pub struct CopyData {
    pub from: u8,
    pub to: u8,
    pub copies: u64,
    pub bytes: u64,
    /// Bytes in each of 64 equal parts of the trace's time.
    pub over_time: Vec<u64>,
}
