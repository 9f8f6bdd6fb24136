//! Table, sentences and rows of `terrace replay --least`.
//!
//! Promises upward: the keys of [`LeastRow`] are stable; the number of a sentence is that of its row.
//! Asks from below: the answer of a search.

use super::args::LeastArgs;
use super::search::Least;
use crate::output::{format_bytes, format_thousands};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use terrace_replay::{ARENA_ALIGN, HeapProfile, HeapRun, RecordKind};

/// The least arena of one heap for one trace. The field names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct LeastRow {
    /// Name of the trace.
    pub trace: String,
    /// The heap's profile.
    pub heap: String,
    /// Bits of the target's word.
    pub bits: u64,
    /// Whether each block has a header.
    pub headers: bool,
    /// The format of the records of free blocks: `narrow`, `packed` or `wide`.
    pub records: String,
    /// Bytes of a granule.
    pub granule_bytes: u64,
    /// Number of events replayed.
    pub events: u64,
    /// Highest sum of requested bytes of live blocks.
    pub peak_live_bytes: u64,
    /// Highest sum of live blocks in whole granules, headers included.
    pub peak_granule_bytes: u64,
    /// The least arena in bytes, tables included.
    pub least_arena_bytes: u64,
    /// The first size that held the run; less than `least_arena_bytes` where a size between them did not.
    pub first_fit_bytes: u64,
    /// `least_arena_bytes` in percent of `peak_live_bytes`.
    pub percent_of_peak: f64,
    /// The arena starts at a multiple of this.
    pub arena_align: u64,
    /// The largest size that was replayed: the run fits into it and into every size of the grid down to the least arena.
    pub tried_to_bytes: u64,
}

impl LeastRow {
    /// The row of one heap.
    pub fn new(
        trace: &str,
        heap: HeapProfile,
        args: &LeastArgs,
        records: RecordKind,
        events: usize,
        (run, peak_granule_bytes): (&HeapRun, u64),
        found: Least,
    ) -> Self {
        Self {
            trace: trace.into(),
            heap: heap.name(),
            bits: args.bits.number(),
            headers: args.headers,
            records: records.name(),
            granule_bytes: records.granule(),
            events: events as u64,
            peak_live_bytes: run.peak,
            peak_granule_bytes,
            least_arena_bytes: found.bytes,
            first_fit_bytes: found.first,
            percent_of_peak: 100.0 * found.bytes as f64 / run.peak as f64,
            arena_align: run.align.max(ARENA_ALIGN),
            tried_to_bytes: found.tried_to,
        }
    }

    /// What to do with the answer.
    fn sentence(&self) -> String {
        let bytes = format_thousands(self.least_arena_bytes);
        let place = match self.arena_align {
            ARENA_ALIGN => String::new(),
            align => format!(", at a multiple of {}", format_thousands(align)),
        };
        let [first, rest] = [&self.heap[..1], &self.heap[1..]];
        let [wide, records] = [&self.records[..1], &self.records[1..]];
        let heap = format!("{}{rest}<{}{records}>", first.to_uppercase(), wide.to_uppercase());
        let tried = format_thousands(self.tried_to_bytes);
        let first = match self.first_fit_bytes {
            first if first == self.least_arena_bytes => String::new(),
            first => format!(" {} would do, but not all sizes above.", format_thousands(first)),
        };
        format!(
            "{}: give the heap {bytes} bytes{place} ({heap}); sizes up to {tried} were tried and fit too.{first}\n",
            self.trace
        )
    }
}

/// A table of all rows, and a sentence for each.
pub fn text(rows: &[LeastRow]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "trace",
        "events",
        "heap",
        "records",
        "peak",
        "peak in\ngranules",
        "least\narena",
        "of peak",
    ]);
    for row in rows {
        table.add_row([
            row.trace.clone(),
            format_thousands(row.events),
            row.heap.clone(),
            format!("{} ({} B)", row.records, row.granule_bytes),
            format_bytes(row.peak_live_bytes),
            format_bytes(row.peak_granule_bytes),
            format_bytes(row.least_arena_bytes),
            format!("{:.1} %", row.percent_of_peak),
        ]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if ![0, 2, 3].contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let head = rows.first().map_or(String::new(), |row| {
        let headers = if row.headers { "blocks with headers" } else { "blocks without headers" };
        format!("least arena of a heap on {} bits, {headers}\n", row.bits)
    });
    format!("{head}{table}\n{}", rows.iter().map(LeastRow::sentence).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_replay::Bits;

    fn row(first: u64, align: u64) -> LeastRow {
        let args = LeastArgs { heaps: vec![], least: true, bits: Bits::B32, headers: false, align: None };
        let mut run = HeapRun::new(&[], super::super::rules(&args)).unwrap();
        (run.peak, run.align) = (1000, align);
        let found = Least { bytes: 1600, first, tried_to: 2000 };
        LeastRow::new("run", HeapProfile::Small, &args, RecordKind::Wide, 2, (&run, 1024), found)
    }

    #[test]
    fn the_sentence_says_how_many_bytes_where_and_how_sure() {
        assert_eq!(row(1600, 8).percent_of_peak, 160.0);
        let plain = "run: give the heap 1,600 bytes (Small<Wide>); sizes up to 2,000 were tried and fit too.\n";
        assert_eq!(row(1600, 8).sentence(), plain);
        assert!(row(1600, 4096).sentence().contains("1,600 bytes, at a multiple of 4,096 (Small<Wide>)"));
        assert!(row(1520, 8).sentence().ends_with("fit too. 1,520 would do, but not all sizes above.\n"));
    }
}
