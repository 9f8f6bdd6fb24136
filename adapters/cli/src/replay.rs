//! `terrace replay`: replays traces on pools, or on heaps for firmware.
//!
//! Promises upward: all traces are read to their end before anything is written. A trace with more blocks live at once than the
//! pools have room for is replayed again from its beginning, with more room.
//! Asks from below: operations of a trace, pools by name, the report.

use crate::args::{ReplayArgs, Switch};
use crate::failure::Failure;
use crate::input::{self, TraceInput};
use crate::least;
use crate::operations::{OperationReader, nothing_left};
use crate::output::format_thousands;
use crate::picture;
use crate::progress;
use crate::report;
use crate::results::TraceResult;
use quanta::Clock;
use std::path::{Path, PathBuf};
use terrace::recording::{LIVE_MAX, Partial};
use terrace_replay::pools::{self, PoolSetup};
use terrace_replay::{Chunk, PoolReplay, PoolRow, Timeline};

/// The number of live blocks that the first attempt has room for: half as many as a default arena has records, since
/// free ranges take records too.
const BLOCKS: usize = 1 << 17;
/// The number of live blocks that there is room for if a trace cannot be read twice (a pipe): 2^19, whose records take
/// 200 MiB in each arena.
const BLOCKS_ONCE: usize = 1 << 19;
/// The factor by which each further attempt has more room: at most 3 further attempts lead from 2^17 live blocks to
/// [`LIVE_MAX`].
const MORE: usize = 4;

/// Replays every trace on every pool, then draws the pictures and writes the results.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let inputs = input::find(&args.traces, args.device)?;
    check_outputs(args, &inputs)?;
    if args.least.least {
        let (rows, all) = input::for_each(&inputs, |input| least::rows(&args.least, input, args.min_size))?;
        let rows = rows.concat();
        report::write_rows(args, || least::text(&rows), &rows)?;
        return all;
    }
    let clock = Clock::new();
    let (replayed, all) = input::for_each(&inputs, |input| trace(args, input, &clock))?;
    let pictures = pictures(args, replayed.iter().map(|trace| &*trace.trace));
    let drawn = draw(args, &pictures, &replayed);
    let reported = report::write(args, &replayed);
    drawn?;
    reported.and_then(|()| report::paths(args, &pictures))?;
    all
}

/// Checks before the replay that all outputs can be written.
fn check_outputs(args: &ReplayArgs, inputs: &[TraceInput]) -> Result<(), Failure> {
    let (traces, most) = (inputs.len(), picture::PANELS_MAX);
    if args.picture.is_some() && traces > most {
        let text = format!("{traces} traces do not fit into one picture, the most is {most}; leave --picture out");
        return Err(Failure::Usage(text));
    }
    let pictures = pictures(args, inputs.iter().map(|input| &*input.name));
    let json = args.json.iter().filter(|_| !args.json_only());
    let outputs: Vec<&Path> = pictures.iter().chain(json).map(PathBuf::as_path).collect();
    input::refuse_overwrites(inputs, &outputs)?;
    outputs.iter().try_for_each(|path| Partial::probe(path).map_err(|error| Failure::output(path, error)))
}

/// Replays one trace on every pool, with as much room as it needs.
fn trace(args: &ReplayArgs, input: &TraceInput, clock: &Clock) -> Result<TraceResult, Failure> {
    let mut blocks = BLOCKS;
    loop {
        if let Some(replayed) = attempt(args, input, clock, blocks)? {
            return Ok(replayed);
        }
        blocks *= MORE;
    }
}

/// Replays one trace on every pool, a chunk at a time; `None` when more than `blocks` are live at once.
fn attempt(
    args: &ReplayArgs,
    input: &TraceInput,
    clock: &Clock,
    blocks: usize,
) -> Result<Option<TraceResult>, Failure> {
    let mut reader = OperationReader::new(input.open()?, args.min_size, args.streams == Switch::On);
    let again = reader.progress().1.is_some() && blocks < LIVE_MAX as usize;
    let room = if again { blocks } else { blocks.max(BLOCKS_ONCE) };
    let mut runs = Vec::new();
    for entry in pools::select(&args.pools) {
        let source = entry.source.unwrap_or(args.source);
        let setup = PoolSetup::new(source, args.capacity, args.fence_delay).with_blocks(room);
        runs.push(PoolReplay::new(&entry, &setup)?);
    }
    let length = reader.progress().1;
    let template = length.map_or("{spinner} {msg}", |_| "{msg} {bar:40} {bytes} of {total_bytes}, {eta} left");
    let bar = progress::bar(length, template).with_message(input.name.clone());
    let (mut chunk, mut timeline) = (Chunk::default(), Timeline::default());
    let (mut events, mut peak_live) = (0, 0);
    loop {
        reader.fill(&mut chunk, &timeline)?;
        if chunk.operations.is_empty() {
            break;
        }
        if again && chunk.slots > blocks {
            bar.finish_and_clear();
            return Ok(None);
        }
        for run in &mut runs {
            run.replay(&chunk, events, clock)?;
        }
        events += chunk.operations.len() as u64;
        peak_live = chunk.points.iter().map(|point| point.live).fold(peak_live, u64::max);
        timeline.extend(&chunk.points, runs.iter_mut().map(PoolReplay::reserved_mut));
        bar.set_position(reader.progress().0);
    }
    bar.finish_and_clear();
    input::tell_remark(&input.name, reader.remark());
    if events == 0 {
        return Err(nothing_left(&input.path, args.min_size));
    }
    let (mut rows, mut reserved) = (Vec::new(), Vec::new());
    for mut run in runs {
        reserved.push(std::mem::take(run.reserved_mut()));
        let failure = failure(&run);
        rows.push(PoolRow { failure, ..run.finish(&input.name, events, clock)? });
    }
    let points = timeline.points().to_vec();
    Ok(Some(TraceResult { trace: input.name.clone(), events, peak_live, points, rows, reserved }))
}

/// How many allocations failed and why the first did; `None` if none failed.
fn failure(run: &PoolReplay) -> Option<String> {
    let (failed, event, error) = run.failed()?;
    Some(format!("{}: {} failed, the first at event {event}: {error}", run.name(), format_thousands(failed)))
}

/// Paths of the pictures to draw: one for all traces, one for each trace, or none.
fn pictures<'a>(args: &ReplayArgs, names: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    match &args.picture {
        Some(path) => vec![path.clone()],
        None if args.json_only() || args.least.least => Vec::new(),
        None => names.map(|name| PathBuf::from(format!("replay-{name}.svg"))).collect(),
    }
}

/// Draws all traces into one picture, or each into its own.
fn draw(args: &ReplayArgs, pictures: &[PathBuf], replayed: &[TraceResult]) -> Result<(), Failure> {
    match pictures {
        [shared] => picture::draw(shared, replayed, args.source),
        each => each
            .iter()
            .zip(replayed)
            .try_for_each(|(path, trace)| picture::draw(path, std::slice::from_ref(trace), args.source)),
    }
}

#[cfg(test)]
mod tests;
