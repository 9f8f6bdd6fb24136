//! What is done when a side is not there: memory is taken, bytes are copied, the stream is waited for.
//!
//! Promises upward: a move that fails leaves the newest bytes where they were and says so: the next call makes it again.
//! Asks from below: copies in the order of one stream, which both blocks belong to.

use super::{DEVICE, FallbackBuffer, HOST, InStream};
use crate::block::DeviceBlock;
use crate::error::DeviceError;
use bytemuck::Pod;
use terrace_core::residence::{ResidenceError, Transition};

/// When a full device is asked again. To ask it is dear: before it refuses it empties caches and waits for fences. So the
/// first refusal is followed by one call that does not ask, the next by two, four, up to [`Retry::LONGEST`].
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Calls that do not ask, after the next refusal; 0: the device was not full when it was last asked.
    pause: u32,
    /// Of these, still to come.
    left: u32,
}

impl Retry {
    /// One call in a thousand: asking takes some 100 microseconds, a call a tenth of one.
    const LONGEST: u32 = 1024;

    /// Whether this call asks.
    fn due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    fn refused(&mut self) {
        self.pause = (self.pause * 2).clamp(1, Self::LONGEST);
        self.left = self.pause;
    }

    /// Whether the last answer was a refusal.
    pub(super) fn full(&self) -> bool {
        self.pause > 0
    }
}

impl<T: Pod> FallbackBuffer<T> {
    /// The block that the device uses.
    pub(super) fn block(&self) -> Result<&DeviceBlock, DeviceError> {
        self.card.as_ref().or(self.host.as_ref()).ok_or_else(lost_track)
    }

    /// The host's elements.
    #[inline]
    pub(super) fn elements(&self) -> Result<(*mut T, usize), DeviceError> {
        let block = self.host.as_ref().ok_or_else(lost_track)?;
        Ok((std::ptr::with_exposed_provenance_mut(block.address() as usize), self.len))
    }

    /// Makes the host's memory the newest, with nothing in flight on it.
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
            // Also a copy that is refused may have begun.
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

    /// Makes the device's memory the newest, unless the device uses the host's.
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
        // The host may not write what is being read; also a copy that is refused may have begun.
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

    /// Takes memory of the device, all of it to be written. False when it has none, or was full a moment ago.
    fn take(&mut self) -> Result<bool, DeviceError> {
        self.block()?.not_captured()?;
        if self.bytes() > self.at.description().total || !self.retry.due() {
            self.retry.pause = self.retry.pause.max(1);
            return Ok(false);
        }
        match self.at.allocate_aligned(&self.stream, self.bytes(), align_of::<T>() as u64) {
            // The device's own fallback is pinned memory: this buffer has some already.
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

/// Residence and memory are kept together here: this is never seen, and better than a panic.
#[cold]
fn lost_track() -> DeviceError {
    DeviceError::Residence(ResidenceError::NotPresent)
}
