//! `terrace replay`: traces on pools.
//!
//! Promises upward: all traces are read to their end before anything is written.
//! Asks from below: steps of a trace, pools by name, the report.

mod run;
mod ticks;

use crate::args::{ReplayArgs, Switch};
use crate::failure::Failure;
use crate::picture;
use crate::pools::{self, Setup};
use crate::report::{self, Row};
use crate::steps::{Chunk, Steps};
use crate::timeline::{Point, Timeline};
use indicatif::{ProgressBar, ProgressStyle};
use quanta::Clock;
use run::Run;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use terrace::recording::{Partial, Reader};

/// What came of a trace.
pub struct Replayed {
    /// Name of the trace: the file's, without what says its form.
    pub trace: String,
    /// What was replayed, after `--min-size`.
    pub events: u64,
    /// Highest live requested bytes of the trace.
    pub peak_live: u64,
    /// Live memory over time.
    pub points: Vec<Point>,
    /// One for each pool.
    pub rows: Vec<Row>,
    /// Reserved bytes at each point, one for each pool.
    pub reserved: Vec<Vec<u64>>,
}

/// Replays every trace on every pool, then reports.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let pictures = pictures(args);
    for path in pictures.iter().chain(args.json.iter().filter(|_| !args.json_only())) {
        // Whether a place can be written is found out before the work, not after.
        Partial::probe(path).map_err(|error| Failure::output(path, error))?;
    }
    let clock = Clock::new();
    let names = unique(args.traces.iter().map(|path| stem(path)));
    let mut replayed = Vec::new();
    for (path, name) in args.traces.iter().zip(names) {
        replayed.push(trace(args, path, name, &clock)?);
    }
    let drawn = draw(args, &pictures, &replayed);
    report::write(args, &replayed)?;
    report::paths(args, &pictures[..if drawn.is_ok() { pictures.len() } else { 0 }])?;
    drawn
}

/// Replays one trace on every pool, a chunk at a time.
fn trace(args: &ReplayArgs, path: &Path, name: String, clock: &Clock) -> Result<Replayed, Failure> {
    let mut steps = Steps::new(Reader::open(path)?, args.min_size, args.streams == Switch::On);
    let mut runs = Vec::new();
    for entry in pools::select(&args.pools) {
        let setup = Setup::new(args.source, args.capacity.unwrap_or(0), args.fence_delay);
        runs.push(Run::new(&entry, &setup)?);
    }
    let bar = bar(&name, steps.progress().1);
    let (mut chunk, mut timeline) = (Chunk::default(), Timeline::default());
    let (mut events, mut peak_live) = (0, 0);
    loop {
        steps.fill(&mut chunk, &timeline)?;
        if chunk.steps.is_empty() {
            break;
        }
        for run in &mut runs {
            run.replay(&chunk, events, clock)?;
        }
        events += chunk.steps.len() as u64;
        peak_live = chunk.points.iter().map(|point| point.live).fold(peak_live, u64::max);
        timeline.extend(&chunk.points, runs.iter_mut().map(Run::reserved_mut));
        bar.set_position(steps.progress().0);
    }
    bar.finish_and_clear();
    if events == 0 {
        let text =
            format!("{}: no event is left with --min-size {}; give a smaller one", path.display(), args.min_size);
        return Err(Failure::Usage(text));
    }
    let (mut rows, mut reserved) = (Vec::new(), Vec::new());
    for mut run in runs {
        reserved.push(std::mem::take(run.reserved_mut()));
        rows.push(run.finish(&name, args.source, events, clock)?);
    }
    Ok(Replayed { trace: name, events, peak_live, points: timeline.points().to_vec(), rows, reserved })
}

/// The pictures to draw: one shared, one for each trace, or none.
fn pictures(args: &ReplayArgs) -> Vec<PathBuf> {
    match &args.picture {
        Some(path) => vec![path.clone()],
        None if args.json_only() => Vec::new(),
        None => {
            let names = unique(args.traces.iter().map(|path| stem(path)));
            names.into_iter().map(|name| PathBuf::from(format!("replay-{name}.svg"))).collect()
        }
    }
}

fn draw(args: &ReplayArgs, pictures: &[PathBuf], replayed: &[Replayed]) -> Result<(), Failure> {
    match pictures {
        [shared] => picture::draw(shared, replayed, args.source),
        each => each
            .iter()
            .zip(replayed)
            .try_for_each(|(path, trace)| picture::draw(path, std::slice::from_ref(trace), args.source)),
    }
}

/// The file's name without directories and without what says its form.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut name: &str = &name;
    for end in [".gz", ".zst", ".csv", ".terrace"] {
        name = name.strip_suffix(end).unwrap_or(name);
    }
    if name.is_empty() { "trace".into() } else { name.into() }
}

/// The same names, those that come again with a number.
fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashMap::<String, u32>::new();
    names
        .map(|name| {
            let times = seen.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 { name } else { format!("{name}-{times}") }
        })
        .collect()
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
