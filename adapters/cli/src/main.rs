//! The `terrace` command.
//!
//! Promises upward: results on standard output; progress and errors on standard error, one line per error. Exit codes:
//! 0 done (also when the reader of standard output closed it; `top`: what its program says), 1 a write failed, a device cannot be used or an
//! allocator is faulty, 2 bad input or usage. After bad input the command writes no results.
//! Asks from below: `terrace` for recordings and devices, the table of pools.
#![deny(unsafe_code)]

mod args;
mod config;
mod convert;
mod describe;
mod doctor;
mod estimate;
mod failure;
mod gpu;
mod input;
mod least;
mod operations;
mod output;
mod picture;
mod progress;
mod replay;
mod report;
mod results;
#[cfg(target_os = "linux")]
mod shm;
mod system;
mod tiers;
#[cfg(target_os = "linux")]
mod top;
mod trace_report;

use args::{BenchCommand, Cli, Command, RecordCommand};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => trace_report::run(&args),
        Command::Record(RecordCommand::Convert { input, output, json }) => convert::run(&input, &output, json),
        Command::Doctor(args) => doctor::run(&args),
        Command::Estimate(args) => estimate::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Tiers(args) => tiers::run(&args),
        #[cfg(target_os = "linux")]
        Command::Top(args) => match top::run(&args) {
            Ok(code) => return ExitCode::from(code),
            Err(failure) => Err(failure),
        },
        #[cfg(target_os = "linux")]
        Command::Shm(args) => shm::run(&args),
        Command::Bench(BenchCommand::Gpu(args)) => gpu::run(&args),
        Command::Completions { shell } => describe::completions(shell),
        Command::Man { folder } => describe::man(folder.as_deref()),
    };
    match done {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            output::print_error(&failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}
