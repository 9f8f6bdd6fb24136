//! The `terrace` command.
//!
//! Promises upward: results on standard output; progress and errors on standard error, one line an error. Exit
//! codes: 0 done (also when the reader of standard output went away), 1 something could not be written or an
//! allocator misbehaved, 2 bad input or usage. After bad input nothing is written at all.
//! Asks from below: `terrace` for recordings, the pools of the registry.
#![deny(unsafe_code)]

mod args;
mod convert;
mod doctor;
mod failure;
mod gpu;
mod input;
mod picture;
mod pools;
mod replay;
mod report;
mod steps;
mod system;
mod tiers;
mod timeline;

use args::{BenchCommand, Cli, Command, RecordCommand};
use clap::Parser;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Record(RecordCommand::Convert { input, output }) => convert::run(&input, &output),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tiers(args) => tiers::run(&args),
        Command::Bench(BenchCommand::Gpu(args)) => gpu::run(&args),
    };
    match done {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Writes a line to standard error, its control characters (names of files may hold some) escaped. When that cannot be
/// written either, the exit code is all that is left to say.
fn say(text: &str) {
    let mut line = String::from("terrace: ");
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.push('\n');
    let _ = std::io::stderr().write_all(line.as_bytes());
}
