//! Moves of a buffer's bytes to where an access needs them: allocates memory, copies, waits for the stream.
//!
//! Promises upward: a move that fails leaves the newest bytes where they were and returns an error; the next call
//! repeats it.
//! Asks from below: copies in the order of one stream, to which both blocks belong.

use super::{DEVICE, FallbackBuffer, HOST, InStream};
use crate::block::DeviceBlock;
use crate::error::DeviceError;
use bytemuck::Pod;
use terrace_core::residence::{ResidenceError, Transition};

/// When to allocate on a full device again. A failed attempt is expensive: before it fails, it empties caches and waits
/// for fences. So after the first failure one call makes no attempt, after the next two calls, then four, up to
/// [`Retry::LONGEST`].
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Number of calls that make no attempt after the last failure; 0: the last attempt succeeded.
    pause: u32,
    /// How many of these calls are still to come.
    left: u32,
}

impl Retry {
    /// An attempt takes some 100 microseconds and a call without one 0.1: one attempt in a thousand calls at most
    /// doubles that.
    const LONGEST: u32 = 1024;

    /// Whether this call should attempt to allocate; counts the call.
    fn due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    fn refused(&mut self) {
        self.pause = (self.pause * 2).clamp(1, Self::LONGEST);
        self.left = self.pause;
    }

    /// Whether the last attempt to allocate failed.
    pub(super) fn full(&self) -> bool {
        self.pause > 0
    }
}

impl<T: Pod> FallbackBuffer<T> {
    /// The block that the device uses.
    pub(super) fn block(&self) -> Result<&DeviceBlock, DeviceError> {
        self.card.as_ref().or(self.host.as_ref()).ok_or_else(lost_track)
    }

    /// The elements in host memory: pointer and number.
    #[inline]
    pub(super) fn elements(&self) -> Result<(*mut T, usize), DeviceError> {
        let block = self.host.as_ref().ok_or_else(lost_track)?;
        Ok((std::ptr::with_exposed_provenance_mut(block.address() as usize), self.len))
    }

    /// Copies the newest elements to host memory if it lacks them; waits until no work in flight uses it.
    #[cold]
    pub(super) fn fetch(&mut self) -> Result<(), DeviceError> {
        self.stats.touch();
        self.block()?.not_captured()?;
        if !self.residence.valid(HOST) {
            if self.host.is_none() {
                let block = self.at.allocate_pinned(&self.stream, self.bytes(), align_of::<T>() as u64)?;
                self.residence.apply(Transition::Reserve(HOST))?;
                self.host = Some(block);
            }
            let (Some(host), Some(card)) = (&self.host, &self.card) else { return Err(lost_track()) };
            // Set first: even a copy that the driver refuses may have started.
            self.flight = InStream::Writes;
            host.copy_shared(0, card, 0, self.bytes())?;
            host.finish()?;
            self.residence.apply(Transition::Copy { from: DEVICE, to: HOST })?;
            self.stats.fetched(self.bytes());
        } else if let Some(host) = &self.host {
            host.finish()?;
        }
        self.flight = InStream::Done;
        Ok(())
    }

    /// Copies the newest elements to device memory if it lacks them, unless the device uses the host memory.
    #[inline]
    pub(super) fn settle(&mut self) -> Result<(), DeviceError> {
        if self.shared || self.residence.valid(DEVICE) {
            self.stats.hit();
            return Ok(());
        }
        self.send()
    }

    #[cold]
    fn send(&mut self) -> Result<(), DeviceError> {
        self.stats.touch();
        if self.card.is_none() && !self.take()? {
            self.stats.fallbacks += 1;
            return Ok(());
        }
        let (Some(host), Some(card)) = (&self.host, &self.card) else { return Err(lost_track()) };
        host.not_captured()?;
        card.others_done()?;
        // The host must not write what the copy reads. Set first: even a copy that the driver refuses may have started.
        self.flight = self.flight.max(InStream::Reads);
        for &(from, to) in self.dirty.list() {
            let (start, bytes) = ((from * size_of::<T>()) as u64, ((to - from) * size_of::<T>()) as u64);
            card.copy_shared(start, host, start, bytes)?;
            self.stats.sent(bytes);
        }
        self.residence.apply(Transition::Copy { from: HOST, to: DEVICE })?;
        self.dirty.clear();
        Ok(())
    }

    /// Allocates device memory and marks all elements dirty. False if the device has no room, or had none a moment ago.
    fn take(&mut self) -> Result<bool, DeviceError> {
        self.block()?.not_captured()?;
        if self.bytes() > self.at.description().total || !self.retry.due() {
            self.retry.pause = self.retry.pause.max(1);
            return Ok(false);
        }
        match self.at.allocate_aligned(&self.stream, self.bytes(), align_of::<T>() as u64) {
            // A fallback block would be pinned host memory, which this buffer has already.
            Ok(block) if !block.is_fallback() => {
                self.residence.apply(Transition::Reserve(DEVICE))?;
                self.card = Some(block);
                self.dirty.insert(0, self.len);
                self.retry = Retry::default();
                Ok(true)
            }
            Ok(_) | Err(DeviceError::OutOfMemory(_)) => {
                self.retry.refused();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Error for a block that `residence` calls present and that is missing: the two change together, so no caller sees it.
/// Returned instead of a panic.
#[cold]
fn lost_track() -> DeviceError {
    DeviceError::Residence(ResidenceError::NotPresent)
}
