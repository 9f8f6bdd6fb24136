//! Records what a running program does with a device's memory, or with the buffers of a manager, into a file.
//!
//! Promises upward: each event of the tracker between the beginning and the end is in the file, in an order in which it can
//! have happened; whatever fails, the program goes on, and the error says how many events the file has.
//! Asks from below: the tracker's events; a thread that writes them.

use super::TraceError;
use super::event_log::EventLog;
use super::event_queue::EventQueue;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use terrace_guard::ProcessOwned;
use terrace_track::{EventSink, Tracker};

/// Records the events of one tracker into a file, until it is finished or dropped.
///
/// Give it the tracker of a `Device` or of a `Manager`; both tell of allocations and frees, a manager also of copies between its
/// tiers. The file is a [recording](super#forms), which `terrace replay`, `terrace report` and [`Reader`](super::Reader) read.
///
/// - Sizes are those asked for, owners are streams of a device, tags those of the thread. Call sites are recorded while the
///   tracker's mode asks for them.
/// - No event is lost: while the disk is slower than the program, callers wait. 10 MiB of memory are used for events.
/// - A block that was live before: if the tracker had a record of it, the file begins with it. If not, its free is left out.
///   Blocks that are live at the end have no free in the file.
/// - A tracker that is off counts while it is recorded. Blocks allocated while its mode is set to off are not recorded.
/// - The file appears under its name when it is finished. If a write fails, recording ends; the file then has the events
///   before, and [`finish`](Self::finish) says how many.
/// - A process that ends without finishing or dropping the recorder leaves no file under the name.
/// - A forked child records nothing, and leaves its parent's file alone.
///
/// # Example
/// ```
/// # #[cfg(feature = "device")] {
/// use terrace::Device;
/// use terrace::recording::{Reader, Recorder};
///
/// let device = Device::host();
/// let stream = device.stream()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("run.terrace");
/// # let path = path.as_path();
/// let recorder = Recorder::start(device.tracker(), path)?; // such as "run.terrace"
/// drop(device.allocate(&stream, 4096)?);
/// let recorded = recorder.finish()?;
/// assert_eq!(recorded.events, 2);
///
/// let sizes: Vec<u64> = Reader::open(path)?.map(|entry| Ok(entry?.event.bytes)).collect::<Result<_, terrace::recording::TraceError>>()?;
/// assert_eq!(sizes, [4096, 0]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    /// Dropped only in the process that records: a child has none of the threads.
    session: ProcessOwned<RecorderSession>,
}

/// What ends a recording when it is dropped.
struct RecorderSession {
    path: PathBuf,
    tracker: Arc<Tracker>,
    queue: Arc<EventQueue>,
    /// The queue, as the tracker knows it.
    sink: Arc<dyn EventSink>,
    /// `None` once the recording has ended.
    writer: Option<JoinHandle<Result<RecordedFile, RecorderError>>>,
}

/// A file with everything that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    /// The file.
    pub path: PathBuf,
    /// Number of events in the file.
    pub events: u64,
}

/// Why a recording could not begin, or ended early.
#[derive(Debug)]
pub enum RecorderError {
    /// The tracker of this name is recorded already.
    Busy(String),
    /// The process is a child, forked after the tracker was made or the recording began.
    Forked,
    /// The file could not be written.
    File {
        /// What failed.
        error: TraceError,
        /// Number of events in the file, all before the failure; 0 if there is no file.
        events: u64,
    },
}

impl fmt::Display for RecorderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(name) => write!(f, "{name} is recorded already; finish that recorder first"),
            Self::Forked => {
                write!(f, "a forked child cannot record what its parent made; record before the fork, there")
            }
            Self::File { error, events: 0 } => write!(f, "{error}; nothing was recorded"),
            Self::File { error, events } => write!(f, "{error}; the file has the first {events} events"),
        }
    }
}

impl std::error::Error for RecorderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::File { error, .. } = self { Some(error) } else { None }
    }
}

impl Recorder {
    /// Begins to record. The file appears at `path` when recording has ended.
    ///
    /// # Errors
    /// [`RecorderError`]; nothing is recorded then.
    pub fn start(tracker: &Arc<Tracker>, path: impl AsRef<Path>) -> Result<Self, RecorderError> {
        let path = path.as_ref();
        if !tracker.is_own() {
            return Err(RecorderError::Forked);
        }
        let fail = |error| RecorderError::File { error, events: 0 };
        let log = EventLog::create(tracker, path).map_err(fail)?;
        let queue = Arc::new(EventQueue::new());
        let sink: Arc<dyn EventSink> = queue.clone();
        if !tracker.attach_sink(Arc::clone(&sink)) {
            return Err(RecorderError::Busy(tracker.name().into()));
        }
        let tracker = Arc::clone(tracker);
        let mut session = RecorderSession { path: path.into(), tracker, queue, sink, writer: None };
        session.writer =
            Some(session.spawn(log).map_err(|error| fail(TraceError::io(path.display().to_string(), error)))?);
        Ok(Self { session: ProcessOwned::new(session) })
    }

    /// Whether events are recorded; false after a failing write, and in a forked child.
    pub fn is_recording(&self) -> bool {
        self.session.is_own() && self.session.queue.progress().0
    }

    /// Number of events that came so far.
    pub fn events(&self) -> u64 {
        if self.session.is_own() { self.session.queue.progress().1 } else { 0 }
    }

    /// Ends the recording, and waits until its file is durable.
    ///
    /// # Errors
    /// [`RecorderError::File`], if a write failed earlier or now; [`RecorderError::Forked`].
    pub fn finish(mut self) -> Result<RecordedFile, RecorderError> {
        if self.session.is_own() { self.session.end() } else { Err(RecorderError::Forked) }
    }
}

impl RecorderSession {
    /// Starts the thread that writes.
    fn spawn(&self, mut log: EventLog) -> io::Result<JoinHandle<Result<RecordedFile, RecorderError>>> {
        let Self { tracker, queue, sink, .. } = self;
        let (tracker, queue, sink) = (Arc::clone(tracker), Arc::clone(queue), Arc::clone(sink));
        // Made before the thread: it closes the queue even where the system has none.
        let open = OpenQueue { tracker, queue, sink };
        // Events of other threads come meanwhile: a block that is in both is told of twice, and the log says so by a free.
        let mut batch = open.tracker.live_events();
        thread::Builder::new().name("terrace-record".into()).spawn(move || {
            let mut written = log.write(&batch);
            while written.is_ok() && open.queue.take(&mut batch) {
                written = log.write(&batch);
            }
            drop(open);
            log.finish(written)
        })
    }

    /// Ends the recording, once.
    fn end(&mut self) -> Result<RecordedFile, RecorderError> {
        self.tracker.detach_sink(&self.sink);
        self.queue.close();
        let ended = self.writer.take().map(JoinHandle::join);
        let fail = |why| RecorderError::File {
            error: TraceError::io(self.path.display().to_string(), io::Error::other(why)),
            events: 0,
        };
        match ended {
            Some(Ok(recorded)) => recorded,
            Some(Err(_)) => Err(fail("the thread that writes the file panicked")),
            None => Err(fail("no thread writes the file")),
        }
    }
}

impl Drop for RecorderSession {
    fn drop(&mut self) {
        if self.writer.is_some() {
            // Nothing can be told to a caller that did not ask.
            let _ = self.end();
        }
    }
}

/// Closes the queue when the thread that writes ends, however it ends: no caller waits for it after that.
struct OpenQueue {
    tracker: Arc<Tracker>,
    queue: Arc<EventQueue>,
    sink: Arc<dyn EventSink>,
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        self.queue.close();
        self.tracker.detach_sink(&self.sink);
    }
}

impl fmt::Debug for RecorderSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderSession").field("path", &self.path).finish_non_exhaustive()
    }
}
