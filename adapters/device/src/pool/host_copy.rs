//! Copies between memory that the caller lends and a block, which are done when the call returns.
//!
//! Promises upward: after the call the driver touches no lent memory, whatever it returned: it gets the address of lent
//! memory only if its copies are done when they return. All other copies pass through staging memory.
//! Asks from below: a [`StagingBuffer`], which leaks while no wait proves that the driver is done with it.

use super::DevicePool;
use crate::backend::{Backend, CopyRange, RawStream};
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::source::wait;
use crate::staging::StagingBuffer;
use crate::stream::HostSlice;
use std::sync::{Arc, PoisonError};

/// Bytes per piece: large enough that a copy's fixed cost (10 microseconds) is a few percent of its time at 25 GB/s.
const PIECE: u64 = 4 << 20;

/// Size of the smallest staging buffer in bytes: a driver pins as much even for one byte.
const LEAST: u64 = 64 << 10;

impl<B: Backend> DevicePool<B> {
    /// Copies between host memory and address `device`, and waits. The device's range must be in a block the caller
    /// borrows.
    pub(super) fn transfer(&self, mut host: HostSlice<'_>, device: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        let (range, up) = host.range(device);
        let at_once = self.context.backend.description().capabilities.contains(Capabilities::SYNCHRONOUS);
        let moved = if at_once {
            // SAFETY: the host's range is borrowed until this function returns, and so is the block of the device's
            // range.
            unsafe { self.at_once(range, stream) }
        } else {
            // SAFETY: as above.
            unsafe { self.staged(range, up, stream) }
        };
        moved.map_err(|fault| self.driver(fault))
    }

    /// Copies directly, for a driver whose copies are done when they return.
    ///
    /// # Safety
    /// Both ranges must be live and the caller's until this returns.
    unsafe fn at_once(&self, range: CopyRange, stream: RawStream) -> Result<(), Fault> {
        let CopyRange { to, from, bytes } = range;
        // SAFETY: the caller's promise; a synchronous backend touches neither side after this call.
        let copied = unsafe { self.context.backend.copy(to, from, bytes, stream) };
        copied.and(wait(&*self.context.backend, stream))
    }

    /// Copies through staging memory, one piece at a time.
    ///
    /// # Safety
    /// As for [`DevicePool::at_once`].
    unsafe fn staged(&self, range: CopyRange, up: bool, stream: RawStream) -> Result<(), Fault> {
        let mut stage = self.take_stage(range.bytes.min(PIECE))?;
        for start in (0..range.bytes).step_by(PIECE as usize) {
            let bytes = (range.bytes - start).min(PIECE);
            let piece = CopyRange { to: range.to + start, from: range.from + start, bytes };
            if up {
                // SAFETY: the caller's promise for the source; the copy of the last piece was waited for.
                unsafe { stage.fill(&[piece]) };
            }
            for CopyRange { to, from, bytes } in stage.lend(&[piece], up) {
                // SAFETY: the staging buffer stays as it is until a wait proves that this copy is done; the caller's
                // promise for the block, whose memory is not reused before this stream is done.
                let copied = unsafe { self.context.backend.copy(to, from, bytes, stream) };
                // Wait even after a refusal: the copy may have started. If the wait fails too, the staging buffer is
                // never reused.
                wait(&*self.context.backend, stream)?;
                stage.reclaim();
                copied?;
            }
            if !up {
                // SAFETY: the caller's promise for the target; the copy into the stage is done.
                unsafe { stage.empty(std::iter::once(piece)) };
            }
        }
        self.keep_stage(stage);
        Ok(())
    }

    /// Allocates a staging buffer.
    pub(super) fn make_stage(&self, bytes: u64) -> Result<StagingBuffer, Fault> {
        let backend = Arc::clone(&self.context.backend);
        StagingBuffer::new(backend, Arc::clone(&self.context.health), bytes)
    }

    /// Takes the kept staging buffer if it is large enough; otherwise allocates another.
    fn take_stage(&self, bytes: u64) -> Result<StagingBuffer, Fault> {
        let kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept.filter(|stage| stage.bytes() >= bytes) {
            Some(stage) => Ok(stage),
            None => self.make_stage(bytes.next_power_of_two().max(LEAST)),
        }
    }

    /// Keeps a staging buffer for the next copy, unless one as large is kept already.
    fn keep_stage(&self, stage: StagingBuffer) {
        let mut kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let larger = kept.as_ref().is_none_or(|kept| kept.bytes() < stage.bytes());
        let spare = if larger { kept.replace(stage) } else { Some(stage) };
        // Dropping a staging buffer calls the driver, so the lock is released first.
        drop(kept);
        drop(spare);
    }

    /// Frees the kept staging buffer.
    pub(super) fn drop_stage(&self) {
        let kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(kept);
    }
}
