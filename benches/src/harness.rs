//! What every benchmark does.
//!
//! Promises upward: exit code 0, or 1 and a sentence on standard error when something failed; a progress bar there while it runs.
//! Asks from below: each benchmark's `run`.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A benchmark, as a function: its options, its executable, and where it prints to; the path of the JSON file, or a sentence.
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

/// A bar on standard error; nothing where that is no terminal.
pub(crate) fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed} of about {duration}  {wide_msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
