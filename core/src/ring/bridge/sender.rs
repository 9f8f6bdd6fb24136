//! The producer of a bridge: the host writes messages that the peer reads in its own memory.

use super::{BlockingLink, BridgeError, HEADER, Link, at, pieces};
use crate::ring::{Backoff, Claim, Delay, EndpointState, Producer, RingCounters, RingError, RingLayout, RingMemory};
use crate::sync::Ordering;

/// Sends messages to a peer that shares no memory with the host.
///
/// Dropping a `Sender` leaves unflushed messages unsent, and the peer's ring open; see [`Sender::close`].
pub struct Sender<M: RingMemory, L: Link, D: Delay> {
    // The first field, so that it is dropped first: a link waits for copies in flight, which use the producer's memory.
    channel: BlockingLink<L, D>,
    producer: Producer<M>,
    /// The value of `written` that was last flushed: the shadow's `written`, or at most as many messages behind as
    /// there are slots.
    sent: u32,
}

impl<M: RingMemory, L: Link, D: Delay> Sender<M, L, D> {
    /// Initializes a ring in the peer's memory, with its shadow in `memory`.
    ///
    /// The peer must not use the ring yet.
    ///
    /// # Errors
    /// [`RingError::BadLayout`] when `memory` has fewer words than [`shadow_words`](super::shadow_words); the link's
    /// error.
    pub fn create(
        memory: M,
        layout: RingLayout,
        link: L,
        delay: D,
        backoff: Backoff,
    ) -> Result<Self, BridgeError<L::Error>> {
        let mut channel = BlockingLink { link, delay, backoff };
        if let Err(error) = channel.begin(&memory, layout) {
            // Drops the link before `memory`, which its copies use.
            drop(channel);
            return Err(error);
        }
        let producer = Producer::open(memory)?;
        Ok(Self { channel, producer, sent: 0 })
    }

    /// Claims a slot of the shadow for a message, which [`Sender::flush`] sends.
    ///
    /// # Errors
    /// As for [`Producer::claim`]; [`RingError::Full`] if no slot is left that the last [`Sender::refresh`] found free.
    pub fn claim(&mut self, bytes: usize) -> Result<Claim<'_, M>, RingError> {
        self.producer.claim(bytes)
    }

    /// Writes a message to the shadow, which [`Sender::flush`] sends.
    ///
    /// # Errors
    /// As for [`Sender::claim`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), RingError> {
        self.producer.push(bytes)
    }

    /// Submits the copies of all new messages in the shadow to the peer.
    ///
    /// At most two copies of slots and one of a counter.
    ///
    /// # Errors
    /// The link's error.
    pub fn flush(&mut self) -> Result<(), BridgeError<L::Error>> {
        let (written, layout) = (self.producer.written(), self.producer.layout());
        if written == self.sent {
            return Ok(());
        }
        let memory = self.producer.memory();
        for piece in pieces(layout, self.sent, written) {
            self.channel.put(HEADER + piece.start, &memory.words()[piece])?;
        }
        self.channel.count(at::WRITTEN, written, memory, layout)?;
        self.sent = written;
        Ok(())
    }

    /// Fetches the peer's counter of messages read; returns the number of free slots.
    ///
    /// # Errors
    /// The link's error; [`BridgeError::Late`]; [`RingError::Corrupt`] when the peer's counter is impossible.
    pub fn refresh(&mut self) -> Result<u32, BridgeError<L::Error>> {
        let memory = self.producer.memory();
        let image = self.channel.fetch(memory, self.producer.layout())?;
        let control = &memory.header().control;
        let read = image[at::READ].load(Ordering::Relaxed);
        // The peer cannot have read messages that were not flushed.
        if self.sent.wrapping_sub(read) > self.producer.layout().slots() {
            let what = "the peer counts messages as read that were not sent";
            return Err(RingError::Corrupt { what, found: read }.into());
        }
        control.read.store(read, Ordering::Release);
        if image[at::CONSUMER].load(Ordering::Relaxed) == EndpointState::Closed as u32 {
            control.consumer.store(EndpointState::Closed as u32, Ordering::Release);
        }
        Ok(self.producer.room()?)
    }

    /// Sends a message; refreshes and waits while the ring is full.
    ///
    /// # Errors
    /// As for [`Producer::claim`], [`Sender::refresh`] and [`Sender::flush`]; after an error of the link, the message is in
    /// the shadow if [`Sender::waiting`] counts it.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), BridgeError<L::Error>> {
        let mut sleeps = self.channel.backoff.sleeps();
        loop {
            match self.producer.push(bytes) {
                Err(RingError::Full) => self.flush()?,
                pushed => return pushed.map_err(BridgeError::Ring).and_then(|()| self.flush()),
            }
            if self.refresh()? == 0 && !sleeps.sleep(&mut self.channel.delay) {
                return Err(RingError::Full.into());
            }
        }
    }

    /// Number of messages in the shadow that were not flushed.
    pub fn waiting(&self) -> u32 {
        self.producer.written().wrapping_sub(self.sent)
    }

    /// Waits until all flushed messages have been copied.
    ///
    /// # Errors
    /// The link's error; [`BridgeError::Late`].
    pub fn settle(&mut self) -> Result<(), BridgeError<L::Error>> {
        self.channel.settle()
    }

    /// The counters of the producer.
    pub fn counted(&self) -> RingCounters {
        self.producer.memory().header().telemetry[0].snapshot().unwrap_or_default()
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.channel.link
    }

    /// Flushes, and closes the ring for the peer: no message will follow.
    ///
    /// # Errors
    /// The link's error; [`BridgeError::Late`]. After an error the peer may not have been notified.
    pub fn close(mut self) -> Result<(), BridgeError<L::Error>> {
        self.flush()?;
        let layout = self.producer.layout();
        self.channel.close(at::PRODUCER, self.producer.memory(), layout)
    }
}
