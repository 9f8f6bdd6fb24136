//! Reads any form of trace as checked events.
//!
//! Promises upward: events in order, each checked against earlier ones; after the first error the iterator ends.
//! Asks from below: unpacked content, parsers for lines and records, the checker.

use super::check::Checker;
use super::csv;
use super::error::{Place, Problem, TraceError};
use super::input::{CountingReader, RecordingInput};
use super::pickle::{self, PICKLE};
use super::rmm::RmmReader;
use super::snapshot::SnapshotReader;
use super::texts::Texts;
use super::tree::ByteBudget;
use super::{HEADER, LINE_MAX};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use terrace_core::event::{DecodeError, Decoder, Event, RECORD_MAX, Record};

/// Number of bytes read at a time from a recording: 64 KiB, at least [`RECORD_MAX`].
const RECORDS: usize = 64 << 10;

/// Bytes of an unknown first line that an error keeps: 160 for 40 characters, and 4 for one more, which shows the cut.
const SHOWN: usize = 164;

/// An event, and a small number for its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub event: Event,
    /// Small number of the block among live ones: dense from 0, reused after the free (the entry of the free still has
    /// it). `None` for events that name no block.
    pub slot: Option<u32>,
}

/// What the content of a file is, and what reads it beside the input.
enum TraceForm {
    Csv,
    Records,
    /// A snapshot of PyTorch: the device asked for, until the pickle is read.
    Pickle(Option<u32>),
    Snapshot(Box<SnapshotReader>),
    Log(Box<RmmReader>),
}

/// Reads a trace, one entry at a time. See the [module](super) for forms and limits.
///
/// # Example
/// ```
/// use terrace::recording::Reader;
/// let csv = "t,op,id,size,align,stream,tag\n0,a,0,100,16,0,malloc\n1000,f,0,,,0,\n1000,f,0,,,0,\n";
/// let mut reader = Reader::new("trace.csv", csv.as_bytes())?;
/// assert_eq!(reader.next().unwrap()?.event.bytes, 100);
/// assert_eq!(reader.next().unwrap()?.slot, Some(0));
/// let error = reader.next().unwrap().unwrap_err();
/// assert!(error.to_string().starts_with("trace.csv:4: double free: block 0"));
/// # Ok::<(), terrace::recording::TraceError>(())
/// ```
pub struct Reader<'a> {
    file: String,
    input: RecordingInput<'a>,
    form: TraceForm,
    /// A line; or records, of which those before `start` are already decoded.
    buffer: Vec<u8>,
    start: usize,
    decoder: Decoder,
    checker: Checker,
    texts: Texts,
    /// Number of lines or records read so far, including the one being read; of a pickle, the offset of what is being read.
    place: u64,
    events: u64,
    done: bool,
    passed: Rc<Cell<u64>>,
    total: Option<u64>,
}

impl Reader<'static> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be opened or has none of the known forms.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| TraceError::io(&*name, error))?;
        let total = file.metadata().ok().filter(|data| data.is_file()).map(|data| data.len());
        Ok(Self { total, ..Self::new(&name, file)? })
    }
}

impl<'a> Reader<'a> {
    /// Reads from any source; errors use `name` as the file's name.
    ///
    /// # Errors
    /// [`TraceError`] if the first bytes are of none of the known forms.
    pub fn new(name: &str, raw: impl Read + 'a) -> Result<Self, TraceError> {
        let passed = Rc::new(Cell::new(0));
        let fail = |problem| TraceError { file: name.into(), place: Place::File, problem };
        let input = RecordingInput::detect(CountingReader { inner: raw, passed: passed.clone() }).map_err(fail)?;
        let mut reader = Self {
            file: name.into(),
            form: if input.recording { TraceForm::Records } else { TraceForm::Csv },
            input,
            buffer: Vec::new(),
            start: 0,
            decoder: Decoder::default(),
            checker: Checker::default(),
            texts: Texts::default(),
            place: 0,
            events: 0,
            done: false,
            passed,
            total: None,
        };
        if !reader.input.recording {
            reader.form = reader.text_or_pickle().map_err(|problem| reader.error(problem))?;
        }
        Ok(reader)
    }

    /// Takes this device's history from a snapshot of PyTorch.
    ///
    /// Without it the first that the snapshot has. Other forms know one device.
    #[must_use]
    pub fn device(mut self, device: u32) -> Self {
        if let TraceForm::Pickle(chosen) = &mut self.form {
            *chosen = Some(device);
        }
        self
    }

    /// The devices that a snapshot of PyTorch has a history of.
    ///
    /// Reads all of the snapshot. Other forms know one device and list none.
    ///
    /// # Errors
    /// Those of reading the snapshot.
    pub fn devices(mut self) -> Result<Vec<u32>, TraceError> {
        if !matches!(self.form, TraceForm::Pickle(_)) {
            return Ok(Vec::new());
        }
        let snapshot = self.unpickle(None).map_err(|problem| self.error(problem))?;
        Ok(snapshot.devices())
    }

    /// What was left out of a snapshot or a log, and what was added, in words.
    ///
    /// Whole only once the trace was read to its end.
    pub fn remark(&self) -> Option<String> {
        let mut text = String::new();
        match &self.form {
            TraceForm::Snapshot(snapshot) => snapshot.remark(&mut text),
            TraceForm::Log(log) => log.remark(&mut text),
            TraceForm::Csv | TraceForm::Records | TraceForm::Pickle(_) => {}
        }
        Some(text.trim_end_matches("; ").to_owned()).filter(|text| !text.is_empty())
    }

    /// Tags and call sites read so far.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// Bytes read of the file as packed on disk, and the file's size if known: for progress.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.passed.get(), self.total)
    }

    /// Tells forms without a mark of their own apart.
    fn text_or_pickle(&mut self) -> Result<TraceForm, Problem> {
        self.place = 1;
        if self.input.peek()? == Some(PICKLE) {
            return Ok(TraceForm::Pickle(None));
        }
        self.place = 0;
        let problem = match self.line() {
            Ok(None) => return Err(Problem::Empty),
            Ok(Some(HEADER)) => return Ok(TraceForm::Csv),
            Ok(Some(line)) if RmmReader::is_header(line) => return Ok(TraceForm::Log(Box::default())),
            Ok(Some(other)) => return Err(Problem::Header(other.into())),
            Err(problem) => problem,
        };
        Err(match problem {
            // A file that does not begin like the header is of another kind: report that instead of a bad line.
            Problem::NotUtf8 | Problem::Nul | Problem::LongLine | Problem::NoLineEnd | Problem::CarriageReturn
                if !self.begins_as_header() =>
            {
                let shown = &self.buffer[..self.buffer.len().min(SHOWN)];
                Problem::Header(String::from_utf8_lossy(shown).into())
            }
            Problem::NoLineEnd if self.buffer.contains(&b'\r') => Problem::CarriageReturn,
            problem => problem,
        })
    }

    /// Whether the buffer is a prefix of the header, or starts with the whole header.
    fn begins_as_header(&self) -> bool {
        let n = self.buffer.len().min(HEADER.len());
        self.buffer[..n] == HEADER.as_bytes()[..n]
    }

    /// Reads the next line without its line end; `None` at the end of the content.
    fn line(&mut self) -> Result<Option<&str>, Problem> {
        self.buffer.clear();
        self.place += 1;
        if self.input.read_until(b'\n', LINE_MAX + 1, &mut self.buffer)? == 0 {
            return Ok(None);
        }
        if self.buffer.pop_if(|last| *last == b'\n').is_none() {
            return Err(if self.buffer.len() > LINE_MAX { Problem::LongLine } else { Problem::NoLineEnd });
        }
        if self.buffer.contains(&0) {
            return Err(Problem::Nul);
        }
        if self.buffer.contains(&b'\r') {
            return Err(Problem::CarriageReturn);
        }
        str::from_utf8(&self.buffer).map(Some).map_err(|_| Problem::NotUtf8)
    }

    fn next_line(&mut self) -> Result<Option<Event>, Problem> {
        // The texts leave `self` for the call, because the line borrows it.
        let mut texts = std::mem::take(&mut self.texts);
        let event = self.line().and_then(|line| line.map(|line| csv::parse(line, &mut texts)).transpose());
        self.texts = texts;
        event
    }

    fn next_of_log(&mut self, log: &mut RmmReader) -> Result<Option<Event>, Problem> {
        if let Some(event) = log.next() {
            return Ok(Some(event));
        }
        let mut texts = std::mem::take(&mut self.texts);
        let event = loop {
            match self.line().and_then(|line| line.map(|line| log.parse(line, &mut texts)).transpose()) {
                Ok(Some(None)) => {}
                Ok(event) => break Ok(event.flatten()),
                Err(problem) => break Err(problem),
            }
        };
        self.texts = texts;
        event
    }

    /// Reads the whole pickle.
    fn unpickle(&mut self, device: Option<u32>) -> Result<SnapshotReader, Problem> {
        let mut budget = ByteBudget::new(self.passed.clone());
        let tree = pickle::read(&mut self.input, &mut budget, &mut self.place)?;
        SnapshotReader::new(tree, budget, device)
    }

    fn next_event(&mut self) -> Result<Option<Event>, Problem> {
        if let TraceForm::Pickle(device) = self.form {
            self.form = TraceForm::Snapshot(Box::new(self.unpickle(device)?));
        }
        // The form leaves `self` for the call, because reading a line or a record borrows it.
        let mut form = std::mem::replace(&mut self.form, TraceForm::Csv);
        let event = match &mut form {
            TraceForm::Csv | TraceForm::Pickle(_) => self.next_line(),
            TraceForm::Records => self.next_record(),
            TraceForm::Log(log) => self.next_of_log(log),
            TraceForm::Snapshot(snapshot) => {
                let event = snapshot.next(&mut self.texts);
                self.place = snapshot.read as u64;
                event
            }
        };
        self.form = form;
        event
    }

    fn next_record(&mut self) -> Result<Option<Event>, Problem> {
        loop {
            if self.buffer.len() - self.start < RECORD_MAX {
                self.buffer.drain(..self.start);
                self.start = 0;
                self.input.fill(RECORDS - self.buffer.len().min(RECORDS), &mut self.buffer)?;
            }
            let rest = &self.buffer[self.start..];
            if rest.is_empty() {
                return Ok(None);
            }
            self.place += 1;
            let (record, used) = self.decoder.decode(rest).map_err(|error| match error {
                DecodeError::Short => Problem::CutShort("recording"),
                error => Problem::Record(error),
            })?;
            self.start += used;
            match record {
                Record::Event(event) => return Ok(Some(event)),
                Record::Text { id, text } => {
                    if self.texts.add(text)? != id {
                        return Err(Problem::TextId(id));
                    }
                }
            }
        }
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, Problem> {
        let Some(event) = self.next_event()? else {
            return if self.events == 0 { Err(Problem::NoEvents) } else { Ok(None) };
        };
        for id in [event.tag, event.site] {
            self.texts.get(id).ok_or(Problem::TextId(id))?;
        }
        self.events += 1;
        Ok(Some(Entry { event, slot: self.checker.check(&event)? }))
    }

    fn error(&self, problem: Problem) -> TraceError {
        let place = match problem {
            Problem::Io(_) | Problem::Empty | Problem::NoEvents | Problem::NoHistory(..) => Place::File,
            _ => match self.form {
                TraceForm::Csv | TraceForm::Log(_) => Place::Line(self.place),
                TraceForm::Records | TraceForm::Snapshot(_) => Place::Record(self.place),
                TraceForm::Pickle(_) => Place::Byte(self.place),
            },
        };
        TraceError { file: self.file.clone(), place, problem }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_entry().map_err(|problem| self.error(problem)).transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}
