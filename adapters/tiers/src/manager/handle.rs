//! Handles of buffers, which users hold.
//!
//! Promises upward: a buffer without a name is freed when its last handle is dropped; dropping the last handle of a
//! manager and its buffers waits for operations in progress, for ten seconds at most.

use super::ManagerShared;
use super::buffer_state::BufferState;
use super::error::Error;
use super::lease_word::Attempt;
use super::raw_bytes::ReadTarget;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use terrace_file::{JoinHandle, is_in_task, is_worker_thread};
use terrace_guard::ProcessOwned;

/// Shared by all handles of a manager and its buffers: dropping the last one waits for operations in progress. Each
/// handle must drop it after its own reference to the manager.
pub(super) struct ShutdownGuard {
    pub shared: Weak<ManagerShared>,
}

/// How long the last handle waits for operations in progress, such as copies of a large buffer to a slow disk.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

impl Drop for ShutdownGuard {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let begun = Instant::now();
        // If a task or a callback on one of the manager's threads drops the last handle, it must not wait: it would
        // wait for itself. That thread then shuts the manager down.
        while !is_in_task()
            && !is_worker_thread()
            && Arc::strong_count(&shared) > 1
            && begun.elapsed() < SHUTDOWN_TIMEOUT
        {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A handle of a buffer.
///
/// Clones are handles of the same buffer; when the last one is dropped, a buffer without a name is freed.
/// [`Manager::remove`](super::Manager::remove) frees a named one.
#[derive(Clone)]
pub struct Buffer {
    pub(super) shared: ProcessOwned<Arc<ManagerShared>>,
    pub(super) handle: ProcessOwned<Arc<Handle>>,
    _shutdown: ProcessOwned<Arc<ShutdownGuard>>,
}

pub(super) struct Handle {
    shared: Arc<ManagerShared>,
    pub buffer: Arc<BufferState>,
    /// Whether the caller that allocated the buffer has not got it yet: then it is freed with its last handle, named or
    /// not.
    pub undelivered: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.buffer.named.is_none() || *self.undelivered.get_mut() {
            let mut state = self.shared.state();
            state.handle_dropped(&self.shared, &self.buffer);
            self.shared.unlock(state);
        }
    }
}

impl Buffer {
    pub(super) fn new(
        shared: &ProcessOwned<Arc<ManagerShared>>,
        buffer: Arc<BufferState>,
        shutdown: &ProcessOwned<Arc<ShutdownGuard>>,
    ) -> Self {
        let handle = Handle { shared: Arc::clone(shared), buffer, undelivered: AtomicBool::new(false) };
        Self { shared: shared.clone(), handle: ProcessOwned::new(Arc::new(handle)), _shutdown: shutdown.clone() }
    }

    /// Marks an allocated buffer as delivered to the caller that asked for it.
    pub(super) fn delivered(allocated: &Result<Self, Error>) {
        if let Ok(buffer) = allocated {
            buffer.handle.undelivered.store(false, Ordering::Relaxed);
        }
    }

    /// Size of the buffer in bytes.
    pub fn bytes(&self) -> u64 {
        self.handle.buffer.bytes
    }

    /// Name of the buffer, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.handle.buffer.name()
    }

    /// Reads bytes from `offset` on into `to`.
    ///
    /// Whole chunks of more than 128 KiB are read from files right into memory that begins at a page; all else is copied.
    /// After an error `to` may have any bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Freed`], [`Error::Leased`] while a [`LeaseMut`](super::LeaseMut) is held;
    /// errors of the store.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.shared.check_process()?;
        let buffer = &self.handle.buffer;
        ManagerShared::inside(buffer, offset, to.len() as u64)?;
        if matches!(self.shared.read_memory(buffer, offset, &mut ReadTarget::new(to))?, Attempt::Taken(())) {
            return Ok(());
        }
        let bytes = to.len();
        self.block_on(bytes, || self.shared.read(buffer, offset, ReadTarget::new(to)))
    }

    /// As [`read`](Self::read), as a future, into new memory.
    pub fn read_async(&self, offset: u64, bytes: usize) -> JoinHandle<Result<Vec<u8>, Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.clone());
        let read = self.shared.tasks.begin(async move { shared.read_new(&buffer.handle.buffer, offset, bytes).await });
        read.in_child(|| Err(Error::Forked))
    }

    /// As [`read`](Self::read), as a future, into memory that comes back with the bytes.
    ///
    /// `into` is what owns the memory: a `Vec<u8>`, a `Box<[u8]>`, `BytesMut`, a block of a pool. Memory that is used again and
    /// begins at a page is the fastest. Begins at once, whether or not it is awaited; after an error `into` is gone.
    pub fn read_into_async<T: AsMut<[u8]> + Send + 'static>(
        &self,
        offset: u64,
        mut into: T,
    ) -> JoinHandle<Result<T, Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.clone());
        let read = async move {
            shared.read(&buffer.handle.buffer, offset, ReadTarget::new(into.as_mut())).await?;
            Ok(into)
        };
        self.shared.tasks.begin(read).runs_to_end().in_child(|| Err(Error::Forked))
    }

    /// Writes bytes from `offset` on.
    ///
    /// Whole chunks of more than 128 KiB are written in files right from memory that begins at a page; all else is copied.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Freed`], [`Error::Leased`] while any lease is held; errors of the store: then
    /// nothing was written.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.shared.check_process()?;
        let buffer = &self.handle.buffer;
        ManagerShared::inside(buffer, offset, from.len() as u64)?;
        if from.is_empty() || matches!(self.shared.write_memory(buffer, offset, from)?, Attempt::Taken(())) {
            return Ok(());
        }
        self.block_on(from.len(), || self.shared.write(buffer, offset, from))
    }

    /// Blocks this thread on a read or write of so many bytes: of many chunks, other threads take the checksums.
    fn block_on<F: Future>(&self, bytes: usize, begin: impl FnOnce() -> F) -> F::Output {
        match bytes > self.handle.buffer.chunk {
            true => self.shared.tasks.block_apart(begin),
            false => self.shared.tasks.block_on(begin),
        }
    }

    /// As [`write`](Self::write), as a future that keeps `from` until its bytes are written.
    ///
    /// `from` is what owns its bytes: a `Vec<u8>`, an `Arc<[u8]>`, `Bytes`, a block of a pool.
    /// Begins at once, whether or not it is awaited. Await it before calls that must come after it: where the buffer moves
    /// or another call writes it in files, calls that wait may go on in any order.
    pub fn write_async(&self, offset: u64, from: impl AsRef<[u8]> + Send + 'static) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.clone());
        let write = async move { shared.write(&buffer.handle.buffer, offset, from.as_ref()).await };
        let written = self.shared.tasks.begin(write);
        written.runs_to_end().in_child(|| Err(Error::Forked))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes()).field("name", &self.name()).finish_non_exhaustive()
    }
}
