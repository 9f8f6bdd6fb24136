//! Errors of traces: each names the file, the place in it, the problem, and what to do.
//!
//! Promises upward: an error is shown as one line of text, without control characters from the file.
//! Asks from below: nothing.

use super::pickle::name_of_code;
use super::rmm::LOG_HEADER;
use super::{ALIGN_MAX, HEADER, LINE_MAX, LIVE_MAX, SIZE_MAX, TEXTS_MAX, WINDOW_LOG};
use std::fmt;
use std::io;
use terrace_core::event::{DecodeError, EncodeError, VERSION};

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// The line of a CSV with this number, counted from 1 (the header).
    Line(u64),
    /// The record of a recording, or the entry of a snapshot's history, with this number, counted from 1.
    Record(u64),
    /// The byte of a pickle at this offset, counted from 0.
    Byte(u64),
}

/// A trace that could not be read or written.
#[derive(Debug)]
pub struct TraceError {
    /// The file, as the user named it.
    pub file: String,
    /// The place in the file.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

impl TraceError {
    /// The system's error for a file as a whole.
    pub(super) fn io(file: impl Into<String>, error: io::Error) -> Self {
        Self { file: file.into(), place: Place::File, problem: Problem::Io(error) }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::File => write!(f, "{}: {}", self.file, self.problem),
            Place::Line(line) => write!(f, "{}:{line}: {}", self.file, self.problem),
            Place::Record(record) => write!(f, "{}: record {record}: {}", self.file, self.problem),
            Place::Byte(byte) => write!(f, "{}: byte {byte}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) | Problem::Archive(_, error) => Some(error),
            _ => None,
        }
    }
}

/// What is wrong with a trace. Texts from the file are shown escaped, and cut to 40 characters.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The system refused to open, read or write.
    Io(io::Error),
    /// The file has no bytes.
    Empty,
    /// The file has a header and no events.
    NoEvents,
    /// The file, of this kind of archive (gzip, zstd, recording), ends too early.
    CutShort(&'static str),
    /// The archive, of this kind, is damaged, or its decompression window is too large.
    Archive(&'static str, io::Error),
    /// The first line is no header of CSV, and the file is of no other known form.
    Header(String),
    /// A line has this number of columns instead of 7.
    Columns(usize),
    /// A column that needs a number has other text: name of the column, and its text.
    Number(&'static str, String),
    /// A number is larger than its column allows: name of the column, and its text.
    TooLarge(&'static str, String),
    /// The operation of a line is not `a`, `r` or `f`.
    Operation(String),
    /// A free has a size or alignment: name of the column, and its text.
    NotEmpty(&'static str, String),
    /// A line is not UTF-8.
    NotUtf8,
    /// A line has a NUL byte.
    Nul,
    /// A line has a carriage return.
    CarriageReturn,
    /// A line or tag is longer than allowed.
    LongLine,
    /// The last line has no line end.
    NoLineEnd,
    /// A request is for zero bytes.
    ZeroSize,
    /// A size is above [`SIZE_MAX`].
    HugeSize(u64),
    /// An alignment is no power of two, or above [`ALIGN_MAX`].
    BadAlign(u64),
    /// An event has an earlier time than the event before it: its time, and that of the event before.
    TimeBack(u64, u64),
    /// An allocation has another id than the next in sequence: its id, and the next.
    OutOfSequence(u64, u64),
    /// An event names an id that was not allocated before.
    UnknownId(u64),
    /// A block is freed a second time.
    DoubleFree(u64),
    /// A block is reallocated or transferred after it was freed.
    UseAfterFree(u64),
    /// More than [`LIVE_MAX`] blocks, or more than 2^62 bytes, are live at once.
    TooMuchLive,
    /// Tags and call sites take more than [`TEXTS_MAX`] bytes.
    TooManyTexts,
    /// The recording has this version, which this program cannot read.
    Version(u8),
    /// A recording has bytes that are no record.
    Record(DecodeError),
    /// An event names a text that was not defined before it, or a definition has another id than the next.
    TextId(u32),
    /// A tag has a comma, a line end or a NUL byte, which CSV cannot hold.
    TagNotCsv(String),
    /// An event cannot be encoded as a record.
    Unwritable(EncodeError),
    /// A line of RMM's log has this number of columns instead of 6.
    LogColumns(usize),
    /// A column of RMM's log has an unknown text: name of the column, and its text.
    LogField(&'static str, String),
    /// The pickle has this protocol, which this program cannot read.
    PickleProtocol(u8),
    /// The pickle has this opcode, which plain data does not need: it may run code.
    PickleOpcode(u8),
    /// The pickle is damaged: what is wrong.
    Pickle(&'static str),
    /// The pickle takes more memory than 64 MiB and 16 times the file.
    PickleMemory,
    /// The pickle is no snapshot of PyTorch's memory: what is missing.
    NoSnapshot(&'static str),
    /// A snapshot has no history of this device, or (`None`) of any; the devices that have one.
    NoHistory(Option<u32>, Vec<usize>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}; check the path and its permissions"),
            Self::Empty => write!(f, "the file is empty; record it again"),
            Self::NoEvents => write!(f, "no events after the header; record it again"),
            Self::CutShort(kind) => write!(f, "the {kind} is cut short; copy or record it again"),
            Self::Archive(kind, error) => write!(
                f,
                "the {kind} is damaged or needs a window above {} MiB ({error}); copy it again or recompress it",
                1 << (WINDOW_LOG - 20)
            ),
            Self::Header(text) if text.starts_with('\u{feff}') => {
                write!(f, "a byte order mark before the header; save the file as UTF-8 without one")
            }
            Self::Header(text) => write!(
                f,
                "the first line is `{}`, not `{HEADER}`; give a CSV (plain, gzip or zstd), a terrace recording, a snapshot of PyTorch or a log of RMM",
                quote(text)
            ),
            Self::Columns(n) => write!(f, "{n} columns instead of 7; write `{HEADER}`, without quotes"),
            Self::Number(column, text) => write!(
                f,
                "`{}` in column {column} is not a whole number; write digits only, no sign, no leading zero",
                quote(text)
            ),
            Self::TooLarge(column, text) => write!(
                f,
                "`{}` in column {column} is absurd; the most is {}",
                quote(text),
                match *column {
                    "stream" => u32::MAX.into(),
                    "size" => SIZE_MAX,
                    "align" => ALIGN_MAX,
                    _ => u64::MAX,
                }
            ),
            Self::Operation(text) => write!(f, "operation `{}` is unknown; write a, r or f", quote(text)),
            Self::NotEmpty(column, text) => {
                write!(f, "a free has `{}` in column {column}; leave it empty", quote(text))
            }
            Self::NotUtf8 => write!(f, "not UTF-8 text; convert the file to UTF-8"),
            Self::Nul => write!(f, "a NUL byte; the file is damaged or not text"),
            Self::CarriageReturn => write!(f, "a carriage return; write LF line ends (tr -d '\\r')"),
            Self::LongLine => write!(f, "the line is longer than {LINE_MAX} bytes; shorten the tag"),
            Self::NoLineEnd => write!(f, "the last line has no line end: the file is cut short; copy it again"),
            Self::ZeroSize => write!(f, "size 0; sizes are at least 1 byte"),
            Self::HugeSize(size) => write!(f, "size {size} is absurd; the most is {SIZE_MAX} bytes (256 TiB)"),
            Self::BadAlign(align) => {
                write!(f, "alignment {align} is not a power of two from 1 to {ALIGN_MAX}; correct it")
            }
            Self::TimeBack(time, before) => {
                write!(f, "time goes back from {before} to {time} us; sort the events by time")
            }
            Self::OutOfSequence(id, next) => {
                write!(f, "allocation id {id} is out of sequence, the next is {next}; number them 0, 1, 2, ...")
            }
            Self::UnknownId(id) => write!(f, "unknown id {id}: nothing was allocated with it so far; correct the id"),
            Self::DoubleFree(id) => write!(f, "double free: block {id} was freed before; drop the second free"),
            Self::UseAfterFree(id) => write!(f, "block {id} was freed before this; correct the id"),
            Self::TooMuchLive => {
                write!(f, "more than {LIVE_MAX} blocks or 2^62 bytes live at once; cut the trace into windows")
            }
            Self::TooManyTexts => {
                write!(f, "tags take more than {} MiB; put fewer different texts into tags", TEXTS_MAX >> 20)
            }
            Self::Version(version) => {
                write!(f, "recording version {version}, this program reads {VERSION}; use a matching terrace")
            }
            Self::Record(error) => write!(f, "{error}; the recording is damaged, record it again"),
            Self::TextId(id) => write!(f, "text {id} is not defined here; the recording is damaged, record it again"),
            Self::TagNotCsv(tag) => {
                write!(
                    f,
                    "tag `{}` has a comma, line end or NUL, which CSV cannot hold; keep the recording",
                    quote(tag)
                )
            }
            Self::Unwritable(error) => write!(f, "the event cannot be written: {error}"),
            Self::LogColumns(n) => write!(f, "{n} columns instead of the 6 of RMM's log: `{LOG_HEADER}`"),
            Self::LogField(column, text) => write!(
                f,
                "`{}` in column {column} is none of RMM's: times are 12:34:56.000001, actions allocate, free and allocate failure, \
                 pointers 0x7f00, sizes and streams numbers",
                quote(text)
            ),
            Self::PickleProtocol(protocol) => {
                write!(
                    f,
                    "pickle protocol {protocol}, this program reads 2 to 5; write it by pickle.dump(..., protocol=4)"
                )
            }
            Self::PickleOpcode(opcode) => match name_of_code(*opcode) {
                Some(name) => write!(
                    f,
                    "opcode {name} ({opcode:#04x}) names or calls Python objects, and this reader runs nothing; give what \
                     torch.cuda.memory._dump_snapshot wrote"
                ),
                None => write!(f, "opcode {opcode:#04x} is unknown or of protocol 0 or 1; the pickle is damaged"),
            },
            Self::Pickle(what) => write!(f, "{what}; the pickle is damaged, write it again"),
            Self::PickleMemory => write!(
                f,
                "the pickle unfolds to more memory than 64 MiB and 16 times the file; unpack it if it is compressed, or record a \
                 shorter history (max_entries)"
            ),
            Self::NoSnapshot(what) => {
                write!(f, "the pickle has no {what}; give what torch.cuda.memory._dump_snapshot wrote")
            }
            Self::NoHistory(device, others) => {
                match device {
                    Some(device) => write!(f, "device {device} has no history")?,
                    None => write!(f, "no device has a history")?,
                }
                match others.as_slice() {
                    [] => write!(f, "; call torch.cuda.memory._record_memory_history() before the run"),
                    others => write!(f, "; these have one: {others:?}"),
                }
            }
        }
    }
}

/// Quotes a text from a file: at most 40 characters of it, control characters escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars().take(40) {
        match c {
            // The text is shown between backquotes, where quotation marks need no escape.
            '"' | '\'' => quoted.push(c),
            _ => quoted.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(40).is_some() {
        quoted.push_str("...");
    }
    quoted
}
