//! A buffer that this process holds: its slot among the holders, and its leases.
//!
//! Promises upward: a lease excludes other leases as its kind says, between threads and between processes; a dead holder's lease
//! and slot are free at once.
//! Asks from below: locks of a description for what processes exclude, a mutex for what threads do.

use crate::backing::Backing;
use crate::error::ShmError;
use crate::layout::{BufferHeader, SLOTS, TURN, WRITING, halves, slot_word, whole};
use crate::locks::{LockFile, LockName};
use crate::server::Served;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a waiter for a file sleeps at first.
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// What a holder does with the buffer at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseKind {
    /// Nothing.
    None,
    /// Reads, beside others.
    Read,
    /// Writes, alone.
    Write,
}

/// A process that holds a buffer, or held it when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process, as its own PID namespace numbers it.
    pub pid: u32,
    /// When it opened the buffer.
    pub since: SystemTime,
    /// Whether it created the buffer.
    pub is_creator: bool,
    /// Whether it still holds the buffer: false after its death, exact at every moment.
    pub alive: bool,
    /// Its lease; for a dead holder the one it died with.
    pub lease: LeaseKind,
}

/// How long a caller waits for a lease.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// For ever.
    Endless,
    /// Not after this moment; the duration is for the error.
    Until(Instant, Duration),
}

impl Patience {
    /// So long from now.
    pub fn of(duration: Duration) -> Self {
        Instant::now().checked_add(duration).map_or(Self::Endless, |until| Self::Until(until, duration))
    }

    /// What is left; `None` for nothing.
    fn left(self) -> Option<Duration> {
        match self {
            Self::Endless => Some(Duration::MAX),
            Self::Until(until, _) => until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()),
        }
    }
}

/// Leases of this process on one description.
#[derive(Debug, Default)]
struct LocalLeases {
    /// Read leases; the description has the lock shared while there are any.
    readers: u32,
    /// Whether there is a write lease; the description has the lock exclusively. Then `readers` is 0.
    writer: bool,
    /// Whether a thread waits at the head of the queue; the description has the lock `Queue`.
    queued: bool,
}

/// A waiter's place: at the head of the queue, or not yet.
struct QueuePlace<'a> {
    buffer: &'a OpenBuffer,
    head: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if self.head {
            self.buffer.lock().queued = false;
            self.buffer.locks.unlock(LockName::Queue);
            self.buffer.backing.wake();
        }
    }
}

/// A buffer, open in this process. Dropping it ends the hold.
#[derive(Debug)]
pub struct OpenBuffer {
    /// Dropped first: from then on this process answers no opener.
    pub served: Option<Served>,
    /// The memory.
    pub backing: Backing,
    /// The header, as it was when the buffer was opened.
    pub header: BufferHeader,
    /// A description that no other process has.
    locks: LockFile,
    /// The slot whose lock this description holds.
    slot: u32,
    local: Mutex<LocalLeases>,
}

/// Takes a free slot in the table of holders: the first whose lock no other description has.
pub fn take_slot(backing: &Backing, locks: &LockFile, since: u64) -> Result<u32, ShmError> {
    for slot in 0..SLOTS as u32 {
        if locks.try_exclusive(LockName::Slot(slot))? {
            let word = slot_word(slot);
            let [low, high] = halves(since);
            // The process last: a slot without one is skipped by those that list holders.
            let words = [(word, 0), (word + 1, low), (word + 2, high), (word + 3, 0), (word, std::process::id())];
            words.iter().try_for_each(|(word, value)| backing.store(*word, *value))?;
            return Ok(slot);
        }
    }
    Err(ShmError::Full { name: backing.name.text(), slots: SLOTS })
}

/// Milliseconds since 1970.
pub fn milliseconds() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_millis() as u64)
}

impl OpenBuffer {
    /// A buffer whose slot is taken.
    pub fn new(backing: Backing, header: BufferHeader, locks: LockFile, slot: u32) -> Self {
        Self { served: None, backing, header, locks, slot, local: Mutex::default() }
    }

    /// Takes a lease, and waits for it.
    ///
    /// One that waits comes before all that ask later, but for one other that waits.
    pub fn acquire(&self, kind: LeaseKind, patience: Patience) -> Result<(), ShmError> {
        let (mut pause, mut place) = (FIRST_PAUSE, QueuePlace { buffer: self, head: false });
        loop {
            // Read before the attempt: a release between the two changes it, and the wait ends at once.
            let turn = self.backing.load(TURN)?;
            if self.attempt(kind, &mut place, patience.left().is_some())? {
                return Ok(());
            }
            let Some(left) = patience.left() else {
                let waited = if let Patience::Until(_, waited) = patience { waited } else { Duration::MAX };
                return Err(ShmError::Busy { name: self.backing.name.text(), waited });
            };
            self.backing.wait(turn, left, &mut pause);
        }
    }

    /// Tries to take a lease; otherwise, if the caller `waits`, tries to get to the head of the queue.
    fn attempt(&self, kind: LeaseKind, place: &mut QueuePlace<'_>, waits: bool) -> Result<bool, ShmError> {
        let mut local = self.lock();
        let first = place.head || (!local.queued && !self.locks.is_held_elsewhere(LockName::Queue)?);
        if first && self.try_acquire(&mut local, kind)? {
            return Ok(true);
        }
        if waits && !place.head && !local.queued && self.locks.try_exclusive(LockName::Queue)? {
            (local.queued, place.head) = (true, true);
        }
        Ok(false)
    }

    fn try_acquire(&self, local: &mut LocalLeases, kind: LeaseKind) -> Result<bool, ShmError> {
        if local.writer || (local.readers > 0 && kind == LeaseKind::Write) {
            return Ok(false);
        }
        let taken = match kind {
            LeaseKind::Write => self.locks.try_exclusive(LockName::Lease)?,
            _ if local.readers > 0 => true,
            _ => self.locks.try_shared(LockName::Lease)?,
        };
        if taken {
            local.writer = kind == LeaseKind::Write;
            local.readers += u32::from(kind != LeaseKind::Write);
            self.tell(kind);
        }
        Ok(taken)
    }

    /// Releases a lease. Caller must have acquired one of this kind.
    pub fn release(&self, kind: LeaseKind) {
        let mut local = self.lock();
        local.writer = false;
        local.readers -= u32::from(kind != LeaseKind::Write);
        if local.readers == 0 {
            self.tell(LeaseKind::None);
            self.locks.unlock(LockName::Lease);
            self.backing.wake();
        }
    }

    /// Writes this holder's lease into its slot, for statistics: what cannot be written is not told.
    fn tell(&self, kind: LeaseKind) {
        _ = self.backing.store(slot_word(self.slot) + 3, kind as u32);
    }

    /// The process that died or panicked inside a write lease.
    pub fn torn_by(&self) -> Result<Option<u32>, ShmError> {
        let pid = self.backing.load(WRITING)?;
        Ok((pid != 0).then_some(pid))
    }

    /// Marks the bytes as being written. Caller must have the write lease.
    pub fn begin_writing(&self) -> Result<(), ShmError> {
        self.backing.store(WRITING, std::process::id())
    }

    /// Marks the bytes as whole. Caller must have the write lease.
    pub fn end_writing(&self) -> Result<(), ShmError> {
        self.backing.store(WRITING, 0)
    }

    /// All holders, living and dead. Up to 64 questions to the kernel.
    pub fn holders(&self) -> Result<Vec<Holder>, ShmError> {
        (0..SLOTS as u32).filter_map(|slot| self.holder(slot).transpose()).collect()
    }

    /// The creator. Its slot may be another holder's by now.
    pub fn creator(&self) -> Result<Holder, ShmError> {
        let at_slot = self.holder(self.header.creator_slot)?.filter(|holder| holder.is_creator);
        Ok(at_slot.unwrap_or(Holder {
            pid: self.header.creator_pid,
            since: moment(self.header.since),
            is_creator: true,
            alive: false,
            lease: LeaseKind::None,
        }))
    }

    fn holder(&self, slot: u32) -> Result<Option<Holder>, ShmError> {
        let word = slot_word(slot);
        let pid = self.backing.load(word)?;
        if pid == 0 {
            return Ok(None);
        }
        let since = whole(self.backing.load(word + 1)?, self.backing.load(word + 2)?);
        let lease = match self.backing.load(word + 3)? {
            1 => LeaseKind::Read,
            2 => LeaseKind::Write,
            _ => LeaseKind::None,
        };
        let alive = slot == self.slot || self.locks.is_held_elsewhere(LockName::Slot(slot))?;
        let header = &self.header;
        let is_creator = (slot, pid, since) == (header.creator_slot, header.creator_pid, header.since);
        Ok(Some(Holder { pid, since: moment(since), is_creator, alive, lease }))
    }

    fn lock(&self) -> MutexGuard<'_, LocalLeases> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenBuffer {
    fn drop(&mut self) {
        self.served = None;
        _ = self.backing.store(slot_word(self.slot), 0);
        self.locks.unlock_all();
        self.backing.wake();
    }
}

/// A moment from a number of another process's, which may be any.
fn moment(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}
