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
mod operations;
mod output;
mod picture;
mod pools;
mod replay;
mod report;
mod results;
mod system;
mod tiers;
mod timeline;

use args::{BenchCommand, Cli, Command, RecordCommand};
use clap::Parser;
use failure::Failure;
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
            output::print_error(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}
