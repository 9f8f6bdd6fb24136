//! Copies between a ring in a device's memory and its shadow in pinned host memory, on one stream.
//!
//! Promises upward: copies are done in the order of the calls; the three strategies differ in where the caller waits.
//! Asks from below: [`Service::copy`](crate::stream::Service), events.
//!
//! Dropping a link does not wait: the memory of ring and shadow is reused once the stream is done.

use super::RingStrategy;
use crate::backend::RawEvent;
use crate::block::DeviceBlock;
use crate::error::DeviceError;
use crate::stream::Stream;
use std::fmt;
use terrace_core::ring::bridge::Link;
use terrace_core::sync::AtomicU32;

/// Access to a ring in a device's memory.
///
/// Only [`send_ring`](super::send_ring) and [`receive_ring`](super::receive_ring) make one.
pub struct DeviceLink {
    /// The memory of the device's ring.
    block: DeviceBlock,
    /// The stream that copies are put on.
    stream: Stream,
    strategy: RingStrategy,
    /// The event that `poll` queries; `Some` for [`RingStrategy::Polled`].
    event: Option<RawEvent>,
    /// Whether a copy was put on the stream since the event was last recorded.
    behind: bool,
}

impl DeviceLink {
    pub(super) fn new(block: DeviceBlock, stream: Stream, strategy: RingStrategy) -> Result<Self, DeviceError> {
        let polled = strategy == RingStrategy::Polled;
        let event = polled.then(|| stream.core().service.create_event()).transpose()?;
        Ok(Self { block, stream, strategy, event, behind: false })
    }

    /// Address of the ring, in the device's address space.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Size of the ring's memory in bytes: at least that of the ring.
    pub fn bytes(&self) -> u64 {
        self.block.bytes()
    }

    /// How copies are made and waited for.
    pub fn strategy(&self) -> RingStrategy {
        self.strategy
    }

    /// The two ends of a copy between `words` and the ring: the device address of word `at` of the ring, the host
    /// address of `words`, and the size in bytes.
    fn range(&self, at: usize, words: &[AtomicU32]) -> Result<(u64, u64, u64), DeviceError> {
        let word = size_of::<u32>() as u64;
        let (offset, bytes) = (at as u64 * word, words.len() as u64 * word);
        if offset + bytes > self.block.bytes() {
            return Err(DeviceError::OutOfBounds { block: self.block.id(), offset, bytes });
        }
        Ok((self.block.address() + offset, words.as_ptr().expose_provenance() as u64, bytes))
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        self.behind = true;
        let core = self.stream.core();
        let copied = core.service.copy(to, from, bytes, core.raw);
        match self.strategy {
            RingStrategy::Synchronous => copied.and(self.stream.synchronize()),
            RingStrategy::Stream | RingStrategy::Polled => copied,
        }
    }
}

impl Link for DeviceLink {
    type Error = DeviceError;

    fn put(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), DeviceError> {
        let (device, host, bytes) = self.range(at, words)?;
        self.copy(device, host, bytes)
    }

    fn get(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), DeviceError> {
        let (device, host, bytes) = self.range(at, words)?;
        self.copy(host, device, bytes)
    }

    fn poll(&mut self) -> Result<bool, DeviceError> {
        let core = self.stream.core();
        match (self.strategy, self.event) {
            (RingStrategy::Synchronous, _) => Ok(true),
            (RingStrategy::Polled, Some(event)) => {
                if self.behind {
                    core.service.record_event(event, core.raw)?;
                    self.behind = false;
                }
                core.service.query_event(event)
            }
            (RingStrategy::Stream | RingStrategy::Polled, _) => self.stream.synchronize().map(|()| true),
        }
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        if let Some(event) = self.event {
            self.stream.core().service.destroy_event(event);
        }
    }
}

impl fmt::Debug for DeviceLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLink")
            .field("block", &self.block)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}
