//! The command's errors, and their exit codes.
//!
//! Promises upward: a message of one line that says what failed and what to do.
//! Asks from below: errors whose messages say so.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use terrace::recording::{Problem, TraceError};
use terrace_replay::PoolFailure;

/// An error that ends the command.
#[derive(Debug)]
pub enum Failure {
    /// A trace that cannot be read.
    Input(TraceError),
    /// Invalid arguments.
    Usage(String),
    /// A file that cannot be written.
    Output(PathBuf, String),
    /// An allocator broke its contract, or could not be created.
    Pool(PoolFailure),
    /// A device that cannot be used: its name as requested, and the reason.
    Device(String, String),
    /// A measurement failed; the text names the directory and says why.
    Measure(String),
    /// The reader of standard output closed it.
    BrokenPipe,
}

impl Failure {
    /// The error for a failed write to `path`.
    pub fn output(path: &Path, error: impl fmt::Display) -> Self {
        Self::Output(path.into(), error.to_string())
    }

    /// The error for a failed write to standard output.
    pub fn standard_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Output("standard output".into(), error.to_string()),
        }
    }

    /// The error for a trace that cannot be written: its format or the file refuses it.
    pub fn writing(path: &Path, error: TraceError) -> Self {
        match error.problem {
            Problem::Io(error) => Self::output(path, error),
            _ => Self::Input(error),
        }
    }

    /// The exit code.
    ///
    /// 1 for faults of the machine or the program, 2 for faults of the input, 0 for a closed pipe.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) | Self::Usage(_) => 2,
            Self::Output(..) | Self::Pool(_) | Self::Device(..) | Self::Measure(_) => 1,
            Self::BrokenPipe => 0,
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::Input(error)
    }
}

impl From<PoolFailure> for Failure {
    fn from(failure: PoolFailure) -> Self {
        Self::Pool(failure)
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
            Self::Pool(failure) => write!(f, "{failure}"),
            Self::Device(what, why) => write!(f, "{what}: {why}"),
            Self::BrokenPipe => write!(f, "standard output was closed"),
        }
    }
}

impl std::error::Error for Failure {}
