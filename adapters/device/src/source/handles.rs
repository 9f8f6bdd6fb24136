//! The driver calls that back a range with handles, or take them away; no lock of the pool is needed for them.

use super::BackendContext;
use crate::backend::{Backend, PhysicalHandle};
use crate::fault::{Fault, FaultReason};
use crate::health::insist;

/// Physical memory by one handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped {
    pub(super) bytes: u64,
    pub(super) handle: PhysicalHandle,
}

/// Makes the driver calls for ranges of reserved space, and counts them.
pub(super) struct Mapper<'a, B: Backend> {
    pub(super) context: &'a BackendContext<B>,
    /// Size of a page in bytes.
    pub(super) page: u64,
    /// Ordinals of other devices that may access the memory.
    pub(super) peers: &'a [u32],
    /// Driver calls made.
    pub(super) calls: u64,
}

impl<B: Backend> Mapper<'_, B> {
    /// Maps handles in order from `start` on, and grants the peers access. Maps all of them or none. Caller must have judged the range:
    /// whole pages of reserved space, nothing mapped in it.
    pub(super) fn put(&mut self, start: u64, handles: &[Mapped]) -> Result<(), Fault> {
        let mut bytes = 0;
        for mapped in handles {
            self.calls += 1;
            // SAFETY: the caller found nothing mapped in the range, which is whole pages of reserved space; the handles fill it.
            if let Err(fault) = unsafe { self.context.backend.map(start + bytes, mapped.bytes, mapped.handle) } {
                self.take_out(start, bytes);
                return Err(fault);
            }
            bytes += mapped.bytes;
        }
        self.calls += 1;
        // SAFETY: the loop above mapped the whole range.
        let allowed = unsafe { self.context.backend.allow(start, bytes, self.peers) };
        allowed.inspect_err(|_| self.take_out(start, bytes))
    }

    /// Unmaps handles that [`Self::put`] mapped; they stay allocated.
    pub(super) fn take_out(&mut self, start: u64, bytes: u64) {
        if bytes > 0 {
            self.calls += 1;
            // SAFETY: `put` has just mapped the range, and no work has used it.
            let _ = insist(|| unsafe { self.context.backend.unmap(start, bytes) });
        }
    }

    pub(super) fn release(&mut self, handles: &[Mapped]) {
        for mapped in handles {
            self.calls += 1;
            // SAFETY: `create` made the handle; it has just left the table, or was never in it. A refused call released
            // nothing.
            let _ = insist(|| unsafe { self.context.backend.release_handle(mapped.handle) });
        }
    }

    /// Allocates `bytes` bytes in handles of `most` bytes. Where the driver has no memory for one, it gets half as
    /// large a one.
    pub(super) fn create(&mut self, bytes: u64, mut most: u64) -> Result<Vec<Mapped>, Fault> {
        let (mut handles, mut missing) = (Vec::new(), bytes);
        while missing > 0 {
            let bytes = missing.min(most);
            self.calls += 1;
            match self.context.backend.create_handle(bytes) {
                Ok(handle) => {
                    handles.push(Mapped { bytes, handle });
                    missing -= bytes;
                }
                Err(fault) if fault.reason == FaultReason::OutOfMemory && bytes > self.page => {
                    most = ((bytes / 2) & !(self.page - 1)).max(self.page);
                }
                Err(fault) => {
                    self.release(&handles);
                    return Err(fault);
                }
            }
        }
        Ok(handles)
    }
}

/// A range to map, which [`MappedPages`](super::MappedPages) took for it alone.
pub(crate) struct MapJob {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Most bytes of a handle.
    pub(super) most: u64,
    pub(super) page: u64,
    pub(super) peers: Vec<u32>,
}

/// A range that is mapped, and what that took.
pub(crate) struct MapDone {
    pub(super) start: u64,
    pub(super) handles: Vec<Mapped>,
    pub(super) calls: u64,
}

impl MapJob {
    /// Maps the range, and fills it with zeros if `zero`.
    ///
    /// # Errors
    /// The number of driver calls, if one was refused: nothing is mapped then.
    pub(crate) fn run<B: Backend>(&self, context: &BackendContext<B>, zero: bool) -> Result<MapDone, u64> {
        let mut mapper = Mapper { context, page: self.page, peers: &self.peers, calls: 0 };
        context.health.check().map_err(|_| 0_u64)?;
        let made = context.afford(self.bytes, || mapper.create(self.bytes, self.most));
        let Ok(Ok(handles)) = made.map(|made| made.map_err(|fault| context.health.note(fault))) else {
            return Err(mapper.calls);
        };
        let ready = mapper.put(self.start, &handles).and_then(|()| {
            // SAFETY: mapped in the line above, and not used yet.
            let zeroed = if zero { unsafe { context.zero(self.start, self.bytes) } } else { Ok(()) };
            zeroed.inspect_err(|_| mapper.take_out(self.start, self.bytes))
        });
        if ready.map_err(|fault| context.health.note(fault)).is_err() {
            mapper.release(&handles);
            return Err(mapper.calls);
        }
        Ok(MapDone { start: self.start, handles, calls: mapper.calls })
    }
}

impl MapDone {
    /// Unmaps the range again; returns the number of driver calls since it was begun.
    pub(crate) fn undo<B: Backend>(self, context: &BackendContext<B>) -> u64 {
        let mut mapper = Mapper { context, page: 0, peers: &[], calls: self.calls };
        mapper.take_out(self.start, self.handles.iter().map(|mapped| mapped.bytes).sum());
        mapper.release(&self.handles);
        mapper.calls
    }
}
