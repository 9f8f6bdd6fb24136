//! The consumer of a bridge: the host reads messages that the peer writes to its own memory.

use super::{BlockingLink, BridgeError, HEADER, Link, at, pieces};
use crate::ring::{Backoff, Consumer, Delay, EndpointState, Message, RingCounters, RingError, RingLayout, RingMemory};
use crate::sync::Ordering;

/// Receives messages from a peer that shares no memory with the host.
///
/// Dropping a `Receiver` leaves the peer's ring open; see [`Receiver::close`].
pub struct Receiver<M: RingMemory, L: Link, D: Delay> {
    // The first field, so that it is dropped first: a link waits for copies in flight, which use the consumer's memory.
    channel: BlockingLink<L, D>,
    consumer: Consumer<M>,
    /// Number of messages fetched to the shadow, modulo 2^32: the shadow's `written`.
    fetched: u32,
    /// The value of `read` that was last sent to the peer: at most the shadow's `read`.
    told: u32,
}

impl<M: RingMemory, L: Link, D: Delay> Receiver<M, L, D> {
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
        let consumer = Consumer::open(memory)?;
        Ok(Self { channel, consumer, fetched: 0, told: 0 })
    }

    /// The oldest message in the shadow.
    ///
    /// # Errors
    /// As for [`Consumer::peek`]; [`RingError::Empty`] if no message is left that the last [`Receiver::refresh`]
    /// fetched.
    pub fn peek(&mut self) -> Result<Message<'_, M>, RingError> {
        self.consumer.peek()
    }

    /// Copies the oldest message in the shadow to `out` and releases it; returns its length.
    ///
    /// # Errors
    /// As for [`Consumer::pop`]; [`RingError::Empty`] if no message is left that the last [`Receiver::refresh`]
    /// fetched.
    pub fn pop(&mut self, out: &mut [u8]) -> Result<usize, RingError> {
        self.consumer.pop(out)
    }

    /// Discards the oldest message in the shadow, valid or not.
    ///
    /// # Errors
    /// As for [`Consumer::skip`].
    pub fn skip(&mut self) -> Result<(), RingError> {
        self.consumer.skip()
    }

    /// Submits a copy of the counter `read` to the peer, which frees slots there.
    ///
    /// [`Receiver::refresh`] does this too.
    ///
    /// # Errors
    /// The link's error.
    pub fn acknowledge(&mut self) -> Result<(), BridgeError<L::Error>> {
        let (read, layout) = (self.consumer.read(), self.consumer.layout());
        if read != self.told {
            self.channel.count(at::READ, read, self.consumer.memory(), layout)?;
            self.told = read;
        }
        Ok(())
    }

    /// Copies the peer's new messages to the shadow; returns the number of messages in the shadow.
    ///
    /// At most five copies: one of `read`, one of the header (two once the peer has closed the ring), two of slots.
    ///
    /// # Errors
    /// The link's error; [`BridgeError::Late`]; [`RingError::Corrupt`] when the peer's counter is impossible.
    pub fn refresh(&mut self) -> Result<u32, BridgeError<L::Error>> {
        self.acknowledge()?;
        let (memory, layout) = (self.consumer.memory(), self.consumer.layout());
        let mut image = self.channel.fetch(memory, layout)?;
        let closed = image[at::PRODUCER].load(Ordering::Relaxed) == EndpointState::Closed as u32;
        if closed {
            // The words of a copy are not ordered: only a counter fetched after the closed state is the last one.
            image = self.channel.fetch(memory, layout)?;
        }
        let written = image[at::WRITTEN].load(Ordering::Relaxed);
        let most = layout.slots() - self.fetched.wrapping_sub(self.consumer.read());
        if written.wrapping_sub(self.fetched) > most {
            let what = "the peer's count is not between what it was and a full ring";
            return Err(RingError::Corrupt { what, found: written }.into());
        }
        for piece in pieces(layout, self.fetched, written) {
            self.channel.get(HEADER + piece.start, &memory.words()[piece])?;
        }
        self.channel.settle()?;
        self.fetched = written;
        let control = &memory.header().control;
        control.written.store(written, Ordering::Release);
        if closed {
            control.producer.store(EndpointState::Closed as u32, Ordering::Release);
        }
        Ok(self.consumer.waiting()?)
    }

    /// Like [`Receiver::pop`], but refreshes and waits while there is no message.
    ///
    /// # Errors
    /// As for [`Consumer::pop`] and [`Receiver::refresh`]; [`RingError::Empty`] at the end of the backoff.
    pub fn receive(&mut self, out: &mut [u8]) -> Result<usize, BridgeError<L::Error>> {
        let mut sleeps = self.channel.backoff.sleeps();
        loop {
            match self.consumer.pop(out) {
                Err(RingError::Empty) => {}
                popped => return popped.map_err(BridgeError::Ring),
            }
            if self.refresh()? == 0
                && self.consumer.peek().err() == Some(RingError::Empty)
                && !sleeps.sleep(&mut self.channel.delay)
            {
                return Err(RingError::Empty.into());
            }
        }
    }

    /// The counters of the consumer.
    pub fn counted(&self) -> RingCounters {
        self.consumer.memory().header().telemetry[1].snapshot().unwrap_or_default()
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.channel.link
    }

    /// Closes the ring for the peer: no message will be read any more.
    ///
    /// # Errors
    /// The link's error; [`BridgeError::Late`]. After an error the peer may not have been notified.
    pub fn close(mut self) -> Result<(), BridgeError<L::Error>> {
        self.acknowledge()?;
        let layout = self.consumer.layout();
        self.channel.close(at::CONSUMER, self.consumer.memory(), layout)
    }
}
