//! The host's side of a ring that the peer writes.

use super::{BlockingLink, BridgeError, HEADER, Link, at, pieces};
use crate::ring::{Backoff, Consumer, Delay, EndpointState, Message, RingCounters, RingError, RingLayout, RingMemory};
use crate::sync::Ordering;

/// Receives messages from a peer that sees other memory.
///
/// Dropped, it leaves the peer's ring open; see [`Receiver::close`].
pub struct Receiver<M: RingMemory, L: Link, D: Delay> {
    // First, so that it is dropped first: a link waits for what is in flight, which uses the consumer's memory.
    channel: BlockingLink<L, D>,
    consumer: Consumer<M>,
    /// Messages that came over: the shadow's `written`.
    fetched: u32,
    /// What the peer was told: at most `read`.
    told: u32,
}

impl<M: RingMemory, L: Link, D: Delay> Receiver<M, L, D> {
    /// Makes a ring in the peer's memory, with its shadow in `memory`. The peer does not use it yet.
    ///
    /// # Errors
    /// [`RingError::BadLayout`] when the memory has fewer than [`shadow_words`](super::shadow_words); the link's.
    pub fn create(
        memory: M,
        layout: RingLayout,
        link: L,
        delay: D,
        backoff: Backoff,
    ) -> Result<Self, BridgeError<L::Error>> {
        let mut channel = BlockingLink { link, delay, backoff };
        if let Err(error) = channel.begin(&memory, layout) {
            // The link first, as ever.
            drop(channel);
            return Err(error);
        }
        let consumer = Consumer::open(memory)?;
        Ok(Self { channel, consumer, fetched: 0, told: 0 })
    }

    /// The oldest message that came over, in the shadow.
    ///
    /// # Errors
    /// As for [`Consumer::peek`]. [`RingError::Empty`] speaks of the last [`Receiver::refresh`].
    pub fn peek(&mut self) -> Result<Message<'_, M>, RingError> {
        self.consumer.peek()
    }

    /// Takes the oldest message that came over: its length.
    ///
    /// # Errors
    /// As for [`Consumer::pop`]. [`RingError::Empty`] speaks of the last [`Receiver::refresh`].
    pub fn pop(&mut self, out: &mut [u8]) -> Result<usize, RingError> {
        self.consumer.pop(out)
    }

    /// Passes over the oldest message that came over, whatever it is.
    ///
    /// # Errors
    /// As for [`Consumer::skip`].
    pub fn skip(&mut self) -> Result<(), RingError> {
        self.consumer.skip()
    }

    /// Begins to tell the peer which slots are free again. [`Receiver::refresh`] does so too.
    ///
    /// # Errors
    /// The link's.
    pub fn acknowledge(&mut self) -> Result<(), BridgeError<L::Error>> {
        let (read, layout) = (self.consumer.read(), self.consumer.layout());
        if read != self.told {
            self.channel.count(at::READ, read, self.consumer.memory(), layout)?;
            self.told = read;
        }
        Ok(())
    }

    /// Brings over what the peer sent: the messages that wait. At most three copies, however many messages.
    ///
    /// # Errors
    /// The link's; [`BridgeError::Late`]; [`RingError::Corrupt`] when the peer's count cannot be.
    pub fn refresh(&mut self) -> Result<u32, BridgeError<L::Error>> {
        self.acknowledge()?;
        let (memory, layout) = (self.consumer.memory(), self.consumer.layout());
        let mut image = self.channel.fetch(memory, layout)?;
        let closed = image[at::PRODUCER].load(Ordering::Relaxed) == EndpointState::Closed as u32;
        if closed {
            // A copy has no order among its words: the count as of after the end was seen is the last one.
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

    /// Takes the oldest message, and waits while there is none.
    ///
    /// # Errors
    /// As for [`Consumer::pop`] and [`Receiver::refresh`]; [`RingError::Empty`] when patience was not enough.
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

    /// What this side did.
    pub fn counted(&self) -> RingCounters {
        self.consumer.memory().header().telemetry[1].snapshot().unwrap_or_default()
    }

    /// The link.
    pub fn link(&self) -> &L {
        &self.channel.link
    }

    /// Tells the peer that nothing is read any more.
    ///
    /// # Errors
    /// The link's; [`BridgeError::Late`]: then the peer was not told.
    pub fn close(mut self) -> Result<(), BridgeError<L::Error>> {
        self.acknowledge()?;
        let layout = self.consumer.layout();
        self.channel.close(at::CONSUMER, self.consumer.memory(), layout)
    }
}
