//! A ring between a host and a peer that share no memory: each has its own memory, and a link copies between them.
//!
//! Promises upward: the same messages in the same order as in shared memory. The host's producer or consumer uses a
//! *shadow* of the peer's ring, which is flushed or refreshed on request. Values from the peer are checked before use.
//! Asks from below: a [`Link`] that copies words in order.
//!
//! ```text
//!   host: Producer -> shadow  -- flush: slots, then `written` -->  the peer's ring -> its consumer
//!                             <-- refresh: the header -----------
//! ```
//!
//! Four strategies are four links:
//! - *synchronous*: each copy is complete when its call returns; [`Link::poll`] is always true
//! - *stream*: copies are submitted to a stream; [`Link::poll`] synchronises with the stream
//! - *polled*: copies are submitted, and polled until they are complete, with sleeps in between ([`Delay`])
//! - *unified*: both share memory, so there is no bridge: [`Producer`](super::Producer) and [`Consumer`](super::Consumer)
//!   use it directly
//!
//! The shadow has, after the slots, a staging word for each slot, from which a counter is copied, so that the next counter
//! can be staged while the last one is in flight; and an image of the header.
//!
//! Invariants:
//! - a counter of the peer is stored in the shadow only after its copy is complete, and after the copies of the slots
//!   that it counts
//! - a word in flight is not written: a slot and its staging word are reused only when the peer's counter has passed them

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
/// Words of the control block, at the front of the header.
const CONTROL: usize = Control::BYTES / WORD;
/// Offsets in a header, in words: see [`Control`].
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
/// Copies must complete in the order of their calls. `at` is an offset in words from the peer's header. The caller must
/// keep the words in place until [`Link::poll`] returns true or the link is dropped; dropping a link must wait for its
/// copies.
pub trait Link {
    /// The error of a copy.
    type Error;

    /// Submits a copy of words to the peer.
    ///
    /// # Errors
    /// The link's error; none or some of the words may have been copied.
    fn put(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), Self::Error>;

    /// Submits a copy of words from the peer.
    ///
    /// # Errors
    /// The link's error; none or some of the words may have been copied.
    fn get(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), Self::Error>;

    /// Whether all copies submitted so far are complete. May wait for them.
    ///
    /// # Errors
    /// The link's error.
    fn poll(&mut self) -> Result<bool, Self::Error>;
}

/// Why a call on a bridge failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeError<E> {
    /// An error of the ring.
    Ring(RingError),
    /// An error of the link. The caller may try again, which copies what was not copied yet.
    Link(E),
    /// A copy was still in flight at the end of the backoff. The caller may try again.
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
            Self::Late => write!(f, "a copy of the ring is late: call again, or wait longer in total"),
        }
    }
}

impl<E: core::error::Error> core::error::Error for BridgeError<E> {}

/// Number of words of a shadow: the slots, a staging word for each, an image of the header.
pub const fn shadow_words(layout: RingLayout) -> u64 {
    layout.words() + layout.slots() as u64 + HEADER as u64
}

/// A link, with the backoff and the delay for waiting until its copies are complete.
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

    /// Waits until all copies are complete.
    fn settle(&mut self) -> Result<(), BridgeError<L::Error>> {
        let link = &mut self.link;
        let polled = self.backoff.wait(&mut self.delay, || link.poll().map(|done| done.then_some(())));
        match polled {
            Err(error) => Err(BridgeError::Link(error)),
            Ok((_, None)) => Err(BridgeError::Late),
            Ok((_, Some(()))) => Ok(()),
        }
    }

    /// Initializes the shadow and the peer's ring, both empty.
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

    /// Copies the peer's counters and states to the image of the header.
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

    /// Copies a counter to the peer, from the staging word of the last slot that it counts.
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

    /// Tells the peer, by a copy of this side's state, that this side is closed; waits for the copy.
    fn close(&mut self, to: usize, memory: &impl RingMemory, layout: RingLayout) -> Result<(), BridgeError<L::Error>> {
        self.settle()?;
        let word = &image(memory, layout)[to..=to];
        word[0].store(EndpointState::Closed as u32, Ordering::Relaxed);
        self.put(to, word)?;
        self.settle()
    }
}

/// The image of the header: the last words of a shadow, which `begin` has checked to be there.
fn image(memory: &impl RingMemory, layout: RingLayout) -> &[AtomicU32] {
    let from = layout.words() as usize + layout.slots() as usize;
    &memory.words()[from..from + HEADER]
}

/// The ranges of words of the slots between two counters: one, or two if they wrap.
fn pieces(layout: RingLayout, from: u32, to: u32) -> impl Iterator<Item = core::ops::Range<usize>> {
    let (first, count) = (layout.index(from), to.wrapping_sub(from) as usize);
    let before = count.min(layout.slots() as usize - first);
    let words = move |from: usize, count: usize| from * layout.slot_words()..(from + count) * layout.slot_words();
    [words(first, before), words(0, count - before)].into_iter().filter(|piece| !piece.is_empty())
}
