//! A ring whose sides do not see the same memory: each has its own, and copies go between.
//!
//! Promises upward: the same messages in the same order as in one memory, by the same code: the host works on a
//! *shadow* of the ring, and what it did goes over when it says so. Nothing the peer writes is trusted before it was
//! checked.
//! Asks from below: a [`Link`] that copies words in order.
//!
//! ```text
//!   host: Producer -> shadow  -- flush: slots, then `written` -->  the peer's ring -> its consumer
//!                             <-- refresh: the header -----------
//! ```
//!
//! Four strategies are four links:
//! - *synchronous*: each copy is done when its call returns; [`Link::poll`] has nothing to say
//! - *stream*: copies are put on a stream, in order; [`Link::poll`] waits for the stream
//! - *polled*: a transfer is begun and looked at until it is done, with sleeps between ([`Delay`])
//! - *unified*: both see the same memory, so there is no bridge: [`Producer`](super::Producer) and [`Consumer`](super::Consumer) work on it themselves
//!
//! The shadow has more words than slots: one for each slot, from which counters are copied, so that the next message
//! may be counted while the last count is still in flight; and an image of the header.
//!
//! Invariants:
//! - the peer's counters go into the shadow after a wait for the copy that brought them, and slots before the counter
//! - a word in flight is not written: a slot and its stage are free again when the peer counted past them

use super::control::{Control, EndpointState, Header};
use super::error::RingError;
use super::layout::WORD;
use super::{Backoff, Delay, RingLayout, RingMemory};
use crate::sync::{AtomicU32, Ordering};
use core::fmt;

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::Sender;

/// Words of a header, in the peer's ring and in the image.
const HEADER: usize = Header::BYTES / WORD;
/// Words of its counters and states.
const CONTROL: usize = Control::BYTES / WORD;
/// Where words lie in a header: see [`Control`].
mod at {
    pub(super) const WRITTEN: usize = 0;
    pub(super) const PRODUCER: usize = 1;
    pub(super) const CONSUMER: usize = 2;
    pub(super) const MAGIC: usize = 3;
    pub(super) const VERSION: usize = 4;
    pub(super) const SLOTS: usize = 5;
    pub(super) const SLOT_BYTES: usize = 6;
    pub(super) const READ: usize = 16;
}

/// Copies words between a shadow and the peer's ring.
///
/// Copies are done in the order they were begun. `at` counts words from the first of the peer's header. The words stay
/// where they are until the link says that all is done, or is dropped: a link that is dropped first waits.
pub trait Link {
    /// What goes wrong.
    type Error;

    /// Begins to copy words to the peer.
    ///
    /// # Errors
    /// The link's: nothing, or a part, was copied then.
    fn put(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), Self::Error>;

    /// Begins to copy words from the peer.
    ///
    /// # Errors
    /// The link's: nothing, or a part, was copied then.
    fn get(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), Self::Error>;

    /// Whether everything begun so far is done. May wait for it.
    ///
    /// # Errors
    /// The link's.
    fn poll(&mut self) -> Result<bool, Self::Error>;
}

/// What goes wrong on a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeError<E> {
    /// The ring's.
    Ring(RingError),
    /// The link's. The call can be made again: what was not copied then is copied now.
    Link(E),
    /// Backoff was not enough for a copy, which is still in flight. The call can be made again.
    Late,
}

impl<E> From<RingError> for BridgeError<E> {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl<E: fmt::Display> fmt::Display for BridgeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(error) => error.fmt(f),
            Self::Link(error) => write!(f, "a copy of the ring failed: {error}"),
            Self::Late => write!(f, "a copy of the ring is late: call again, or have more patience"),
        }
    }
}

impl<E: core::error::Error> core::error::Error for BridgeError<E> {}

/// Words that the shadow of a ring needs: its slots, a stage for each, an image of the header.
pub const fn shadow_words(layout: RingLayout) -> u64 {
    layout.words() + layout.slots() as u64 + HEADER as u64
}

/// A link, and how to wait for it.
struct BlockingLink<L, D> {
    link: L,
    delay: D,
    backoff: Backoff,
}

impl<L: Link, D: Delay> BlockingLink<L, D> {
    fn put(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), BridgeError<L::Error>> {
        self.link.put(at, words).map_err(BridgeError::Link)
    }

    fn get(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), BridgeError<L::Error>> {
        self.link.get(at, words).map_err(BridgeError::Link)
    }

    /// Waits for all copies begun.
    fn settle(&mut self) -> Result<(), BridgeError<L::Error>> {
        let link = &mut self.link;
        let polled = self.backoff.wait(&mut self.delay, || link.poll().map(|done| done.then_some(())));
        match polled {
            Err(error) => Err(BridgeError::Link(error)),
            Ok((_, None)) => Err(BridgeError::Late),
            Ok((_, Some(()))) => Ok(()),
        }
    }

    /// Makes the shadow and the peer's ring, both empty.
    fn begin(&mut self, memory: &impl RingMemory, layout: RingLayout) -> Result<(), BridgeError<L::Error>> {
        if shadow_words(layout) > memory.words().len() as u64 {
            return Err(RingError::BadLayout("a shadow needs a word more for each slot, and a header's").into());
        }
        super::create(memory, layout)?;
        let image = image(memory, layout);
        let control = &memory.header().control;
        let values = [
            (at::MAGIC, &control.magic),
            (at::VERSION, &control.version),
            (at::SLOTS, &control.slots),
            (at::SLOT_BYTES, &control.slot_bytes),
        ];
        image.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        for (at, value) in values {
            image[at].store(value.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.put(0, image)?;
        self.settle()
    }

    /// The peer's counters and states, as of now, in the image.
    fn fetch<'m>(
        &mut self,
        memory: &'m impl RingMemory,
        layout: RingLayout,
    ) -> Result<&'m [AtomicU32], BridgeError<L::Error>> {
        let image = image(memory, layout);
        self.get(0, &image[..CONTROL])?;
        self.settle()?;
        Ok(image)
    }

    /// Sends a counter from the stage of the slot that it stands behind.
    fn count(
        &mut self,
        to: usize,
        counter: u32,
        memory: &impl RingMemory,
        layout: RingLayout,
    ) -> Result<(), BridgeError<L::Error>> {
        let stage = layout.words() as usize + layout.index(counter.wrapping_sub(1));
        let words = &memory.words()[stage..=stage];
        words[0].store(counter, Ordering::Relaxed);
        self.put(to, words)
    }

    /// Tells the peer that this side is closed, and waits.
    fn close(&mut self, to: usize, memory: &impl RingMemory, layout: RingLayout) -> Result<(), BridgeError<L::Error>> {
        self.settle()?;
        let word = &image(memory, layout)[to..=to];
        word[0].store(EndpointState::Closed as u32, Ordering::Relaxed);
        self.put(to, word)?;
        self.settle()
    }
}

/// The header's image: the last words of a shadow. `begin` saw that they are there.
fn image(memory: &impl RingMemory, layout: RingLayout) -> &[AtomicU32] {
    let from = layout.words() as usize + layout.slots() as usize;
    &memory.words()[from..from + HEADER]
}

/// The words of the slots between two counters, in one piece or two.
fn pieces(layout: RingLayout, from: u32, to: u32) -> impl Iterator<Item = core::ops::Range<usize>> {
    let (first, count) = (layout.index(from), to.wrapping_sub(from) as usize);
    let before = count.min(layout.slots() as usize - first);
    let words = move |from: usize, count: usize| from * layout.slot_words()..(from + count) * layout.slot_words();
    [words(first, before), words(0, count - before)].into_iter().filter(|piece| !piece.is_empty())
}
