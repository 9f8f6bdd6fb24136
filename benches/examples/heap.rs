//! `cargo xtask bench heap`: terrace's heap beside those that firmware has. See `--help`.

use clap::Parser;
use std::process::ExitCode;
use terrace_benches::heap::{command, options::Options};

fn main() -> ExitCode {
    let options = Options::parse();
    let done = std::env::current_exe()
        .map_err(|error| format!("this program's own path: {error}"))
        .and_then(|executable| command::run(&options, &executable, &mut std::io::stdout().lock()));
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
