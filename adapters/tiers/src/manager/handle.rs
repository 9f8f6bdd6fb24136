//! What users hold: handles of buffers.
//!
//! Promises upward: a buffer without a name is freed when its last handle goes; when the last handle of all goes, what
//! is under way has ended.

use super::Shared;
use super::body::Body;
use super::error::Error;
use crate::ledger::Event;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use terrace_file::{JoinHandle, is_in_task, is_worker_thread};
use terrace_guard::ProcessOwned;

/// Somebody outside who has a manager or a buffer. Dropped after the handle that it stands in.
pub(super) struct User {
    pub shared: Weak<Shared>,
}

/// What is under way when the last handle goes is waited for so long: copies of a large buffer to a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);

impl Drop for User {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let begun = Instant::now();
        // A task, or a callback on a thread of ours, that drops the last handle cannot wait for itself: then that
        // thread ends all.
        while !is_in_task() && !is_worker_thread() && Arc::strong_count(&shared) > 1 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A buffer.
///
/// Clones are the same; when the last one is gone, a buffer without a name is freed. One with a name is freed by
/// [`Manager::remove`](super::Manager::remove).
#[derive(Clone)]
pub struct Buffer {
    pub(super) shared: ProcessOwned<Arc<Shared>>,
    pub(super) handle: ProcessOwned<Arc<Handle>>,
    _user: ProcessOwned<Arc<User>>,
}

pub(super) struct Handle {
    shared: Arc<Shared>,
    pub body: Arc<Body>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.body.named.is_none() {
            let mut state = self.shared.state();
            // Refused when it was freed already. A user's lease cannot be held: it borrows a handle. A copy ends first.
            let _ = state.handle(&self.shared, Event::Free { id: self.body.id });
            self.shared.unlock(state);
        }
    }
}

impl Buffer {
    pub(super) fn new(shared: &ProcessOwned<Arc<Shared>>, body: Arc<Body>, user: &ProcessOwned<Arc<User>>) -> Self {
        let handle = Handle { shared: Arc::clone(shared), body };
        Self { shared: shared.clone(), handle: ProcessOwned::new(Arc::new(handle)), _user: user.clone() }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.handle.body.bytes
    }

    /// What it is called.
    pub fn name(&self) -> Option<&str> {
        self.handle.body.name()
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Freed`], [`Error::Leased`] while somebody has a [`LeaseMut`](super::LeaseMut);
    /// those of the store.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        self.shared.is_here()?;
        let body = &self.handle.body;
        Shared::inside(body, offset, to.len() as u64)?;
        if let Some(_turn) = body.turn.try_read()
            && self.shared.read_memory(body, offset, to)?.is_some()
        {
            return Ok(());
        }
        let bytes = self.shared.tasks.block_on(|| self.read_async(offset, to.len()))?;
        to.copy_from_slice(&bytes);
        Ok(())
    }

    /// The same, into new memory.
    pub fn read_async(&self, offset: u64, bytes: usize) -> JoinHandle<Result<Vec<u8>, Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.clone());
        let read = self.shared.tasks.spawn(async move {
            let body = &buffer.handle.body;
            // Looked at before memory is taken for it.
            Shared::inside(body, offset, bytes as u64)?;
            let mut to = vec![0; bytes];
            shared.read(body, offset, &mut to).await?;
            Ok(to)
        });
        read.in_child(|| Err(Error::Forked))
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Freed`], [`Error::Leased`] while somebody has any lease; those of the store:
    /// then nothing was written.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.shared.is_here()?;
        let body = &self.handle.body;
        Shared::inside(body, offset, from.len() as u64)?;
        if let Some(_turn) = body.turn.try_write()
            && matches!(self.shared.write_memory(body, offset, from), Ok(Some(())))
        {
            return Ok(());
        }
        // Also what is refused: a copy that began beside a reader is waited for.
        self.shared.tasks.block_on(|| self.write_async(offset, from.to_vec()))
    }

    /// The same, with memory that is given. Begun at once, whether or not it is awaited.
    pub fn write_async(&self, offset: u64, from: Vec<u8>) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.clone());
        let written = self.shared.tasks.spawn(async move { shared.write(&buffer.handle.body, offset, &from).await });
        written.in_child(|| Err(Error::Forked))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes()).field("name", &self.name()).finish_non_exhaustive()
    }
}
