//! Writes traces: CSV (plain, gzip or zstd) and recordings.
//!
//! Promises upward: events from a [`Reader`](super::Reader) are written without loss, except that CSV has no line for
//! transfers, segments and marks ([`Writer::left_out`] counts them), and no column for addresses, tiers and call sites
//! ([`Writer::shortened`]).
//! Asks from below: events in the order in which they were read, with the texts that they name.

use super::error::{Place, Problem, TraceError};
use super::texts::Texts;
use super::{HEADER, MAGIC, csv};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use terrace_core::event::{Encoder, Event, RECORD_MAX, Record, VERSION};

/// Compression level of zstd: 9 makes recordings about as small as 19 does, in a twentieth of the time.
const LEVEL: i32 = 9;

/// The form in which a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Plain CSV.
    Csv,
    /// CSV packed by gzip.
    CsvGzip,
    /// CSV packed by zstd, with a checksum.
    CsvZstd,
    /// A recording of terrace's own format.
    Recording,
}

impl Form {
    /// The form that a file's name asks for: `.csv`, `.csv.gz`, `.csv.zst`, `.terrace`.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        [(".csv", Self::Csv), (".csv.gz", Self::CsvGzip), (".csv.zst", Self::CsvZstd), (".terrace", Self::Recording)]
            .into_iter()
            .find_map(|(end, form)| name.ends_with(end).then_some(form))
    }
}

enum Pack<W: Write> {
    Plain(BufWriter<W>),
    Gzip(BufWriter<GzEncoder<W>>),
    Zstd(BufWriter<zstd::Encoder<'static, W>>),
}

impl<W: Write> Pack<W> {
    fn out(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(out) => out,
            Self::Zstd(out) => out,
        }
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => out.into_inner().map_err(io::IntoInnerError::into_error),
            Self::Gzip(out) => out.into_inner().map_err(io::IntoInnerError::into_error)?.finish(),
            Self::Zstd(out) => out.into_inner().map_err(io::IntoInnerError::into_error)?.finish(),
        }
    }
}

/// Writes a trace to any [`Write`].
pub struct Writer<W: Write> {
    file: String,
    pack: Pack<W>,
    /// Encodes records; `Some` if the form is a recording.
    encoder: Option<Encoder>,
    /// Buffer for one encoded record.
    buffer: Vec<u8>,
    /// Number of texts written so far.
    texts: usize,
    events: u64,
    left_out: u64,
    shortened: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a trace; errors use `name` as the file's name.
    ///
    /// # Errors
    /// [`Problem::Io`] from `out`.
    pub fn new(name: &str, form: Form, out: W) -> Result<Self, TraceError> {
        let pack = Self::start(form, out).map_err(|error| TraceError::io(name, error))?;
        let encoder = (form == Form::Recording).then(Encoder::default);
        Ok(Self {
            file: name.into(),
            pack,
            encoder,
            buffer: vec![0; RECORD_MAX],
            texts: 0,
            events: 0,
            left_out: 0,
            shortened: 0,
        })
    }

    fn start(form: Form, mut out: W) -> io::Result<Pack<W>> {
        if form == Form::Recording {
            out.write_all(&MAGIC)?;
            out.write_all(&[VERSION])?;
        }
        let mut pack = match form {
            Form::Csv => Pack::Plain(BufWriter::new(out)),
            Form::CsvGzip => Pack::Gzip(BufWriter::new(GzEncoder::new(out, Compression::default()))),
            Form::CsvZstd | Form::Recording => Self::frame(out)?,
        };
        if form != Form::Recording {
            writeln!(pack.out(), "{HEADER}")?;
        }
        Ok(pack)
    }

    /// Begins a frame of zstd.
    fn frame(out: W) -> io::Result<Pack<W>> {
        let mut encoder = zstd::Encoder::new(out, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Pack::Zstd(BufWriter::new(encoder)))
    }

    /// Ends the frame of a recording and begins another: what is written so far is a whole recording.
    ///
    /// # Errors
    /// [`Problem::Io`] from `out`.
    #[cfg(feature = "track")]
    pub(super) fn next_frame(self) -> Result<Self, TraceError> {
        let Self { file, pack, .. } = self;
        match pack.finish().and_then(Self::frame) {
            Ok(pack) => Ok(Self { file, pack, ..self }),
            Err(error) => Err(TraceError::io(file, error)),
        }
    }

    /// Writes an event whose tag and call site are ids in `texts`.
    ///
    /// Each call must pass the same `texts`, which may grow between calls.
    ///
    /// # Errors
    /// [`TraceError`] with the number of the event as its place.
    pub fn write(&mut self, event: &Event, texts: &Texts) -> Result<(), TraceError> {
        self.events += 1;
        let written = if self.encoder.is_some() { self.record(event, texts) } else { self.line(event, texts) };
        written.map_err(|problem| self.error(problem))
    }

    fn line(&mut self, event: &Event, texts: &Texts) -> Result<(), Problem> {
        let tag = texts.get(event.tag).ok_or(Problem::TextId(event.tag))?;
        if !csv::fits(tag) {
            return Err(Problem::TagNotCsv(tag.into()));
        }
        let written = csv::write(self.pack.out(), event, tag).map_err(Problem::Io)?;
        self.left_out += u64::from(!written);
        self.shortened += u64::from(written && !csv::has_columns(event));
        Ok(())
    }

    fn record(&mut self, event: &Event, texts: &Texts) -> Result<(), Problem> {
        for id in [event.tag, event.site] {
            texts.get(id).ok_or(Problem::TextId(id))?;
        }
        while self.texts < texts.len() {
            self.texts += 1;
            let id = self.texts as u32;
            let text = texts.get(id).ok_or(Problem::TextId(id))?;
            self.encode(&Record::Text { id, text })?;
        }
        self.encode(&Record::Event(*event))
    }

    fn encode(&mut self, record: &Record<'_>) -> Result<(), Problem> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let n = encoder.encode(record, &mut self.buffer).map_err(Problem::Unwritable)?;
        self.pack.out().write_all(&self.buffer[..n]).map_err(Problem::Io)
    }

    /// Number of events left out so far, for which the form has no line.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Number of events written without their address, tier or call site, for which the form has no column.
    pub fn shortened(&self) -> u64 {
        self.shortened
    }

    /// Ends the trace, flushes `out` and returns it.
    ///
    /// # Errors
    /// [`Problem::Io`] from `out`.
    pub fn finish(self) -> Result<W, TraceError> {
        let file = self.file;
        let finished = self.pack.finish().and_then(|mut out| out.flush().map(|()| out));
        finished.map_err(|error| TraceError::io(file, error))
    }

    fn error(&self, problem: Problem) -> TraceError {
        let place = if matches!(problem, Problem::Io(_)) { Place::File } else { Place::Record(self.events) };
        TraceError { file: self.file.clone(), place, problem }
    }
}
