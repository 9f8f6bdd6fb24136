//! The interface of an I/O engine: requests on slab files, and their completions.
//!
//! Promises upward: the engine owns a request's frame from [`Engine::submit`] to its [`Completion`]; each request
//! completes exactly once.

use crate::executor::Driver;
use crate::fault::FileFault;
use crate::frame::Frame;
use crate::slab_file::SlabFile;
use std::sync::Arc;

/// The most bytes of one request: Linux reads or writes at most 2^31 bytes less a page in a call.
pub(crate) const MAX_IO_BYTES: usize = 0x7fff_f000;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads from the file into the first bytes of the frame.
    Read,
    /// Writes the first bytes of the frame to the file.
    Write,
    /// Makes all earlier writes to the file durable.
    Sync,
}

impl Op {
    /// The name of the operation in errors.
    pub(crate) fn call(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
        }
    }
}

/// A request to an engine.
#[derive(Debug)]
pub struct IoRequest {
    /// A number that the submitter chooses; the completion returns it.
    pub token: u64,
    /// What to do: read, write or sync.
    pub op: Op,
    /// The file to read, write or sync.
    pub slab: Arc<SlabFile>,
    /// Offset in the file at which the operation begins, in bytes; a multiple of the file's alignment.
    pub offset: u64,
    /// Number of bytes to read or write: a multiple of the file's alignment, at most the frame's length.
    pub bytes: usize,
    /// The memory to read into or to write from; `None` for [`Op::Sync`].
    pub frame: Option<Frame>,
}

impl IoRequest {
    /// Whether the request is aligned, stays within its frame, and reads into none that is only lent to be read. An engine must
    /// reject any other request: the kernel might silently perform an unaligned one through the page cache.
    pub(crate) fn is_valid(&self) -> bool {
        let room = self.frame.as_ref().map_or(0, |frame| frame.len());
        let align = u64::from(self.slab.align());
        let aligned = self.offset.is_multiple_of(align) && (self.bytes as u64).is_multiple_of(align);
        let refused = self.op == Op::Read && self.frame.as_ref().is_some_and(Frame::is_read_only);
        self.op == Op::Sync || (self.frame.is_some() && self.bytes <= room.min(MAX_IO_BYTES) && aligned && !refused)
    }

    /// Completes the request with an error, because it was submitted in a forked child.
    pub(crate) fn reject_forked(mut self) -> Completion {
        let fault = FileFault::forked(self.op.call());
        Completion { token: self.token, frame: self.frame.take(), result: Err(fault) }
    }

    /// Completes the request with an error, because it is not valid.
    pub(crate) fn reject(mut self) -> Completion {
        let fault = self.slab.fault("request", self.offset, rustix::io::Errno::INVAL.raw_os_error());
        Completion { token: self.token, frame: self.frame.take(), result: Err(fault) }
    }
}

/// The result of a request.
#[derive(Debug)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// The frame of the request, handed back.
    pub frame: Option<Frame>,
    /// Number of bytes read or written, possibly fewer than requested.
    pub result: Result<usize, FileFault>,
}

/// Receives completions, on a thread of the engine or on the submitting thread. Must not panic.
pub trait CompletionHandler: Send + Sync + 'static {
    /// Takes one completion.
    fn completed(&self, completion: Completion);

    /// Does work that [`completed`](Self::completed) deferred, while the device performs other requests.
    ///
    /// Called on a thread of the engine after a batch of completions, and after [`Driver::wake`]. Returns false if work
    /// is left: the engine then submits the requests made meanwhile, and calls again.
    fn run_deferred(&self) -> bool {
        true
    }
}

/// Performs requests, many at once, in any order.
///
/// As a [`Driver`] it calls [`CompletionHandler::run_deferred`] on its threads, and may let other threads perform
/// requests.
pub trait Engine: Driver {
    /// Submits requests; each completes exactly once.
    fn submit(&self, requests: Vec<IoRequest>);

    /// The name of the engine, for display.
    fn name(&self) -> &'static str;
}
