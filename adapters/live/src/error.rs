//! What goes wrong at either end.

use crate::layout::PageError;
use std::io;
use std::path::PathBuf;

/// Why counters cannot be published or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// A call of the system failed.
    #[error("{what}: {error}")]
    System {
        /// What the call was for.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The socket could not be made or reached.
    #[error("{}: {what}: {error}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Another program listens at the path.
    #[error("{}: another program publishes its counters here; choose another path", path.display())]
    InUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// The path exists and is no socket.
    #[error("{}: this exists and is no socket; choose another path", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The program behind the socket sent nothing in time.
    #[error("{}: the program behind this socket sent no counters within {seconds} s; it may be stopped", path.display())]
    Silent {
        /// The socket's path.
        path: PathBuf,
        /// How long the reader waited.
        seconds: u64,
    },
    /// What the program behind the socket sent is no descriptor.
    #[error("{}: what listens here sends no counters; give the socket of a program that uses terrace's live counters", path.display())]
    Foreign {
        /// The socket's path.
        path: PathBuf,
    },
    /// The descriptor's memory may shrink under a reader, or is too small.
    #[error("the descriptor is no sealed memory of counters, so that reading it could end this process")]
    Unsealed,
    /// The memory is no page of counters.
    #[error("{0}")]
    Page(#[from] PageError),
    /// Every row changed at each attempt to read it.
    #[error(
        "the counters changed at each of {} attempts; the program that writes them may have been killed in the middle",
        crate::TRIES
    )]
    Torn,
}

impl LiveError {
    /// The error of a system's call.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Self::System { what, error: error.into() }
    }
}
