//! The interface of an I/O engine: requests on slab files, and their completions.
//!
//! Promises upward: the engine owns a request's frame from [`Engine::submit`] to its [`Completion`]; each request has one.

use crate::executor::Driver;
use crate::fault::FileFault;
use crate::frame::Frame;
use crate::slab_file::SlabFile;
use std::sync::Arc;

/// Most bytes of one request: Linux moves at most 2^31 less a page in a call.
pub(crate) const MAX_IO_BYTES: usize = 0x7fff_f000;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads from the file into the front of the frame.
    Read,
    /// Writes the front of the frame to the file.
    Write,
    /// Makes all earlier writes to the file durable.
    Sync,
}

impl Op {
    /// The name that errors have for it.
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
    /// Returned with the completion.
    pub token: u64,
    /// The operation.
    pub op: Op,
    /// The file.
    pub slab: Arc<SlabFile>,
    /// First byte in the file; a multiple of the file's alignment.
    pub offset: u64,
    /// Number of bytes; a multiple of the file's alignment, at most the frame's length.
    pub bytes: usize,
    /// The memory; `None` for [`Op::Sync`].
    pub frame: Option<Frame>,
}

impl IoRequest {
    /// Whether the request is aligned and stays within its frame. An engine rejects one that is not: the kernel might perform a
    /// request that is not aligned through the page cache.
    pub(crate) fn is_valid(&self) -> bool {
        let room = self.frame.as_ref().map_or(0, |frame| frame.len());
        let align = u64::from(self.slab.align());
        let aligned = self.offset.is_multiple_of(align) && (self.bytes as u64).is_multiple_of(align);
        self.op == Op::Sync || (self.frame.is_some() && self.bytes <= room.min(MAX_IO_BYTES) && aligned)
    }

    /// Completes the request with the error of a forked child.
    pub(crate) fn reject_forked(mut self) -> Completion {
        let fault = FileFault::forked(self.op.call());
        Completion { token: self.token, frame: self.frame.take(), result: Err(fault) }
    }

    /// Completes the request with the error of one that is not valid.
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
    /// The request's frame.
    pub frame: Option<Frame>,
    /// Bytes moved, possibly fewer than requested.
    pub result: Result<usize, FileFault>,
}

/// Receives completions, on a thread of the engine or on the submitting thread. Must not panic.
pub trait CompletionHandler: Send + Sync + 'static {
    /// Takes one completion.
    fn completed(&self, completion: Completion);

    /// Does work that was deferred, while the device works on.
    ///
    /// Called on a thread of the engine after a batch of completions, and after [`Driver::wake`]. False: work is left; the engine
    /// submits what was requested, then calls again.
    fn run_deferred(&self) -> bool {
        true
    }
}

/// Performs requests, many at once, in any order.
///
/// As a [`Driver`] it has [`CompletionHandler::run_deferred`] called, and may let other threads perform requests.
pub trait Engine: Driver {
    /// Submits requests; each has one completion.
    fn submit(&self, requests: Vec<IoRequest>);

    /// The engine's name, for people.
    fn name(&self) -> &'static str;
}
