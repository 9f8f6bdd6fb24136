//! Bytes in and out: copies between memory that the caller lends and a block, which are done when the call returns.
//!
//! Promises upward: whatever the driver says or does, it touches no lent memory after the call: it was never given any, unless
//! its copies are done when it returns from them.
//! Asks from below: a [`StagingBuffer`], which outlives what a driver cannot say is done.

use super::DevicePool;
use crate::backend::{Backend, CopyRange, RawStream};
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::source::wait;
use crate::staging::StagingBuffer;
use crate::stream::HostSlice;
use std::sync::{Arc, PoisonError};

/// Bytes of a piece: large enough that a transfer's own cost (10 microseconds) is a few percent of it at 25 GB/s.
const PIECE: u64 = 4 << 20;

/// Bytes of the least stage: what a driver pins for one byte, too.
const LEAST: u64 = 64 << 10;

impl<B: Backend> DevicePool<B> {
    /// Copies between host and device and waits. The device's range is inside a live block, which the caller borrows.
    pub(super) fn transfer(&self, mut host: HostSlice<'_>, device: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        let (range, up) = host.range(device);
        let at_once = self.context.backend.description().capabilities.contains(Capabilities::SYNCHRONOUS);
        let moved = if at_once {
            // SAFETY: the host's side is borrowed until this function returns, the device's lies in a block that is, too.
            unsafe { self.at_once(range, stream) }
        } else {
            // SAFETY: as above.
            unsafe { self.staged(range, up, stream) }
        };
        moved.map_err(|fault| self.driver(fault))
    }

    /// By the driver itself, whose copies are done when they return.
    ///
    /// # Safety
    /// Both sides are live and the caller's until this returns.
    unsafe fn at_once(&self, range: CopyRange, stream: RawStream) -> Result<(), Fault> {
        let CopyRange { to, from, bytes } = range;
        // SAFETY: the caller's promise; a synchronous backend touches neither side after this call.
        let copied = unsafe { self.context.backend.copy(to, from, bytes, stream) };
        copied.and(wait(&*self.context.backend, stream))
    }

    /// By way of a stage, a piece at a time.
    ///
    /// # Safety
    /// As for [`DevicePool::at_once`].
    unsafe fn staged(&self, range: CopyRange, up: bool, stream: RawStream) -> Result<(), Fault> {
        let mut stage = self.take_stage(range.bytes.min(PIECE))?;
        for start in (0..range.bytes).step_by(PIECE as usize) {
            let bytes = (range.bytes - start).min(PIECE);
            let piece = CopyRange { to: range.to + start, from: range.from + start, bytes };
            if up {
                // SAFETY: the caller's promise for the source; the last piece was waited for.
                unsafe { stage.fill(&[piece]) };
            }
            for CopyRange { to, from, bytes } in stage.lend(&[piece], up) {
                // SAFETY: the stage stays as it is until a wait proved that this is done; the caller's promise for the block,
                // whose memory is not reused before this stream is done.
                let copied = unsafe { self.context.backend.copy(to, from, bytes, stream) };
                // Also after a refusal: the driver may have begun. Refused too, the stage is never used again.
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

    /// A stage of its own.
    pub(super) fn make_stage(&self, bytes: u64) -> Result<StagingBuffer, Fault> {
        let backend = Arc::clone(&self.context.backend);
        StagingBuffer::new(backend, Arc::clone(&self.context.health), bytes)
    }

    /// The stage that is kept, if it is there and large enough; else another.
    fn take_stage(&self, bytes: u64) -> Result<StagingBuffer, Fault> {
        let kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner).take();
        match kept.filter(|stage| stage.bytes() >= bytes) {
            Some(stage) => Ok(stage),
            None => self.make_stage(bytes.next_power_of_two().max(LEAST)),
        }
    }

    /// Keeps a stage for the next copy, in the place of a smaller one.
    fn keep_stage(&self, stage: StagingBuffer) {
        let mut kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let larger = kept.as_ref().is_none_or(|kept| kept.bytes() < stage.bytes());
        let spare = if larger { kept.replace(stage) } else { Some(stage) };
        // Dropping a stage calls the driver: without the lock.
        drop(kept);
        drop(spare);
    }

    /// Gives the stage that is kept back.
    pub(super) fn drop_stage(&self) {
        let kept = self.stage.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(kept);
    }
}
