//! What is asked of a disk, and what comes of it.
//!
//! Promises upward: a frame belongs to the engine from [`Engine::submit`] until its [`Completion`]; every request has one.

use crate::executor::Driver;
use crate::fault::FileFault;
use crate::frame::Frame;
use crate::slab_file::SlabFile;
use std::sync::Arc;

/// Bytes that the system moves at once, at most: it counts them in 32 bits, and stops a page short of 2^31.
pub(crate) const MAX_IO_BYTES: usize = 0x7fff_f000;

/// What to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the frame's first bytes from the file.
    Read,
    /// Write the frame's first bytes to the file.
    Write,
    /// Let everything that was written to the file before survive a power cut.
    Sync,
}

impl Op {
    /// As errors name it.
    pub(crate) fn call(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
        }
    }
}

/// One thing to do.
#[derive(Debug)]
pub struct IoRequest {
    /// Given back with the completion.
    pub token: u64,
    /// What.
    pub op: Op,
    /// Which file.
    pub slab: Arc<SlabFile>,
    /// First byte in the file; a multiple of the slab's alignment.
    pub offset: u64,
    /// Bytes; a multiple of the slab's alignment, at most the frame's.
    pub bytes: usize,
    /// The memory. `None` for [`Op::Sync`].
    pub frame: Option<Frame>,
}

impl IoRequest {
    /// Whether it stays inside its frame and is aligned: else it is refused before the system sees it, which may take what is
    /// not aligned by way of the page cache.
    pub(crate) fn is_valid(&self) -> bool {
        let room = self.frame.as_ref().map_or(0, |frame| frame.len());
        let align = u64::from(self.slab.align());
        let aligned = self.offset.is_multiple_of(align) && (self.bytes as u64).is_multiple_of(align);
        self.op == Op::Sync || (self.frame.is_some() && self.bytes <= room.min(MAX_IO_BYTES) && aligned)
    }

    /// The refusal in a forked child.
    pub(crate) fn reject_forked(mut self) -> Completion {
        let fault = FileFault::forked(self.op.call());
        Completion { token: self.token, frame: self.frame.take(), result: Err(fault) }
    }

    /// The refusal.
    pub(crate) fn reject(mut self) -> Completion {
        let fault = self.slab.fault("request", self.offset, rustix::io::Errno::INVAL.raw_os_error());
        Completion { token: self.token, frame: self.frame.take(), result: Err(fault) }
    }
}

/// What came of a request.
#[derive(Debug)]
pub struct Completion {
    /// As in the request.
    pub token: u64,
    /// The memory back.
    pub frame: Option<Frame>,
    /// Bytes moved, which may be fewer than were asked for.
    pub result: Result<usize, FileFault>,
}

/// Told of completions, on a thread of the engine's or on the submitter's. It does not panic.
pub trait CompletionHandler: Send + Sync + 'static {
    /// A request is over.
    fn completed(&self, completion: Completion);

    /// On a thread of the engine's, after completions were told there and after [`Driver::wake`]: the disk works meanwhile,
    /// so that what takes time belongs here. False: there is more to do; what was asked of the engine goes to the disk first.
    fn run_deferred(&self) -> bool {
        true
    }
}

/// Does requests, many at once, in any order. As a [`Driver`] it has [`CompletionHandler::run_deferred`] called, and may be helped with requests.
pub trait Engine: Driver {
    /// Takes requests; each ends by one completion.
    fn submit(&self, requests: Vec<IoRequest>);

    /// What it is, for people.
    fn name(&self) -> &'static str;
}
