//! `terrace replay`: traces on pools.
//!
//! Promises upward: all traces are read to their end before anything is written.
//! A trace that has more blocks live at once than the pools have room for is begun again with more room.
//! Asks from below: steps of a trace, pools by name, the report.

mod histogram;
mod pool_replay;

use crate::args::{ReplayArgs, Switch};
use crate::failure::Failure;
use crate::input;
use crate::operations::{Chunk, OperationReader};
use crate::picture;
use crate::pools::{self, PoolSetup};
use crate::report;
use crate::results::TraceResult;
use crate::timeline::Timeline;
use indicatif::{ProgressBar, ProgressStyle};
use pool_replay::PoolReplay;
use quanta::Clock;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use terrace::recording::{LIVE_MAX, Partial};

/// Blocks that pools have room for at first: half as many records as a default arena has, since holes take some too.
const BLOCKS: usize = 1 << 17;
/// The same where a trace cannot be read twice (a pipe): 2^19, at the price of 200 MiB an arena.
const BLOCKS_ONCE: usize = 1 << 19;
/// How much more room is made at a time: at most 3 new beginnings lead from 2^17 to [`LIVE_MAX`].
const MORE: usize = 4;

/// Replays every trace on every pool, then reports.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let names = input::names(&args.traces);
    let pictures = pictures(args, &names);
    check_outputs(args, &pictures)?;
    let clock = Clock::new();
    let mut replayed = Vec::new();
    for (path, name) in args.traces.iter().zip(names) {
        replayed.push(trace(args, path, name, &clock)?);
    }
    let drawn = draw(args, &pictures, &replayed);
    let reported = report::write(args, &replayed);
    drawn?;
    reported.and_then(|()| report::paths(args, &pictures))
}

/// What is wrong with the outputs is found out before the work, not after.
fn check_outputs(args: &ReplayArgs, pictures: &[PathBuf]) -> Result<(), Failure> {
    let (traces, most) = (args.traces.len(), picture::PANELS_MAX);
    if args.picture.is_some() && traces > most {
        let text = format!("{traces} traces do not fit into one picture, the most is {most}; leave --picture out");
        return Err(Failure::Usage(text));
    }
    let json = args.json.iter().filter(|_| !args.json_only());
    let outputs: Vec<&Path> = pictures.iter().chain(json).map(PathBuf::as_path).collect();
    input::refuse_overwrites(&args.traces, &outputs)?;
    outputs.iter().try_for_each(|path| Partial::probe(path).map_err(|error| Failure::output(path, error)))
}

/// Replays one trace on every pool, with as much room as it takes.
fn trace(args: &ReplayArgs, path: &Path, name: String, clock: &Clock) -> Result<TraceResult, Failure> {
    let mut blocks = BLOCKS;
    loop {
        if let Some(replayed) = attempt(args, path, &name, clock, blocks)? {
            return Ok(replayed);
        }
        blocks *= MORE;
    }
}

/// Replays one trace on every pool, a chunk at a time; `None` when more than `blocks` are live at once.
fn attempt(
    args: &ReplayArgs,
    path: &Path,
    name: &str,
    clock: &Clock,
    blocks: usize,
) -> Result<Option<TraceResult>, Failure> {
    let mut reader = OperationReader::new(input::open(path)?, args.min_size, args.streams == Switch::On);
    let again = reader.progress().1.is_some() && blocks < LIVE_MAX as usize;
    let room = if again { blocks } else { blocks.max(BLOCKS_ONCE) };
    let mut runs = Vec::new();
    for entry in pools::select(&args.pools) {
        let setup = PoolSetup::new(args.source, args.capacity, args.fence_delay).blocks(room);
        runs.push(PoolReplay::new(&entry, &setup)?);
    }
    let bar = bar(name, reader.progress().1);
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
    if events == 0 {
        return Err(Failure::Usage(nothing_left(path, args.min_size)));
    }
    let (mut rows, mut reserved) = (Vec::new(), Vec::new());
    let failures = runs.iter().filter_map(PoolReplay::failure).collect();
    for mut run in runs {
        reserved.push(std::mem::take(run.reserved_mut()));
        rows.push(run.finish(name, args.source, events, clock)?);
    }
    let points = timeline.points().to_vec();
    Ok(Some(TraceResult { trace: name.into(), events, peak_live, points, rows, reserved, failures }))
}

/// Why there is no event to replay.
fn nothing_left(path: &Path, min_size: u64) -> String {
    let path = path.display();
    match min_size {
        0 => format!("{path}: no event allocates, resizes or frees; record again with those switched on"),
        _ => format!("{path}: no event is left with --min-size {min_size}; give a smaller one"),
    }
}

/// The pictures to draw: one shared, one for each trace, or none.
fn pictures(args: &ReplayArgs, names: &[String]) -> Vec<PathBuf> {
    match &args.picture {
        Some(path) => vec![path.clone()],
        None if args.json_only() => Vec::new(),
        None => names.iter().map(|name| PathBuf::from(format!("replay-{name}.svg"))).collect(),
    }
}

fn draw(args: &ReplayArgs, pictures: &[PathBuf], replayed: &[TraceResult]) -> Result<(), Failure> {
    match pictures {
        [shared] => picture::draw(shared, replayed, args.source),
        each => each
            .iter()
            .zip(replayed)
            .try_for_each(|(path, trace)| picture::draw(path, std::slice::from_ref(trace), args.source)),
    }
}

/// Progress through a file; hidden unless standard error is a terminal.
fn bar(name: &str, bytes: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let form = "{msg} {bar:40} {bytes} of {total_bytes}, {eta} left";
    if let (Ok(style), true) = (ProgressStyle::with_template(form), bytes.is_some()) {
        bar.set_style(style);
    }
    bar.with_message(name.to_owned())
}
