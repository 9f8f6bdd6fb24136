//! Buffers that are used in a given order: so many are fetched ahead, and each is dropped behind.
//!
//! Promises upward: while a buffer is leased, the next ones are on their way; none of them is evicted before its turn, as
//! long as anything else can leave; a buffer whose turn has passed is the first to leave.
//! Asks from below: prefetches.

use super::error::Error;
use super::lease::Lease;
use super::{Buffer, Manager};

/// A pass over buffers in a given order, made by [`Manager::sequence`].
///
/// # Example
/// ```
/// use terrace_tiers::Manager;
///
/// let directory = tempfile::tempdir()?;
/// // Four layers, in memory for three.
/// let manager = Manager::builder().memory(3 << 20).directory_of(directory.path(), 64 << 20).build()?;
/// let layers: Vec<_> = (0..4).map(|_| manager.allocate(1 << 20)).collect::<Result<_, _>>()?;
/// let mut pass = manager.sequence(&layers, 1)?;
/// while let Some(layer) = pass.lease_next() {
///     println!("{} bytes", layer?.len()); // the next layer is being read meanwhile
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sequence {
    manager: Manager,
    buffers: Vec<Buffer>,
    /// How many buffers are fetched ahead of the one in use.
    ahead: usize,
    /// The buffer whose turn is next.
    next: usize,
    /// The first buffer that was not fetched yet: at least `next`, or at the beginning.
    unfetched: usize,
}

impl Manager {
    /// Begins a pass over `buffers` in this order: fetches the first ones, `ahead` of them.
    ///
    /// Memory should have room for the buffer in use and `ahead` more, or prefetches are not met: see
    /// [`prefetch_stats`](Self::prefetch_stats).
    ///
    /// # Errors
    /// [`Error::OtherManager`].
    pub fn sequence(&self, buffers: &[Buffer], ahead: usize) -> Result<Sequence, Error> {
        self.shared.check_process()?;
        buffers.iter().try_for_each(|buffer| self.shared_of(buffer).map(drop))?;
        let mut pass = Sequence { manager: self.clone(), buffers: buffers.to_vec(), ahead, next: 0, unfetched: 0 };
        pass.fetch();
        Ok(pass)
    }
}

impl Sequence {
    /// Fetches the buffers whose turn comes soon.
    fn fetch(&mut self) {
        let end = self.next.saturating_add(self.ahead).min(self.buffers.len());
        for buffer in &self.buffers[self.unfetched.min(end)..end] {
            // A buffer that was freed, or for which there is no room, says so when its turn comes.
            let _ = self.manager.prefetch(buffer);
        }
        self.unfetched = self.unfetched.max(end);
    }

    /// Drops the last buffer behind, and moves on; returns the index of the buffer whose turn it is.
    fn advance(&mut self) -> Option<usize> {
        if let Some(last) = self.next.checked_sub(1).and_then(|last| self.buffers.get(last)) {
            self.manager.shared.drop_behind(&last.handle.buffer);
        }
        let at = self.next;
        self.next = (at + 1).min(self.buffers.len() + 1);
        self.unfetched = self.unfetched.max(self.next);
        (at < self.buffers.len()).then_some(at)
    }

    /// Leases the next buffer in memory; `None` after the last one.
    ///
    /// # Errors
    /// As [`Buffer::lease_best`]: the pass has then moved on to the buffer behind.
    pub fn lease_next(&mut self) -> Option<Result<Lease<'_>, Error>> {
        if let Err(error) = self.manager.shared.check_process() {
            return Some(Err(error));
        }
        let at = self.advance()?;
        self.fetch();
        Some(self.buffers[at].lease_best())
    }

    /// As [`lease_next`](Self::lease_next), as a future.
    ///
    /// # Errors
    /// As [`lease_next`](Self::lease_next).
    pub async fn lease_next_async(&mut self) -> Option<Result<Lease<'_>, Error>> {
        if let Err(error) = self.manager.shared.check_process() {
            return Some(Err(error));
        }
        let at = self.advance()?;
        self.fetch();
        Some(self.buffers[at].lease_best_async().await)
    }

    /// Begins the pass again, with the first buffer.
    pub fn rewind(&mut self) {
        (self.next, self.unfetched) = (0, 0);
        self.fetch();
    }
}
