//! The side that reads messages.
//!
//! Promises upward: messages come whole, once each, in the order they were sent; one that is looked at and not released
//! stays.
//! Asks from below: [`RingMemory`]; a producer that counts what it wrote.
//!
//! Invariants:
//! - `read` is what this side released; the shared word only ever gets it from here
//! - `written - read <= slots`, modulo 2^32: `written` is the producer's count as last seen, and was checked then

use super::control::{attach, close, closed, detach};
use super::error::{RingError, corrupt};
use super::layout::WORD;
use super::payload;
use super::{Backoff, Delay, RingCounters, RingLayout, RingMemory, layout_of};
use crate::sync::{AtomicU32, Ordering};

/// What a look at the producer's count asks: the messages it counts.
#[cfg(not(terrace_seeded_bug = "ring_look_relaxed"))]
const LOOK: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "ring_look_relaxed")]
const LOOK: Ordering = Ordering::Relaxed;

/// What a release gives: that this side is done with the slot.
#[cfg(not(terrace_seeded_bug = "ring_release_relaxed"))]
const RELEASE: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "ring_release_relaxed")]
const RELEASE: Ordering = Ordering::Relaxed;

/// The one consumer of a ring. Dropped, it leaves the ring open for another; see [`Consumer::close`].
#[derive(Debug)]
pub struct Consumer<M: RingMemory> {
    memory: M,
    layout: RingLayout,
    read: u32,
    written: u32,
    counted: RingCounters,
    /// The time that the next message gets.
    now: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// The consumer of a ring that was made.
    ///
    /// # Errors
    /// [`RingError::Taken`], [`RingError::Closed`]; [`RingError::Corrupt`] when the counters cannot be.
    pub fn open(memory: M) -> Result<Self, RingError> {
        let layout = layout_of(&memory)?;
        let header = memory.header();
        attach(&header.control.consumer)?;
        let read = header.control.read.load(Ordering::Relaxed);
        let written = header.control.written.load(LOOK);
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

    /// Messages released, modulo 2^32.
    pub fn read(&self) -> u32 {
        self.read
    }

    /// Tells the time: messages from now on carry it in the telemetry, in the unit of the caller.
    pub fn at(&mut self, now: u64) {
        self.now = now;
    }

    /// Messages that wait, as of now.
    ///
    /// # Errors
    /// [`RingError::Corrupt`]: the producer counts more than there are slots, or counts back.
    pub fn waiting(&mut self) -> Result<u32, RingError> {
        let written = self.memory.header().control.written.load(LOOK);
        let max = self.layout.slots() - self.written.wrapping_sub(self.read);
        if written.wrapping_sub(self.written) > max {
            return Err(corrupt("the producer's count is not between what it was and a full ring", written));
        }
        self.written = written;
        Ok(written.wrapping_sub(self.read))
    }

    /// The oldest message, in place.
    ///
    /// # Errors
    /// [`RingError::Empty`]; [`RingError::Closed`] when nothing comes any more; [`RingError::Corrupt`], also for a
    /// message longer than its slot, which [`Consumer::skip`] passes over.
    pub fn peek(&mut self) -> Result<Message<'_, M>, RingError> {
        self.find()?;
        let Some(length) = self.slot().first() else { return Err(corrupt("the slot is gone", self.read)) };
        // Looked at once: a producer that changes it later changes nothing here.
        let length = length.load(Ordering::Relaxed);
        let longest = self.layout.longest();
        match usize::try_from(length) {
            Ok(bytes) if bytes <= longest => Ok(Message { consumer: self, bytes }),
            _ => Err(corrupt("a message says that it is longer than its slot", length)),
        }
    }

    /// Sees to it that a message waits.
    fn find(&mut self) -> Result<(), RingError> {
        if self.written != self.read || self.waiting()? > 0 {
            return Ok(());
        }
        if !closed(&self.memory.header().control.producer) {
            return Err(RingError::Empty);
        }
        // Closed: then what was sent before that is seen now.
        if self.waiting()? > 0 { Ok(()) } else { Err(RingError::Closed) }
    }

    /// Takes the oldest message: its length.
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

    /// Takes the oldest message, and waits while there is none.
    ///
    /// # Errors
    /// As for [`Consumer::pop`]; [`RingError::Empty`] when patience was not enough.
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

    /// Passes over the oldest message, whatever it is. It counts as dropped.
    ///
    /// # Errors
    /// [`RingError::Empty`], [`RingError::Closed`], [`RingError::Corrupt`] counters.
    pub fn skip(&mut self) -> Result<(), RingError> {
        self.find()?;
        self.counted.drops += 1;
        self.advance();
        Ok(())
    }

    /// Closes the ring: the producer is told with its next message.
    pub fn close(self) {
        close(&self.memory.header().control.consumer);
    }

    fn slot(&self) -> &[AtomicU32] {
        payload::slot(self.memory.words(), self.layout, self.read)
    }

    /// The slot goes back to the producer.
    fn advance(&mut self) {
        self.read = self.read.wrapping_add(1);
        let header = self.memory.header();
        header.control.read.store(self.read, RELEASE);
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
    /// At most the longest message of the layout.
    bytes: usize,
}

impl<M: RingMemory> Message<'_, M> {
    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "a message without bytes is a message")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Reads a part of it.
    ///
    /// # Errors
    /// [`RingError::TooLong`] when `out` would end behind the message's end.
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), RingError> {
        let end = at.saturating_add(out.len());
        let fits = end <= self.bytes && payload::load(self.words(), at, out);
        if fits { Ok(()) } else { Err(RingError::TooLong { bytes: end, max: self.bytes }) }
    }

    /// Its words, for reading in place; the last one may end behind the message.
    pub fn words(&self) -> &[AtomicU32] {
        self.consumer.slot().get(1..1 + self.bytes.div_ceil(WORD)).unwrap_or(&[])
    }

    /// Gives its slot back to the producer.
    pub fn release(self) {
        self.consumer.release(self.bytes);
    }
}
