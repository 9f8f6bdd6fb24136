//! Arguments of `terrace report`.
//!
//! Promises upward: valid values.
//! Asks from below: the arguments that `replay` has too.

use clap::Args;
use std::path::PathBuf;
use terrace::config::parse_bytes;
use terrace_replay::pools::SourceKind;

const REPORT_HELP: &str = "\
Examples:
  terrace report train.csv.zst
  terrace report server.terrace --output server.html --perfetto server.json
  terrace report a.csv b.csv traces/ -o all.html

The page is one file that needs no network: memory over time, by tag too, an address map to scrub through, leaks, sizes and
lifetimes, transfers between tiers, and advice: settings that replay found better on the first half of the trace than what a
device has, with what they save.

A folder stands for the traces in it, and in its folders, by name: files that end in .csv, .terrace, .pickle, .pkl or .log, also
with .gz or .zst. Those that cannot be read are told and left out.

Exit codes: 0 done; 1 a file could not be written; 2 bad input or usage: one error that names file and line, and nothing
is written; also if a trace of a folder was left out.";

/// Arguments of `terrace report`.
#[derive(Args, Debug)]
#[command(after_help = REPORT_HELP)]
pub struct ReportArgs {
    /// Traces, or folders of them, all on one page; - for standard input.
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// The device of a snapshot of PyTorch whose history to take, by number [default: each that has one; of a pipe, the first].
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Where the page goes [default: TRACE.html, or report.html for several].
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where the replayed pool takes memory from: pages mapped under reserved addresses, or whole device allocations.
    #[arg(long, value_enum, default_value_t = SourceKind::Growing)]
    pub source: SourceKind,
    /// Leave out blocks allocated with fewer bytes than this.
    #[arg(long, value_name = "N", default_value = "0", value_parser = bytes)]
    pub min_size: u64,
    /// Leave out the advice, which replays the trace some twenty times.
    #[arg(long)]
    pub no_advice: bool,
    /// Where the page's data go as JSON; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to write counters and blocks for Perfetto, or chrome://tracing (of one trace).
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Where to write the memory at its peak for speedscope (of one trace).
    #[arg(long, value_name = "FILE")]
    pub speedscope: Option<PathBuf>,
    /// Where to write allocations and memory at the end for pprof (of one trace).
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|allowed| format!("give {allowed}"))
}
