//! What the simulated disk was asked and did, for people.

use super::fault::Fault;
use std::collections::VecDeque;
use std::fmt;
use terrace_file::{DiskRequest, StoreFile};

/// What kind of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "as `DiskRequest`; `List` is no order, but may fail")]
pub enum Kind {
    Create,
    Remove,
    SyncDirectory,
    Read,
    Write,
    Sync,
    List,
}

/// One order that completed.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Which one, counted as they complete.
    pub index: u64,
    /// What.
    pub kind: Kind,
    /// Of which file.
    pub file: Option<StoreFile>,
    /// From which byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What went wrong on purpose.
    pub fault: Option<Fault>,
    /// What was answered: bytes moved.
    pub answer: Option<usize>,
}

impl Line {
    pub(super) fn of(index: u64, order: &DiskRequest) -> Self {
        let (kind, file, offset, bytes) = match *order {
            DiskRequest::Create { file, bytes } => (Kind::Create, Some(file), 0, bytes),
            DiskRequest::Remove { file } => (Kind::Remove, Some(file), 0, 0),
            DiskRequest::SyncDirectory => (Kind::SyncDirectory, None, 0, 0),
            DiskRequest::Read { file, offset, bytes, .. } => (Kind::Read, Some(file), offset, bytes as u64),
            DiskRequest::Write { file, offset, bytes, .. } => (Kind::Write, Some(file), offset, bytes as u64),
            DiskRequest::Sync { file } => (Kind::Sync, Some(file), 0, 0),
        };
        Self { index, kind, file, offset, bytes, fault: None, answer: None }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:5} {:?}", self.index, self.kind)?;
        match self.file {
            Some(StoreFile::Superblock) => write!(f, " superblock")?,
            Some(StoreFile::Slab(number)) => write!(f, " slab {number}")?,
            Some(StoreFile::Log(number)) => write!(f, " log {number}")?,
            None => {}
        }
        if self.bytes > 0 {
            write!(f, " {:#x}+{:#x}", self.offset, self.bytes)?;
        }
        match self.answer {
            None => write!(f, " -> error")?,
            Some(moved) if self.kind == Kind::Read || self.kind == Kind::Write => write!(f, " -> {moved:#x}")?,
            Some(_) => write!(f, " -> ok")?,
        }
        match self.fault {
            Some(fault) => write!(f, "   <== {fault:?}"),
            None => Ok(()),
        }
    }
}

/// The last lines, and remarks between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    lines: VecDeque<String>,
    recent: VecDeque<Line>,
    /// All are kept, not only the last.
    pub(super) whole: bool,
}

/// Lines that a failure shows: some operations of a few orders each.
const SHOWN: usize = 60;

impl Log {
    pub(super) fn line(&mut self, line: Line) {
        self.recent.push_back(line);
        if !self.whole && self.recent.len() > SHOWN {
            self.recent.pop_front();
        }
    }

    /// A remark, in its place between the orders.
    pub(super) fn remark(&mut self, text: impl FnOnce() -> String) {
        if self.whole {
            self.flush();
            self.lines.push_back(text());
        }
    }

    fn flush(&mut self) {
        self.lines.extend(self.recent.drain(..).map(|line| line.to_string()));
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.recent.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
