//! Memory of a backend as a source for the core's arena: pages where the device can map them, whole regions elsewhere.
//!
//! Promises upward: the core's contract of [`Source`]; no call reserves memory above the limit; the driver's last
//! refusal is kept for the user's error; before memory is moved or released, no work in flight uses it.
//! Asks from below: a [`Backend`], and [`Fences`] that know which work is in flight.

mod handles;
mod pages;
mod regions;

pub(crate) use handles::{MapDone, MapJob};
pub(crate) use pages::MappedPages;
pub(crate) use regions::{Regions, TakeJob};

use crate::backend::{Backend, RawStream};
use crate::capability::Capabilities;
use crate::fault::Fault;
use crate::fences::Fences;
use crate::health::{DeviceHealth, insist};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// What both kinds of source use.
pub(crate) struct BackendContext<B: Backend> {
    pub(crate) backend: Arc<B>,
    pub(crate) fences: Fences<B>,
    pub(crate) health: Arc<DeviceHealth>,
    /// Bytes of free memory to leave to other users, where the device shares the host's memory.
    pub(crate) min_free: u64,
    /// Held from the look at that memory until what it was for is taken.
    pub(crate) affording: Arc<Mutex<()>>,
}

impl<B: Backend> Clone for BackendContext<B> {
    fn clone(&self) -> Self {
        let Self { backend, fences, health, min_free, affording } = self;
        Self {
            backend: Arc::clone(backend),
            fences: fences.clone(),
            health: Arc::clone(health),
            min_free: *min_free,
            affording: Arc::clone(affording),
        }
    }
}

impl<B: Backend> BackendContext<B> {
    /// Takes `bytes` bytes by `take`; fails if the machine has too little free memory. Where device and host share memory, the driver
    /// hands out more than there is, and the system then kills a process.
    fn afford<R>(&self, bytes: u64, take: impl FnOnce() -> R) -> Result<R, SourceError> {
        if !self.backend.description().capabilities.contains(Capabilities::FREE_IS_AVAILABLE) {
            return Ok(take());
        }
        let _turn = self.affording.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.backend.memory().map_err(|fault| self.health.note(fault))?.free;
        let available = free.saturating_sub(self.min_free);
        if bytes <= available { Ok(take()) } else { Err(SourceError::OutOfMemory { available }) }
    }

    /// Fills fresh memory with zeros and waits, on a new stream, since the default stream synchronises with other
    /// streams.
    ///
    /// # Safety
    /// The range must be fresh memory of the backend, not used yet.
    unsafe fn zero(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        let backend = &*self.backend;
        let stream = backend.create_stream().map_err(|fault| self.health.note(fault))?;
        // SAFETY: the caller's promise.
        let filled = unsafe { backend.fill(address, 0, bytes, stream) };
        let waited = settle(backend, stream).map_err(|fault| self.health.note(fault));
        destroy(backend, stream);
        waited.and(filled)
    }
}

/// Waits for a stream, which the caller must hold. As the caller may reuse memory afterwards, a wait that fails for a
/// temporary reason is repeated, at last as a wait for the whole device.
///
/// # Errors
/// The driver's error, if it refuses every attempt.
pub(crate) fn wait<B: Backend + ?Sized>(backend: &B, stream: RawStream) -> Result<(), Fault> {
    /// Number of attempts to wait for the stream alone, before waiting for the device.
    const TRIES: usize = 4;
    // SAFETY: the caller holds the stream: a `StreamCore`'s, a lane's, or its own.
    let ask = || unsafe { backend.synchronize_stream(stream) };
    let mut last = ask();
    for _ in 1..TRIES {
        match last {
            Err(fault) if !fault.is_fatal() => last = ask(),
            last => return last,
        }
    }
    last.or_else(|fault| if fault.is_fatal() { Err(fault) } else { insist(|| backend.synchronize()) })
}

/// Destroys a stream that the caller created and nothing uses any more. If the driver refuses twice, the stream is
/// destroyed with the device.
pub(crate) fn destroy<B: Backend + ?Sized>(backend: &B, stream: RawStream) {
    // SAFETY: made by the caller, which destroys it with this one call; a refused call destroyed nothing.
    let _ = insist(|| unsafe { backend.destroy_stream(stream) });
}

/// Waits as [`wait`] does, before memory is reused. If the wait fails, work may still be in flight, so the fault
/// becomes fatal; except if a graph capture prevents the wait: work put on the stream is then part of the capture.
/// # Errors
/// As for [`wait`].
pub(crate) fn settle<B: Backend + ?Sized>(backend: &B, stream: RawStream) -> Result<(), Fault> {
    wait(backend, stream).map_err(Fault::unproven)
}

/// Bytes that may still be reserved; `u64::MAX` without a limit.
fn left(usage: &SourceUsage) -> u64 {
    if usage.capacity == 0 { u64::MAX } else { usage.capacity.saturating_sub(usage.reserved) }
}

/// The source of an arena on a device.
pub(crate) enum DeviceSource<B: Backend> {
    Pages(MappedPages<B>),
    Regions(Regions<B>),
}

impl<B: Backend> DeviceSource<B> {
    /// Removes and returns the driver's last refusal.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        match self {
            Self::Pages(source) => source.fault.take(),
            Self::Regions(source) => source.fault.take(),
        }
    }

    /// Bytes of the source's own records: twice its table's entries, since nodes of a B-tree are at least half full.
    pub(crate) fn metadata(&self) -> u64 {
        let entry = match self {
            Self::Pages(source) => source.table() * size_of::<(u64, handles::Mapped)>(),
            Self::Regions(source) => source.table() * size_of::<(u64, Region)>(),
        };
        2 * entry as u64
    }

    /// Lets regions that were kept for a graph be released from now on.
    pub(crate) fn let_go(&mut self) {
        if let Self::Regions(source) = self {
            source.let_go();
        }
    }

    /// What maps a range that [`Source::map_later`] took, without the source.
    pub(crate) fn job(&self, start: u64) -> Option<MapJob> {
        match self {
            Self::Pages(source) => source.job(start),
            Self::Regions(_) => None,
        }
    }

    /// Adds ranges that were mapped meanwhile.
    pub(crate) fn mapped_later(&mut self, done: Vec<MapDone>) {
        if let Self::Pages(source) = self {
            done.into_iter().for_each(|done| source.mapped_later(done));
        }
    }

    /// What takes a region that [`Source::take_later`] asked for, without the source.
    pub(crate) fn take_job(&self, bytes: u64) -> Option<TakeJob> {
        match self {
            Self::Pages(_) => None,
            Self::Regions(source) => Some(source.take_job(bytes)),
        }
    }

    /// Adds a region that was taken meanwhile.
    pub(crate) fn taken_later(&mut self, base: u64, bytes: u64) {
        if let Self::Regions(source) = self {
            source.taken_later(base, bytes);
        }
    }

    /// Counts driver calls for what was cancelled.
    pub(crate) fn count_calls(&mut self, calls: u64) {
        match self {
            Self::Pages(source) => source.usage.calls += calls,
            Self::Regions(source) => source.usage.calls += calls,
        }
    }

    /// Sets the limit in bytes, 0 for none. Memory over a lower limit stays mapped.
    pub(crate) fn set_capacity(&mut self, bytes: u64) {
        match self {
            Self::Pages(source) => source.usage.capacity = bytes,
            Self::Regions(source) => source.usage.capacity = bytes,
        }
    }

    /// Lets another device access this source's memory, present and future.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn share(&mut self, ordinal: u32) -> Result<(), Fault> {
        match self {
            Self::Pages(source) => source.share(ordinal),
            // The driver grants access to a whole context, so to all regions.
            Self::Regions(_) => Ok(()),
        }
    }
}

/// Forwards a call to the source of either kind.
macro_rules! both {
    ($self:ident, $source:ident => $call:expr) => {
        match $self {
            Self::Pages($source) => $call,
            Self::Regions($source) => $call,
        }
    };
}

impl<B: Backend> Source for DeviceSource<B> {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        both!(self, source => source.take(bytes))
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        both!(self, source => source.give_back(region))
    }

    fn page_bytes(&self) -> u64 {
        both!(self, source => source.page_bytes())
    }

    fn whole_handles(&self, region: Region, offset: u64, bytes: u64, enough: u64, most: u64) -> (u64, u64) {
        both!(self, source => source.whole_handles(region, offset, bytes, enough, most))
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        both!(self, source => source.reserve(bytes))
    }

    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.map(region, offset, bytes))
    }

    fn take_later(&mut self, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.take_later(bytes))
    }

    fn cancel_take(&mut self, bytes: u64) {
        both!(self, source => source.cancel_take(bytes))
    }

    fn map_later(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.map_later(region, offset, bytes))
    }

    fn cancel_later(&mut self, region: Region, offset: u64, bytes: u64) {
        both!(self, source => source.cancel_later(region, offset, bytes));
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.unmap(region, offset, bytes))
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.shift(region, from, to, bytes))
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        both!(self, source => source.zero(address, bytes))
    }

    fn usage(&self) -> SourceUsage {
        both!(self, source => source.usage())
    }
}
