//! `terrace report`: what a trace says, as one page that needs no network, and as files for other viewers.
//!
//! Promises upward: all traces are read to their end before anything is written; each file is complete or absent. Memory is 48 bytes
//! an event of the longest trace, and what the pools take.
//! Asks from below: recordings, the replayed pool.
//!
//! ```text
//! Trace ──► gather: two replays ──► TraceData ──┐
//!   │ ────► advice: replays of parts ──► SettingAdvice ┴─► page (HTML), --json
//!   └─────► export: Perfetto, speedscope, pprof
//! ```

mod advice;
mod args;
mod data;
mod export;
mod gather;
mod map;
mod page;
mod pool;
mod trace;

use crate::failure::Failure;
use crate::input;
use crate::output::{self, format_bytes, format_thousands};
pub use args::ReportArgs;
use data::{PageData, TraceData};
use std::path::{Path, PathBuf};
use terrace::recording::Partial;
use trace::Trace;

/// Reads the traces, and writes the page and what else was asked for.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let inputs = input::find(&args.traces, args.device)?;
    let output = args.output.clone().unwrap_or_else(|| match &inputs[..] {
        [one] => PathBuf::from(format!("{}.html", one.name)),
        _ => PathBuf::from("report.html"),
    });
    if output.as_os_str() == "-" {
        return Err(Failure::Usage("--output -: the page goes to a file; give its name".into()));
    }
    let exports = [&args.perfetto, &args.speedscope, &args.pprof];
    if inputs.len() > 1 && exports.iter().any(|path| path.is_some()) {
        return Err(Failure::Usage("--perfetto, --speedscope and --pprof take one trace; give one".into()));
    }
    let json = args.json.as_ref().filter(|path| path.as_os_str() != "-");
    let outputs: Vec<&Path> = [Some(&output), json]
        .into_iter()
        .flatten()
        .chain(exports.into_iter().flatten())
        .map(PathBuf::as_path)
        .collect();
    input::refuse_overwrites(&inputs, &outputs)?;
    outputs.iter().try_for_each(|path| Partial::probe(path).map_err(|error| Failure::output(path, error)))?;
    let mut files: Vec<(&Path, Vec<u8>)> = Vec::new();
    let (traces, all) = input::for_each(&inputs, |input| {
        let trace = Trace::read(input, args.min_size)?;
        let mut data = gather::gather(&trace, args.source)?;
        if !args.no_advice {
            data.advice.extend(advice::best(&trace, args.source)?.map(|(_, advice)| advice));
        }
        data.no_advice = data.advice.is_empty().then(|| why_none(args.no_advice, &data));
        if let Some(path) = &args.perfetto {
            files.push((path, export::perfetto(&trace, &data)));
        }
        if let Some(path) = &args.speedscope {
            files.push((path, export::speedscope(&trace, &data)));
        }
        if let Some(path) = &args.pprof {
            files.push((path, export::pprof(&trace).map_err(|error| Failure::output(path, error))?));
        }
        Ok(data)
    })?;
    let data = PageData { version: env!("CARGO_PKG_VERSION"), source: args.source.name(), traces };
    let text = page::page(&data)?;
    files.push((&output, text.into_bytes()));
    let json_text = args.json.as_ref().map(|_| output::json(&data)).transpose()?;
    files.extend(json.zip(json_text.as_ref()).map(|(path, text)| (path.as_path(), text.clone().into_bytes())));
    files
        .iter()
        .try_for_each(|(path, text)| output::write_file(path, text).map_err(|error| Failure::output(path, error)))?;
    if let (None, Some(text)) = (json, json_text) {
        output::print(&text)?;
    } else {
        let lines = data.traces.iter().map(summary).collect::<String>();
        output::print(&format!("{lines}{}\n", output.display()))?;
    }
    all
}

/// Events below which a trace says nothing of settings.
const SHORT: u64 = 16;

/// Why a trace has no advice.
fn why_none(left_out: bool, trace: &TraceData) -> &'static str {
    if left_out {
        "Advice was left out (--no-advice)."
    } else if trace.failed > 0 {
        "Allocations failed in the replay, so no settings were compared."
    } else if trace.events < SHORT {
        "The trace is too short to compare settings."
    } else {
        "Nothing to change: no setting that was tried was better than the usual ones on all parts of the end of the trace's \
         first half."
    }
}

/// A trace in a few lines.
fn summary(trace: &TraceData) -> String {
    let (live, reserved) = (format_bytes(trace.peak_live_bytes), format_bytes(trace.peak_reserved_bytes));
    let mut text = format!(
        "{}: {} events, {live} live at most in {reserved} reserved, {} live at the end\n",
        output::escape(&trace.name),
        format_thousands(trace.events),
        format_bytes(trace.live_at_end_bytes),
    );
    if trace.failed > 0 {
        text += &format!("  {} allocations failed in the replay\n", format_thousands(trace.failed));
    }
    for advice in &trace.advice {
        text += &format!("  {}: {}\n", advice.title, advice.why);
    }
    text
}
