//! The consumer of a ring.
//!
//! Promises upward: reads each message whole, once, in the order they were sent; a message that was peeked and not
//! released stays.
//! Asks from below: [`RingMemory`]; a producer that counts the messages it has written.
//!
//! Invariants:
//! - `read` counts the messages that the consumer has released; only the consumer writes the shared counter
//! - `written - read <= slots`, modulo 2^32: `written` is the producer's counter as last loaded and checked

use super::control::{attach, close, closed, detach};
use super::error::{RingError, corrupt};
use super::layout::WORD;
use super::payload;
use super::{Backoff, Delay, RingCounters, RingLayout, RingMemory, layout_of};
use crate::sync::{AtomicU32, Ordering, seeded};

/// Acquire: a consumer that loads the producer's counter sees the messages that the counter includes.
#[inline(always)]
fn look_order() -> Ordering {
    if seeded("ring_look_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: the consumer's reads of a slot happen before the producer reuses the slot.
#[inline(always)]
fn release_order() -> Ordering {
    if seeded("ring_release_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// The one consumer of a ring. Dropping it lets another consumer attach; see also [`Consumer::close`].
#[derive(Debug)]
pub struct Consumer<M: RingMemory> {
    memory: M,
    layout: RingLayout,
    read: u32,
    written: u32,
    counted: RingCounters,
    /// The time that the telemetry records for the next message.
    now: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// Attaches the consumer to a ring.
    ///
    /// # Errors
    /// [`RingError::Taken`], [`RingError::Closed`]; [`RingError::Corrupt`] when the counters are impossible.
    pub fn open(memory: M) -> Result<Self, RingError> {
        let layout = layout_of(&memory)?;
        let header = memory.header();
        attach(&header.control.consumer)?;
        let read = header.control.read.load(Ordering::Relaxed);
        let written = header.control.written.load(look_order());
        if written.wrapping_sub(read) > layout.slots() {
            detach(&header.control.consumer);
            return Err(corrupt("the counters are further apart than the ring has slots", written));
        }
        let counted = header.telemetry[1].snapshot().unwrap_or_default();
        Ok(Self { memory, layout, read, written, counted, now: counted.last })
    }

    /// The ring's layout.
    pub fn layout(&self) -> RingLayout {
        self.layout
    }

    /// The ring's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Number of messages released, modulo 2^32.
    pub fn read(&self) -> u32 {
        self.read
    }

    /// Sets the time that the telemetry records for the messages from now on, in the caller's unit.
    pub fn at(&mut self, now: u64) {
        self.now = now;
    }

    /// Loads the number of messages that can be read.
    ///
    /// # Errors
    /// [`RingError::Corrupt`] when the producer's counter is more than the slots ahead, or has decreased.
    pub fn waiting(&mut self) -> Result<u32, RingError> {
        let written = self.memory.header().control.written.load(look_order());
        let max = self.layout.slots() - self.written.wrapping_sub(self.read);
        if written.wrapping_sub(self.written) > max {
            return Err(corrupt("the producer's count is not between what it was and a full ring", written));
        }
        self.written = written;
        Ok(written.wrapping_sub(self.read))
    }

    /// The oldest message, in its slot.
    ///
    /// # Errors
    /// [`RingError::Empty`]; [`RingError::Closed`] when the producer has closed the ring and all messages are read;
    /// [`RingError::Corrupt`], also for a message longer than its slot, which [`Consumer::skip`] discards.
    pub fn peek(&mut self) -> Result<Message<'_, M>, RingError> {
        self.find()?;
        let Some(length) = self.slot().first() else { return Err(corrupt("the slot is gone", self.read)) };
        // The length is loaded once: a later change by the producer has no effect here.
        let length = length.load(Ordering::Relaxed);
        let longest = self.layout.longest();
        match usize::try_from(length) {
            Ok(bytes) if bytes <= longest => Ok(Message { consumer: self, bytes }),
            _ => Err(corrupt("a message says that it is longer than its slot", length)),
        }
    }

    /// Ensures that there is a message to read.
    fn find(&mut self) -> Result<(), RingError> {
        if self.written != self.read || self.waiting()? > 0 {
            return Ok(());
        }
        if !closed(&self.memory.header().control.producer) {
            return Err(RingError::Empty);
        }
        // The producer has closed the ring: the messages that it sent before are visible now.
        if self.waiting()? > 0 { Ok(()) } else { Err(RingError::Closed) }
    }

    /// Copies the oldest message to `out` and releases it; returns its length.
    ///
    /// # Errors
    /// As for [`Consumer::peek`]; [`RingError::TooLong`] when `out` is shorter than the message, which stays.
    pub fn pop(&mut self, out: &mut [u8]) -> Result<usize, RingError> {
        let message = self.peek()?;
        let (bytes, max) = (message.len(), out.len());
        let Some(out) = out.get_mut(..bytes) else { return Err(RingError::TooLong { bytes, max }) };
        message.read(0, out)?;
        message.release();
        Ok(bytes)
    }

    /// Like [`Consumer::pop`], but waits while there is no message.
    ///
    /// # Errors
    /// As for [`Consumer::pop`]; [`RingError::Empty`] at the end of the backoff.
    pub fn receive(&mut self, out: &mut [u8], backoff: Backoff, delay: &mut impl Delay) -> Result<usize, RingError> {
        let (waits, received) = backoff.wait(delay, || match self.pop(out) {
            Err(RingError::Empty) => Ok(None),
            popped => popped.map(Some),
        })?;
        if waits > 0 {
            self.counted.waits += waits;
            self.memory.header().telemetry[1].write(&self.counted);
        }
        received.ok_or(RingError::Empty)
    }

    /// Discards the oldest message, valid or not, and counts it as dropped.
    ///
    /// # Errors
    /// [`RingError::Empty`]; [`RingError::Closed`]; [`RingError::Corrupt`] for impossible counters.
    pub fn skip(&mut self) -> Result<(), RingError> {
        self.find()?;
        self.counted.drops += 1;
        self.advance();
        Ok(())
    }

    /// Closes the ring: the producer's next message fails.
    pub fn close(self) {
        close(&self.memory.header().control.consumer);
    }

    fn slot(&self) -> &[AtomicU32] {
        payload::slot(self.memory.words(), self.layout, self.read)
    }

    /// Releases the oldest slot to the producer.
    fn advance(&mut self) {
        self.read = self.read.wrapping_add(1);
        let header = self.memory.header();
        header.control.read.store(self.read, release_order());
        header.telemetry[1].write(&self.counted);
    }

    fn release(&mut self, bytes: usize) {
        self.counted.messages += 1;
        self.counted.bytes += bytes as u64;
        self.counted.last = self.now;
        self.advance();
    }
}

impl<M: RingMemory> Drop for Consumer<M> {
    fn drop(&mut self) {
        detach(&self.memory.header().control.consumer);
    }
}

/// A message in its slot.
#[derive(Debug)]
pub struct Message<'c, M: RingMemory> {
    consumer: &'c mut Consumer<M>,
    /// Length in bytes, at most that of the longest message of the layout.
    bytes: usize,
}

impl<M: RingMemory> Message<'_, M> {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a message without bytes is a message")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Copies the part of the message from byte `at` on to `out`.
    ///
    /// # Errors
    /// [`RingError::TooLong`] when `out` would end after the message's end.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), RingError> {
        let end = at.saturating_add(out.len());
        let fits = end <= self.bytes && payload::load(self.words(), at, out);
        if fits { Ok(()) } else { Err(RingError::TooLong { bytes: end, max: self.bytes }) }
    }

    /// The words of the message, for reading in place; the last word may end after the message.
    pub fn words(&self) -> &[AtomicU32] {
        self.consumer.slot().get(1..1 + self.bytes.div_ceil(WORD)).unwrap_or(&[])
    }

    /// Releases the slot to the producer.
    pub fn release(self) {
        self.consumer.release(self.bytes);
    }
}
