//! The input of a reader: detects how a file is packed, unpacks it, and counts the bytes read.
//!
//! Promises upward: a plain stream of content, however it is packed; bounded decompression windows; typed errors.
//! Asks from below: any `Read`.

use super::error::Problem;
use super::{MAGIC, WINDOW_LOG};
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;
use terrace_core::event::VERSION;

/// First bytes of a gzip file, and of a zstd file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Size of the buffer for unpacked content: 64 KiB, about 1500 lines.
const BUFFER: usize = 64 << 10;

/// The unpacked content of a file.
pub(super) struct RecordingInput<'a> {
    content: Box<dyn BufRead + 'a>,
    /// How the file is packed, as errors name it.
    archive: Option<&'static str>,
    /// Whether the content is records; otherwise it is CSV.
    pub(super) recording: bool,
}

impl<'a> RecordingInput<'a> {
    /// Detects the form of a file by its first bytes, and unpacks it.
    pub(super) fn detect(mut raw: impl Read + 'a) -> Result<Self, Problem> {
        let mut first = Vec::with_capacity(MAGIC.len() + 1);
        raw.by_ref().take(MAGIC.len() as u64 + 1).read_to_end(&mut first).map_err(Problem::Io)?;
        if first.is_empty() {
            return Err(Problem::Empty);
        }
        let recording = first.starts_with(&MAGIC);
        match first.get(MAGIC.len()) {
            _ if !recording => {}
            Some(&VERSION) => first.clear(),
            Some(&version) => return Err(Problem::Version(version)),
            None => return Err(Problem::CutShort("recording")),
        }
        let (gzip, zstd) = (first.starts_with(&GZIP), first.starts_with(&ZSTD));
        let whole = Cursor::new(first).chain(raw);
        Ok(if recording || zstd {
            let mut decoder = zstd::Decoder::new(whole).map_err(Problem::Io)?;
            decoder.window_log_max(WINDOW_LOG).map_err(Problem::Io)?;
            let archive = Some(if recording { "recording" } else { "zstd archive" });
            Self { content: Box::new(BufReader::with_capacity(BUFFER, decoder)), archive, recording }
        } else if gzip {
            let content = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole));
            Self { content: Box::new(content), archive: Some("gzip archive"), recording }
        } else {
            Self { content: Box::new(BufReader::with_capacity(BUFFER, whole)), archive: None, recording }
        })
    }

    /// Reads up to and including the byte `end`, at most `max` bytes. Returns 0 at the end of the content.
    pub(super) fn read_until(&mut self, end: u8, max: usize, line: &mut Vec<u8>) -> Result<usize, Problem> {
        let read = self.content.by_ref().take(max as u64).read_until(end, line);
        read.map_err(|error| self.problem(error))
    }

    /// Appends `max` bytes, or fewer at the end of the content; returns their number.
    pub(super) fn fill(&mut self, max: usize, buffer: &mut Vec<u8>) -> Result<usize, Problem> {
        let read = self.content.by_ref().take(max as u64).read_to_end(buffer);
        read.map_err(|error| self.problem(error))
    }

    /// The first byte of what is left, which stays there; `None` at the end of the content.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Problem> {
        match self.content.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => Err(self.problem(error)),
        }
    }

    /// Fills the whole buffer; content that ends before is a pickle cut short.
    pub(super) fn exact(&mut self, mut buffer: &mut [u8]) -> Result<(), Problem> {
        while !buffer.is_empty() {
            match self.content.read(buffer) {
                Ok(0) => return Err(Problem::CutShort("pickle")),
                Ok(read) => buffer = &mut buffer[read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.problem(error)),
            }
        }
        Ok(())
    }

    /// Converts a read error to the user's problem: the system's error, or a damaged archive.
    fn problem(&self, error: io::Error) -> Problem {
        match self.archive {
            Some(archive) if error.kind() == io::ErrorKind::UnexpectedEof => Problem::CutShort(archive),
            Some(archive) if error.raw_os_error().is_none() => Problem::Archive(archive, error),
            _ => Problem::Io(error),
        }
    }
}

/// Counts the bytes that are read through it, to report progress.
pub(super) struct CountingReader<R> {
    pub(super) inner: R,
    pub(super) passed: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.passed.set(self.passed.get() + read as u64);
        Ok(read)
    }
}
