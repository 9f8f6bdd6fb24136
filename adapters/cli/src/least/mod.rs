//! `terrace replay --least`: the least arena of a heap for firmware that a recorded run fits into.
//!
//! Promises upward: every size of the grid from the answer to the end of its margin was replayed to the last event.
//! Asks from below: operations of a trace (24 bytes each, all of them in memory), heaps by name, one range of memory.

mod args;
mod report;
mod search;

pub use args::LeastArgs;
pub use report::{LeastRow, text};

use crate::failure::Failure;
use crate::input::{self, TraceInput};
use crate::operations::{OperationReader, nothing_left};
use crate::output::format_thousands;
use crate::progress;
use search::{Least, end_of_margin, least};
use terrace_replay::{
    ArenaMemory, Bits, BlockRules, Chunk, HeapProfile, HeapRun, Operation, PoolFailure, RecordKind, Timeline,
};

/// Rows of all heaps for one trace.
pub fn rows(args: &LeastArgs, input: &TraceInput, min_size: u64) -> Result<Vec<LeastRow>, Failure> {
    let operations = read(input, min_size)?;
    let too_large = || refused(input, args.bits);
    let mut run = HeapRun::new(&operations, rules(args)).ok_or_else(too_large)?;
    let mut rows = Vec::new();
    for &heap in &args.heaps {
        let (records, found) = find(args, input, heap, &mut run)?.ok_or_else(too_large)?;
        let peak_in_granules = run.peak_in_granules(records.granule());
        rows.push(LeastRow::new(&input.name, heap, args, records, operations.len(), (&run, peak_in_granules), found));
    }
    Ok(rows)
}

/// What blocks get on the target: `malloc` promises the alignment of two words there, and a header has two words.
fn rules(args: &LeastArgs) -> BlockRules {
    let two_words = args.bits.number() / 4;
    let header = if args.headers { two_words } else { 0 };
    BlockRules { align_most: args.align, malloc_align: two_words, header }
}

/// All operations of a trace.
fn read(input: &TraceInput, min_size: u64) -> Result<Vec<Operation>, Failure> {
    let mut reader = OperationReader::new(input.open()?, min_size, false);
    let (mut chunk, timeline, mut operations) = (Chunk::default(), Timeline::default(), Vec::new());
    loop {
        reader.fill(&mut chunk, &timeline)?;
        if chunk.operations.is_empty() {
            break;
        }
        operations.append(&mut chunk.operations);
    }
    input::tell_remark(&input.name, reader.remark());
    if operations.is_empty() { Err(nothing_left(&input.path, min_size)) } else { Ok(operations) }
}

/// The least arena with the first of the target's records in which there is one.
fn find(
    args: &LeastArgs,
    input: &TraceInput,
    heap: HeapProfile,
    run: &mut HeapRun,
) -> Result<Option<(RecordKind, Least)>, Failure> {
    let mut arena = ArenaMemory::new(run.align);
    for &records in args.bits.records(heap) {
        let low = run.peak_in_granules(records.granule());
        let bar = progress::bar(Some(1), "{msg} {bar:40} {percent} %");
        let found = least(low, records.largest().min(args.bits.largest()), |size, first| {
            bar.set_message(format!("{}: {}, {} bytes", input.name, heap.name(), format_thousands(size)));
            let first = first.unwrap_or(size);
            bar.set_length(end_of_margin(first) - first);
            bar.set_position(size - first);
            let memory =
                arena.bytes(size).map_err(|why| Failure::Measure(format!("{}: {why}", input.path.display())))?;
            heap.fits(records, memory, run)
                .map_err(|error| Failure::Pool(PoolFailure { pool: "heap", what: format!("refused a call: {error}") }))
        });
        bar.finish_and_clear();
        if let Some(found) = found? {
            return Ok(Some((records, found)));
        }
    }
    Ok(None)
}

/// The error for a run that no region holds.
fn refused(input: &TraceInput, bits: Bits) -> Failure {
    let (path, most, bits) = (input.path.display(), format_thousands(bits.largest()), bits.number());
    let hint = if bits == 32 { "; give --bits 64, or leave large blocks out of the recording" } else { "" };
    Failure::Usage(format!("{path}: fits into no arena of a heap on {bits} bits, which has at most {most} bytes{hint}"))
}

#[cfg(test)]
mod tests;
