//! The producer of a ring.
//!
//! Promises upward: the consumer sees a message whole or not at all; dropping a claim has no effect.
//! Asks from below: [`RingMemory`]; a consumer that counts the messages it has released.
//!
//! Invariants:
//! - `written` counts the messages that the producer has committed; only the producer writes the shared counter
//! - `written - read <= slots`, modulo 2^32: `read` is the consumer's counter as last loaded and checked

use super::control::{attach, close, closed, detach};
use super::error::{RingError, corrupt};
use super::layout::WORD;
use super::payload;
use super::{Backoff, Delay, RingCounters, RingLayout, RingMemory, layout_of};
use crate::sync::{AtomicU32, Ordering, seeded};

/// Release: publishes the message to a consumer that loads the counter.
#[inline(always)]
fn commit_order() -> Ordering {
    if seeded("ring_commit_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Acquire: the consumer's reads of the slots that it has released happen before the producer reuses them.
#[inline(always)]
fn room_order() -> Ordering {
    if seeded("ring_room_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// The one producer of a ring. Dropping it lets another producer attach; see also [`Producer::close`].
#[derive(Debug)]
pub struct Producer<M: RingMemory> {
    memory: M,
    layout: RingLayout,
    written: u32,
    read: u32,
    counted: RingCounters,
    /// The time that the telemetry records for the next message.
    now: u64,
}

impl<M: RingMemory> Producer<M> {
    /// Attaches the producer to a ring.
    ///
    /// # Errors
    /// [`RingError::Taken`], [`RingError::Closed`]; [`RingError::Corrupt`] when the counters are impossible.
    pub fn open(memory: M) -> Result<Self, RingError> {
        let layout = layout_of(&memory)?;
        let header = memory.header();
        attach(&header.control.producer)?;
        let written = header.control.written.load(Ordering::Relaxed);
        let read = header.control.read.load(room_order());
        if written.wrapping_sub(read) > layout.slots() {
            detach(&header.control.producer);
            return Err(corrupt("the counters are further apart than the ring has slots", read));
        }
        let counted = header.telemetry[0].snapshot().unwrap_or_default();
        Ok(Self { memory, layout, written, read, counted, now: counted.last })
    }

    /// The ring's layout.
    pub fn layout(&self) -> RingLayout {
        self.layout
    }

    /// The ring's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Number of messages committed, modulo 2^32.
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Sets the time that the telemetry records for the messages from now on, in the caller's unit.
    pub fn at(&mut self, now: u64) {
        self.now = now;
    }

    /// Loads the number of free slots.
    ///
    /// # Errors
    /// [`RingError::Corrupt`] when the consumer's counter is ahead of the producer's, or has decreased.
    pub fn room(&mut self) -> Result<u32, RingError> {
        let read = self.memory.header().control.read.load(room_order());
        let held = self.written.wrapping_sub(self.read);
        if read.wrapping_sub(self.read) > held {
            return Err(corrupt("the consumer's count is not between what it was and what was written", read));
        }
        self.read = read;
        Ok(self.layout.slots() - self.written.wrapping_sub(read))
    }

    /// Claims a slot, to write a message of `bytes` bytes in place.
    ///
    /// # Errors
    /// [`RingError::Full`], [`RingError::TooLong`], [`RingError::Closed`], [`RingError::Corrupt`].
    pub fn claim(&mut self, bytes: usize) -> Result<Claim<'_, M>, RingError> {
        let max = self.layout.longest();
        if bytes > max {
            return Err(RingError::TooLong { bytes, max });
        }
        if closed(&self.memory.header().control.consumer) {
            return Err(RingError::Closed);
        }
        // The counter as last loaded suffices, unless it means that the ring is full.
        if self.written.wrapping_sub(self.read) == self.layout.slots() && self.room()? == 0 {
            return Err(RingError::Full);
        }
        Ok(Claim { producer: self, bytes })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// As for [`Producer::claim`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), RingError> {
        let mut claim = self.claim(bytes.len())?;
        claim.write(0, bytes)?;
        claim.commit();
        Ok(())
    }

    /// Sends a message; if the ring is full, counts it as dropped and returns false.
    ///
    /// # Errors
    /// As for [`Producer::claim`], except for [`RingError::Full`].
    pub fn offer(&mut self, bytes: &[u8]) -> Result<bool, RingError> {
        match self.push(bytes) {
            Err(RingError::Full) => {
                self.counted.drops += 1;
                self.memory.header().telemetry[0].write(&self.counted);
                Ok(false)
            }
            pushed => pushed.map(|()| true),
        }
    }

    /// Sends a message; waits while the ring is full.
    ///
    /// # Errors
    /// As for [`Producer::claim`]; [`RingError::Full`] at the end of the backoff.
    pub fn send(&mut self, bytes: &[u8], backoff: Backoff, delay: &mut impl Delay) -> Result<(), RingError> {
        let (waits, sent) = backoff.wait(delay, || match self.push(bytes) {
            Err(RingError::Full) => Ok(None),
            pushed => pushed.map(Some),
        })?;
        if waits > 0 {
            self.counted.waits += waits;
            self.memory.header().telemetry[0].write(&self.counted);
        }
        sent.ok_or(RingError::Full)
    }

    /// Closes the ring: the consumer can still read the messages sent, and then fails.
    pub fn close(self) {
        close(&self.memory.header().control.producer);
    }

    fn slot(&self) -> &[AtomicU32] {
        payload::slot(self.memory.words(), self.layout, self.written)
    }

    fn commit(&mut self, bytes: usize) {
        if let Some(length) = self.slot().first() {
            // `bytes` is at most `longest`, which fits into a word.
            length.store(bytes as u32, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        let header = self.memory.header();
        header.control.written.store(self.written, commit_order());
        self.counted.messages += 1;
        self.counted.bytes += bytes as u64;
        self.counted.last = self.now;
        header.telemetry[0].write(&self.counted);
    }
}

impl<M: RingMemory> Drop for Producer<M> {
    fn drop(&mut self) {
        detach(&self.memory.header().control.producer);
    }
}

/// A claimed slot. Bytes that the caller does not write keep those of an earlier message.
#[derive(Debug)]
pub struct Claim<'p, M: RingMemory> {
    producer: &'p mut Producer<M>,
    bytes: usize,
}

impl<M: RingMemory> Claim<'_, M> {
    /// Writes a part of the message.
    ///
    /// # Errors
    /// [`RingError::TooLong`] when the part would end after the message.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), RingError> {
        let end = at.saturating_add(bytes.len());
        let fits = end <= self.bytes && payload::store(self.words(), at, bytes);
        if fits { Ok(()) } else { Err(RingError::TooLong { bytes: end, max: self.bytes }) }
    }

    /// The words of the message, for writing in place; the last word may end after the message.
    pub fn words(&self) -> &[AtomicU32] {
        self.producer.slot().get(1..1 + self.bytes.div_ceil(WORD)).unwrap_or(&[])
    }

    /// Sends the message.
    pub fn commit(self) {
        self.producer.commit(self.bytes);
    }
}
