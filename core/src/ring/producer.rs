//! The side that writes messages.
//!
//! Promises upward: a message is seen whole or not at all; a claim that is dropped was never made.
//! Asks from below: [`RingMemory`]; a consumer that counts what it read.
//!
//! Invariants:
//! - `written` is what this side committed; the shared word only ever gets it from here
//! - `written - read <= slots`, modulo 2^32: `read` is the consumer's count as last seen, and was checked then

use super::control::{attach, close, closed, detach};
use super::error::{RingError, corrupt};
use super::layout::WORD;
use super::payload;
use super::{Backoff, Delay, RingCounters, RingLayout, RingMemory, layout_of};
use crate::sync::{AtomicU32, Ordering};

/// What a commit gives: the message, to the consumer that loads the counter.
#[cfg(not(terrace_seeded_bug = "ring_commit_relaxed"))]
const COMMIT: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "ring_commit_relaxed")]
const COMMIT: Ordering = Ordering::Relaxed;

/// What a look at the consumer's count asks: that it is done with the slots it counts.
#[cfg(not(terrace_seeded_bug = "ring_room_relaxed"))]
const ROOM: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "ring_room_relaxed")]
const ROOM: Ordering = Ordering::Relaxed;

/// The one producer of a ring. Dropped, it leaves the ring open for another; see [`Producer::close`].
#[derive(Debug)]
pub struct Producer<M: RingMemory> {
    memory: M,
    layout: RingLayout,
    written: u32,
    read: u32,
    counted: RingCounters,
    /// The time that the next message gets.
    now: u64,
}

impl<M: RingMemory> Producer<M> {
    /// The producer of a ring that was made.
    ///
    /// # Errors
    /// [`RingError::Taken`], [`RingError::Closed`]; [`RingError::Corrupt`] when the counters cannot be.
    pub fn open(memory: M) -> Result<Self, RingError> {
        let layout = layout_of(&memory)?;
        let header = memory.header();
        attach(&header.control.producer)?;
        let written = header.control.written.load(Ordering::Relaxed);
        let read = header.control.read.load(ROOM);
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

    /// Messages written, modulo 2^32.
    pub fn written(&self) -> u32 {
        self.written
    }

    /// Tells the time: messages from now on carry it in the telemetry, in the unit of the caller.
    pub fn at(&mut self, now: u64) {
        self.now = now;
    }

    /// Slots that are free, as of now.
    ///
    /// # Errors
    /// [`RingError::Corrupt`]: the consumer counts what was never written, or counts back.
    pub fn room(&mut self) -> Result<u32, RingError> {
        let read = self.memory.header().control.read.load(ROOM);
        let held = self.written.wrapping_sub(self.read);
        if read.wrapping_sub(self.read) > held {
            return Err(corrupt("the consumer's count is not between what it was and what was written", read));
        }
        self.read = read;
        Ok(self.layout.slots() - self.written.wrapping_sub(read))
    }

    /// A slot to write a message of `bytes` bytes into, in place.
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
        // The count as last seen does, until it says full.
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

    /// Sends a message, or counts it as dropped when the ring is full: false then.
    ///
    /// # Errors
    /// As for [`Producer::claim`], but for [`RingError::Full`].
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

    /// Sends a message, and waits while the ring is full.
    ///
    /// # Errors
    /// As for [`Producer::claim`]; [`RingError::Full`] when patience was not enough.
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

    /// Closes the ring: the consumer still reads what was sent, and is told then.
    pub fn close(self) {
        close(&self.memory.header().control.producer);
    }

    fn slot(&self) -> &[AtomicU32] {
        payload::slot(self.memory.words(), self.layout, self.written)
    }

    fn commit(&mut self, bytes: usize) {
        if let Some(length) = self.slot().first() {
            // At most `longest`, which fits into a word.
            length.store(bytes as u32, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        let header = self.memory.header();
        header.control.written.store(self.written, COMMIT);
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

/// A slot that is being filled. What is not written has whatever an earlier message left there.
#[derive(Debug)]
pub struct Claim<'p, M: RingMemory> {
    producer: &'p mut Producer<M>,
    bytes: usize,
}

impl<M: RingMemory> Claim<'_, M> {
    /// Writes a part of the message.
    ///
    /// # Errors
    /// [`RingError::TooLong`] when it would end behind the message's end.
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), RingError> {
        let end = at.saturating_add(bytes.len());
        let fits = end <= self.bytes && payload::store(self.words(), at, bytes);
        if fits { Ok(()) } else { Err(RingError::TooLong { bytes: end, max: self.bytes }) }
    }

    /// The slot's words, for writing in place; the last one may end behind the message.
    pub fn words(&self) -> &[AtomicU32] {
        self.producer.slot().get(1..1 + self.bytes.div_ceil(WORD)).unwrap_or(&[])
    }

    /// Sends the message.
    pub fn commit(self) {
        self.producer.commit(self.bytes);
    }
}
