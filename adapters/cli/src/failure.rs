//! Why the command stops, and with which exit code.
//!
//! Promises upward: one line of text that says what and what to do.
//! Asks from below: errors that say the same.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use terrace::recording::{Problem, TraceError};

/// Why the command stops.
#[derive(Debug)]
pub enum Failure {
    /// A trace that cannot be read.
    Input(TraceError),
    /// Arguments that make no sense together.
    Usage(String),
    /// A file that cannot be written.
    Output(PathBuf, String),
    /// An allocator broke its contract, or could not be made.
    Pool {
        /// Its name.
        pool: &'static str,
        /// What happened.
        what: String,
    },
    /// A device that cannot be used: what was asked of it, and why not.
    Device(String, String),
    /// A directory in which nothing can be measured; the text says which, why, and what to do.
    Measure(String),
    /// Nobody reads standard output any more.
    ReaderGone,
}

impl Failure {
    /// A failed write to `path`.
    pub fn output(path: &Path, error: impl fmt::Display) -> Self {
        Self::Output(path.into(), error.to_string())
    }

    /// A failed write to standard output.
    pub fn standard_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Output("standard output".into(), error.to_string()),
        }
    }

    /// A failed write of a trace: the trace cannot be expressed, or the file cannot be written.
    pub fn writing(path: &Path, error: TraceError) -> Self {
        match error.problem {
            Problem::Io(error) => Self::output(path, error),
            _ => Self::Input(error),
        }
    }

    /// 1 where the machine or the program is at fault, 2 where what was given is.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Usage(_) => 2,
            Self::Output(..) | Self::Pool { .. } | Self::Device(..) | Self::Measure(_) => 1,
            Self::ReaderGone => 0,
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::Input(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => write!(f, "{error}"),
            Self::Usage(text) | Self::Measure(text) => write!(f, "{text}"),
            Self::Output(path, error) => {
                write!(f, "{}: cannot write: {error}; give a path that can be written", path.display())
            }
            Self::Pool { pool, what } => {
                write!(f, "pool {pool}: {what}; this is a fault of the pool, please report it")
            }
            Self::Device(what, why) => write!(f, "{what}: {why}"),
            Self::ReaderGone => write!(f, "standard output was closed"),
        }
    }
}

impl std::error::Error for Failure {}
