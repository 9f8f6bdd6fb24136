//! The end of the program that is looked at: a thread that writes rows, and hands the page to each client.
//!
//! Promises upward: a client can neither write the page nor make the thread wait; a source that panics is dropped, and the program
//! goes on; the socket file is gone once the publisher is dropped. In the child of a fork nothing runs, and dropping changes nothing.
//! Asks from below: [`SharedCounters`], [`socket`](crate::socket), one thread.

use crate::error::LiveError;
use crate::layout::{Figures, RowKind};
use crate::memory::{SharedCounters, milliseconds};
use crate::socket;
use crate::write::{RowValues, RowWriter};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::boxed::Box;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::string::String;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::vec::Vec;

/// Time between two writes, unless the builder is told otherwise.
const INTERVAL: Duration = Duration::from_millis(200);

/// The rows of one write.
#[derive(Debug, Default)]
pub struct RowList {
    rows: Vec<(RowKind, String, Figures)>,
}

impl RowList {
    /// Adds a row. Rows beyond the 127 of a page are left out.
    pub fn push(&mut self, kind: RowKind, name: impl Into<String>, figures: Figures) {
        self.rows.push((kind, name.into(), figures));
    }
}

/// What adds rows, each time they are written.
type RowSource = Box<dyn FnMut(&mut RowList) + Send>;

/// Publishes counters of this process while it lives.
pub struct Publisher {
    path: PathBuf,
    /// Closed to end the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// A child of a fork has another number, and owns neither thread nor socket file.
    process: u32,
}

/// Sets up a [`Publisher`].
pub struct PublisherBuilder {
    sources: Vec<RowSource>,
    interval: Duration,
}

impl Publisher {
    /// A builder without sources.
    #[must_use]
    pub fn builder() -> PublisherBuilder {
        PublisherBuilder { sources: Vec::new(), interval: INTERVAL }
    }

    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PublisherBuilder {
    /// Adds a source of rows, which the publisher's thread calls at each write.
    #[must_use]
    pub fn source(mut self, source: impl FnMut(&mut RowList) + Send + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Sets the time between two writes, at least a millisecond; 200 ms otherwise.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Writes the rows once, and listens at `path`, a file that only this user's programs can connect to.
    ///
    /// # Errors
    /// The socket cannot be made, or another program listens there; the system refuses memory or a thread.
    pub fn start(self, path: impl Into<PathBuf>) -> Result<Publisher, LiveError> {
        let path = path.into();
        let shared = SharedCounters::create()?;
        shared.keep_others_from_writing();
        let file = shared.read_only()?;
        let refused = |what| move |error| LiveError::System { what, error };
        let (wake, ended) = UnixStream::pair().map_err(refused("making a pair of sockets"))?;
        let listener = socket::listen(&path)?;
        // From here on dropping the publisher removes the socket's file.
        let mut publisher = Publisher { path, wake: Some(wake), thread: None, process: std::process::id() };
        let mut worker = Worker { shared, file, listener, ended, sources: self.sources, interval: self.interval };
        worker.write();
        let thread = std::thread::Builder::new().name("terrace-live".into()).spawn(move || worker.run());
        publisher.thread = Some(thread.map_err(refused("starting a thread"))?);
        Ok(publisher)
    }
}

impl fmt::Debug for PublisherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublisherBuilder").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.process != std::process::id() {
            // The thread is the parent's: joining it would wait for ever.
            core::mem::forget(thread);
            return;
        }
        drop(self.wake.take());
        // The thread catches panics of sources, and has none of its own to report.
        _ = thread.map(JoinHandle::join);
        // Another program may have removed the file before.
        _ = std::fs::remove_file(&self.path);
    }
}

/// What the thread owns.
struct Worker {
    shared: SharedCounters,
    /// The descriptor for clients.
    file: OwnedFd,
    listener: UnixListener,
    /// Readable once the publisher is dropped.
    ended: UnixStream,
    sources: Vec<RowSource>,
    interval: Duration,
}

impl Worker {
    fn run(mut self) {
        let mut next = Instant::now() + self.interval;
        let mut listens = true;
        loop {
            match self.wait(next, listens) {
                Wake::End => return,
                // Without descriptors `accept` fails at once, again and again: the next try is after the next write.
                Wake::Client => listens = socket::serve(&self.listener, self.file.as_fd()).is_ok(),
                Wake::Time => {
                    self.write();
                    (next, listens) = (Instant::now() + self.interval, true);
                }
            }
        }
    }

    /// Waits for a client, if it `listens`, for the time of the next write, or for the end.
    fn wait(&self, next: Instant, listens: bool) -> Wake {
        let Some(left) = next.checked_duration_since(Instant::now()) else { return Wake::Time };
        let mut files = [PollFd::new(&self.ended, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        let count = if listens { 2 } else { 1 };
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(files.get_mut(..count).unwrap_or_default(), Some(&timeout)) {
            Ok(0) | Err(_) => Wake::Time,
            Ok(_) if !files[0].revents().is_empty() => Wake::End,
            Ok(_) => Wake::Client,
        }
    }

    /// Asks the sources, and writes their rows.
    fn write(&mut self) {
        let mut list = RowList::default();
        self.sources.retain_mut(|source| {
            let mut own = RowList::default();
            let is_sound = catch_unwind(AssertUnwindSafe(|| source(&mut own))).is_ok();
            list.rows.append(&mut own.rows);
            is_sound
        });
        let Ok(page) = self.shared.page() else { return };
        let mut writers = (0..).map_while(|index| page.writer(index));
        let process = std::process::id();
        let written = milliseconds();
        for ((kind, name, figures), writer) in list.rows.iter().zip(&mut writers) {
            take(&writer, process, &page);
            writer.write(&RowValues { kind: *kind, name: cut(name), written, ended: false, figures: *figures });
        }
        // Rows of sources that are gone, or that have less to say.
        writers.take_while(|writer| writer.owner() != 0).for_each(RowWriter::release);
    }
}

/// Why the thread woke up.
enum Wake {
    Client,
    Time,
    End,
}

/// Claims a row of this process's own page: the first free one is the next one.
fn take(writer: &RowWriter<'_>, process: u32, page: &crate::CounterPage<'_>) {
    if writer.owner() == 0 {
        _ = page.claim(process);
    }
}

/// The longest beginning of a name that a row holds and that is whole characters.
fn cut(name: &str) -> &[u8] {
    name.get(..name.floor_char_boundary(crate::NAME_BYTES)).unwrap_or_default().as_bytes()
}
