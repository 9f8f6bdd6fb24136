//! The address map: which addresses of the replayed pool are taken, at some moments.
//!
//! Promises upward: at most [`COLUMNS`] columns and [`MOMENTS`] moments; addresses that no block had at any of the moments are left
//! out, so that what is shown lies side by side.
//! Asks from below: the pool's blocks.

use super::data::MapData;
use super::pool::ReplayedPool;
use super::trace::Trace;
use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use terrace_replay::OperationKind;
use terrace_replay::pools::SourceKind;

/// Most columns.
const COLUMNS: usize = 512;
/// Most moments.
const MOMENTS: usize = 128;
/// Tags that are told apart: digits 0 to 8; 9 is the rest.
const TAGS: usize = 9;

/// What lies in a column: bytes of each tag that is told apart, and of the rest.
type ColumnBytes = [u64; TAGS + 1];

/// Replays a trace and looks at the pool's blocks at equal steps of events.
///
/// `peak` is the most that the pool reserves.
pub fn map(trace: &Trace, source: SourceKind, shown: &[u32], peak: u64) -> Result<MapData, Failure> {
    let mut pool = ReplayedPool::terrace(source, trace.slots)?;
    let mut column_bytes = (peak / COLUMNS as u64).max(64).next_power_of_two();
    let step = trace.events.len().div_ceil(MOMENTS);
    let mut tags = vec![0u32; trace.slots];
    let (mut event_of, mut time_us, mut moments) = (Vec::new(), Vec::new(), Vec::new());
    for (at, event) in trace.events.iter().enumerate() {
        pool.replay(event)?;
        if event.operation.kind == OperationKind::Allocate {
            tags[event.operation.slot as usize] = event.tag;
        }
        if (at + 1).is_multiple_of(step) || at + 1 == trace.events.len() {
            event_of.push(at as u64);
            time_us.push(event.time_us);
            moments.push(moment(&pool, &tags, shown, column_bytes));
        }
    }
    // Small blocks far apart may take more columns than the peak says.
    let mut columns = taken(&moments);
    while columns.len() > COLUMNS {
        column_bytes *= 2;
        moments = moments.into_iter().map(halve).collect();
        columns = taken(&moments);
    }
    let empty: ColumnBytes = [0; TAGS + 1];
    let at = |moment: &BTreeMap<u64, ColumnBytes>, column: &u64| moment.get(column).copied().unwrap_or(empty);
    let digits = |moment: &BTreeMap<u64, ColumnBytes>, digit: &dyn Fn(&ColumnBytes) -> u32| {
        columns.iter().filter_map(|column| char::from_digit(digit(&at(moment, column)), 16)).collect::<String>()
    };
    let fill = |column: &ColumnBytes| {
        let bytes = column.iter().sum::<u64>().min(column_bytes);
        // Any bytes at all are seen.
        (bytes as u128 * 15).div_ceil(u128::from(column_bytes)) as u32
    };
    let tag = |column: &ColumnBytes| {
        let highest = column.iter().enumerate().max_by_key(|(at, bytes)| (**bytes, std::cmp::Reverse(*at)));
        highest.map_or(TAGS as u32, |(at, _)| at as u32)
    };
    let names = shown.iter().take(TAGS).map(|tag| trace.text(*tag).to_owned()).collect();
    Ok(MapData {
        column_bytes,
        addresses: columns.iter().map(|column| column * column_bytes).collect(),
        event: event_of,
        time_us,
        fill: moments.iter().map(|moment| digits(moment, &fill)).collect(),
        tag: moments.iter().map(|moment| digits(moment, &tag)).collect(),
        tags: names,
    })
}

/// The columns that have a block at any moment.
fn taken(moments: &[BTreeMap<u64, ColumnBytes>]) -> BTreeSet<u64> {
    moments.iter().flat_map(BTreeMap::keys).copied().collect()
}

/// Bytes by column and tag.
fn moment(pool: &ReplayedPool, tags: &[u32], shown: &[u32], column_bytes: u64) -> BTreeMap<u64, ColumnBytes> {
    let mut columns: BTreeMap<u64, ColumnBytes> = BTreeMap::new();
    for (slot, block) in pool.live() {
        let tag = shown.iter().take(TAGS).position(|other| *other == tags[slot as usize]).unwrap_or(TAGS);
        let (mut at, end) = (block.address, block.address + block.bytes);
        while at < end {
            let column = at / column_bytes;
            let next = ((column + 1) * column_bytes).min(end);
            columns.entry(column).or_insert([0; TAGS + 1])[tag] += next - at;
            at = next;
        }
    }
    columns
}

/// Joins every two columns.
fn halve(moment: BTreeMap<u64, ColumnBytes>) -> BTreeMap<u64, ColumnBytes> {
    let mut halved: BTreeMap<u64, ColumnBytes> = BTreeMap::new();
    for (column, bytes) in moment {
        let into = halved.entry(column / 2).or_insert([0; TAGS + 1]);
        into.iter_mut().zip(bytes).for_each(|(into, bytes)| *into += bytes);
    }
    halved
}
