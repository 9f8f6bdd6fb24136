//! What every benchmark does: it measures, keeps, draws and prints.
//!
//! Promises upward: exit code 0, or 1 and a sentence on standard error when something failed; a progress bar there while it
//! runs; tables on the given output; two files, whose paths are printed.
//! Asks from below: each benchmark's `run`.

use crate::results::{Header, beside, keep};
use clap::Parser;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A benchmark: its options, its executable, and where it prints to; the path of the JSON file, or a sentence.
pub type Benchmark<O> = fn(&O, &Path, &mut dyn Write) -> Result<Option<PathBuf>, String>;

/// A benchmark's `main`: its options are the words that the user typed.
pub fn main<O: Parser>(run: Benchmark<O>) -> ExitCode {
    let options = O::parse();
    let done = std::env::current_exe()
        .map_err(|error| format!("this program's own path: {error}"))
        .and_then(|executable| run(&options, &executable, &mut std::io::stdout().lock()));
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A bar on standard error until it is dropped, nothing where that is no terminal: it is told what comes next.
pub(crate) fn progress(steps: usize) -> impl FnMut(&str) {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed} of about {duration}  {wide_msg}");
    let bar = ProgressBar::new(steps as u64).with_finish(ProgressFinish::AndClear);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    move |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    }
}

/// Keeps results, draws them where `draw` finds enough in them, and prints them: as tables, or the raw data without
/// `print`. Returns the path of the JSON file.
pub(crate) fn report<R: Serialize>(
    results: &R,
    header: &Header,
    folder: &Path,
    draw: fn(&R, &Path) -> Result<bool, String>,
    print: Option<fn(&R) -> String>,
    out: &mut dyn Write,
) -> Result<Option<PathBuf>, String> {
    let stem = keep(results, header, folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (json, svg) = (beside(&stem, "json"), beside(&stem, "svg"));
    let drawn = draw(results, &svg).map_err(|error| format!("{}: {error}", svg.display()))?;
    let picture = if drawn { format!("\npicture:  {}", svg.display()) } else { String::new() };
    let text = match print {
        Some(print) => format!("{}\nraw data: {}{picture}", print(results), json.display()),
        None => serde_json::to_string_pretty(results).map_err(|error| error.to_string())?,
    };
    writeln!(out, "{text}").map_err(|error| format!("standard output: {error}"))?;
    Ok(Some(json))
}
