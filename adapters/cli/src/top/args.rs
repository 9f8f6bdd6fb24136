//! Arguments of `terrace top`.

use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOP_HELP: &str = "\
Examples:
  terrace top -- python3 train.py
  terrace top --output server.log -- ./server --port 8080
  terrace top --once --interval 2000 -- ./program
  terrace top --json /run/user/1000/game.sock | jq '.rows[] | [.name, .in_use_bytes]'

PROGRAM runs on terrace's allocator: libterrace_malloc.so is preloaded, from beside this command or from --library. A SOCKET is one
that a program made by terrace_live::Publisher.

Keys: q quit (PROGRAM gets SIGTERM), p pause, s next column to sort by, r reverse, d write the frame to a JSON file, ? help.

Exit codes: that of PROGRAM (128 + n if signal n ended it); for a SOCKET 0; 1 the terminal cannot be used or the program behind the
socket sends nothing; 2 bad usage, or a program that cannot be preloaded.";

/// Arguments of `terrace top`.
#[derive(Args, Debug)]
#[command(after_help = TOP_HELP)]
pub struct TopArgs {
    /// Where a running program publishes its counters.
    #[arg(value_name = "SOCKET", required_unless_present = "program", conflicts_with = "program")]
    pub socket: Option<PathBuf>,
    /// The program to start, and its arguments.
    #[arg(value_name = "PROGRAM", last = true)]
    pub program: Vec<OsString>,
    /// Print one frame as text after one interval.
    #[arg(long)]
    pub once: bool,
    /// Print one frame as JSON after one interval.
    #[arg(long)]
    pub json: bool,
    /// Draw one frame after one interval, as a terminal of 100 columns and 30 lines shows it.
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    pub picture: Option<PathBuf>,
    /// Milliseconds between two frames.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub interval: u64,
    /// Where PROGRAM's output goes, in place of a pane; with --once in place of standard error.
    #[arg(long, value_name = "FILE", requires = "program")]
    pub output: Option<PathBuf>,
    /// libterrace_malloc.so [default: the one beside this command].
    #[arg(long, value_name = "PATH", requires = "program")]
    pub library: Option<PathBuf>,
}

impl TopArgs {
    /// Whether one frame is printed or drawn, and no terminal is needed.
    pub fn is_once(&self) -> bool {
        self.once || self.json || self.picture.is_some()
    }

    /// Time between two frames.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval)
    }
}

fn svg(text: &str) -> Result<PathBuf, String> {
    let is_svg = Path::new(text).extension().is_some_and(|end| end == "svg");
    if is_svg { Ok(text.into()) } else { Err("end the name in .svg".into()) }
}
