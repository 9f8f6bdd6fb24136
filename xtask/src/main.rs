//! `cargo xtask`: every test of the project on this machine, with its set-up, and the benchmarks.
//!
//! Promises upward: `cargo xtask test` ends its standard output with exactly `N passed, N failed, N skipped`,
//! and its exit status is not 0 when something failed. What cannot run here is skipped by name, with what to
//! install. Nothing is installed without `--install`.
//! Asks from below: `cargo` on the path; everything else is looked for.

mod bench;
mod checks;
mod command;
mod firmware;
mod install;
mod libtest;
mod marks;
mod options;
mod report;
mod rules;
mod seeds;
mod sources;
mod steps;

use options::{Options, Task};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let code = match options::parse(&words) {
        Ok(Task::Help) => {
            print!("{}", options::HELP);
            0
        }
        Ok(Task::List) => {
            for step in steps::STEPS {
                println!("{:<10} {}", step.name, step.what);
            }
            0
        }
        Ok(Task::Test(options)) => test(&options),
        Ok(Task::Search { minutes }) => match firmware::search(&minutes) {
            Ok(()) => 0,
            Err(why) => {
                eprintln!("error: {why}");
                1
            }
        },
        Ok(Task::Bench { name, arguments }) => bench::run(&name, &arguments),
        Err(message) => {
            eprintln!("error: {message}\n\n{}", options::HELP);
            2
        }
    };
    ExitCode::from(code)
}

/// Runs the chosen steps in order and prints the summary. 0 when nothing failed.
fn test(options: &Options) -> u8 {
    let mut report = report::Report::default();
    for step in steps::STEPS {
        if options.wants(step) {
            report.step(step.name, step.what, |report| (step.run)(options, report));
        }
    }
    report.finish();
    u8::from(report.failed() > 0)
}
