//! A bridge beside a queue, over a transfer engine that takes its time and fails: each piece is copied when somebody
//! looks, from what stands in memory then, so a word that is written while it is in flight arrives wrong.

use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use terrace_core::ring::bridge::{BridgeError, Link, Receiver, Sender, shadow_words};
use terrace_core::ring::{Backoff, Header, NoDelay, RingError, RingLayout, RingMemory};
use terrace_core::sync::{AtomicU32, Ordering};

const SHAPE: RingLayout = match RingLayout::new(4, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("four slots of 16 bytes"),
};

/// The host's side of the ring.
struct Shadow {
    header: Header,
    words: Vec<AtomicU32>,
}

#[derive(Clone)]
struct Shared(Rc<Shadow>);

impl RingMemory for Shared {
    fn header(&self) -> &Header {
        &self.0.header
    }

    fn words(&self) -> &[AtomicU32] {
        &self.0.words
    }
}

/// A transfer: to the peer or from it, where there, where here, how many words.
type Piece = (bool, usize, usize, usize);

/// The engine, and the peer's memory.
struct Engine {
    shadow: Shared,
    peer: Vec<u32>,
    queue: VecDeque<Piece>,
    /// Calls until one fails.
    fails: Option<u32>,
    /// Pieces done by one look.
    pace: usize,
}

#[derive(Clone)]
struct Dma(Rc<RefCell<Engine>>);

impl Dma {
    fn new(pace: usize) -> (Shared, Self) {
        let words = (0..shadow_words(SHAPE)).map(|_| AtomicU32::new(7)).collect();
        let shadow = Shared(Rc::new(Shadow { header: Header::new(), words }));
        let peer = vec![9; (SHAPE.bytes() / 4) as usize];
        let engine = Engine { shadow: shadow.clone(), peer, queue: VecDeque::new(), fails: None, pace };
        (shadow, Self(Rc::new(RefCell::new(engine))))
    }

    fn begin(&self, put: bool, at: usize, words: &[AtomicU32]) -> Result<(), &'static str> {
        let engine = &mut *self.0.borrow_mut();
        engine.fails = engine.fails.map(|calls| calls.wrapping_sub(1));
        if engine.fails == Some(u32::MAX) {
            engine.fails = None;
            return Err("the engine is busy");
        }
        let here = (words.as_ptr().addr() - engine.shadow.0.words.as_ptr().addr()) / 4;
        assert!(here + words.len() <= engine.shadow.0.words.len(), "all words are the shadow's");
        engine.queue.push_back((put, at, here, words.len()));
        Ok(())
    }

    fn advance(&self, pieces: usize) {
        let engine = &mut *self.0.borrow_mut();
        let pieces = pieces.min(engine.queue.len());
        for (put, at, here, words) in engine.queue.drain(..pieces) {
            let here = &engine.shadow.0.words[here..here + words];
            for (peer, word) in engine.peer[at..at + words].iter_mut().zip(here) {
                match put {
                    true => *peer = word.load(Ordering::Relaxed),
                    false => word.store(*peer, Ordering::Relaxed),
                }
            }
        }
    }

    /// The peer takes a message of one word.
    fn receive(&self) -> Option<u32> {
        let peer = &mut self.0.borrow_mut().peer;
        if peer[0] == peer[16] {
            return None;
        }
        let slot = 64 + (peer[16] % 4) as usize * 4;
        peer[16] = peer[16].wrapping_add(1);
        assert_eq!(peer[slot], 4, "the length");
        Some(peer[slot + 1])
    }

    /// The peer sends a message of one word.
    fn send(&self, message: u32) -> bool {
        let peer = &mut self.0.borrow_mut().peer;
        if peer[0].wrapping_sub(peer[16]) == 4 {
            return false;
        }
        let slot = 64 + (peer[0] % 4) as usize * 4;
        (peer[slot], peer[slot + 1]) = (4, message);
        peer[0] = peer[0].wrapping_add(1);
        true
    }
}

impl Link for Dma {
    type Error = &'static str;

    fn put(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), &'static str> {
        self.begin(true, at, words)
    }

    fn get(&mut self, at: usize, words: &[AtomicU32]) -> Result<(), &'static str> {
        self.begin(false, at, words)
    }

    fn poll(&mut self) -> Result<bool, &'static str> {
        let pace = self.0.borrow().pace;
        self.advance(pace);
        Ok(self.0.borrow().queue.is_empty())
    }
}

/// Three looks: short of what a slow engine needs.
const BACKOFF: Backoff = Backoff { first: 1, max: 1, total: 2 };

/// An act may fail for reasons of the engine, and for no other.
fn passing<T>(result: Result<T, BridgeError<&'static str>>) -> Result<(), TestCaseError> {
    match result {
        Ok(_) | Err(BridgeError::Link(_) | BridgeError::Late) => Ok(()),
        Err(BridgeError::Ring(error)) => Err(TestCaseError::fail(error.to_string())),
    }
}

#[test]
fn a_shadow_that_is_too_small_is_refused() {
    let (_, dma) = Dma::new(9);
    let words = (1..shadow_words(SHAPE)).map(|_| AtomicU32::new(0)).collect();
    let small = Shared(Rc::new(Shadow { header: Header::new(), words }));
    let refused = Sender::create(small, SHAPE, dma, NoDelay, BACKOFF).err();
    assert!(matches!(refused, Some(BridgeError::Ring(RingError::BadLayout(_)))), "{refused:?}");
}

#[test]
fn an_engine_that_never_comes_back_is_late() {
    let (shadow, dma) = Dma::new(0);
    let refused = Receiver::create(shadow, SHAPE, dma.clone(), NoDelay, BACKOFF).err();
    assert_eq!(refused, Some(BridgeError::Late));
    dma.0.borrow_mut().fails = Some(0);
    let (shadow, _) = Dma::new(0);
    assert_eq!(
        Receiver::create(shadow, SHAPE, dma, NoDelay, BACKOFF).err(),
        Some(BridgeError::Link("the engine is busy"))
    );
}

#[test]
fn a_sender_waits_for_room_until_its_backoff_ends() {
    let (shadow, dma) = Dma::new(9);
    let (reads, received) = (Cell::new(false), RefCell::new(Vec::new()));
    let delay = |_| {
        if reads.get() {
            received.borrow_mut().extend(dma.receive());
        }
    };
    let backoff = Backoff { first: 1, max: 1, total: 8 };
    let mut sender = Sender::create(shadow, SHAPE, dma.clone(), delay, backoff).expect("the engine is quick");
    for message in 0..4u32 {
        sender.send(&message.to_ne_bytes()).expect("there are four slots");
    }
    assert_eq!(sender.refresh(), Ok(0));
    assert_eq!(sender.send(&[4; 4]), Err(RingError::Full.into()), "the peer reads nothing");
    reads.set(true);
    sender.send(&4u32.to_ne_bytes()).expect("the peer reads meanwhile");
    dma.advance(usize::MAX);
    received.borrow_mut().extend(std::iter::from_fn(|| dma.receive()));
    assert_eq!((received.take(), sender.refresh()), (vec![0, 1, 2, 3, 4], Ok(4)));
}

proptest! {
    #[test]
    fn what_is_sent_arrives_once_in_order(acts in prop::collection::vec((0..8u8, 0..4u8), 1..300)) {
        let (shadow, dma) = Dma::new(9);
        let mut sender = Sender::create(shadow, SHAPE, dma.clone(), NoDelay, BACKOFF).expect("the engine is quick");
        let (mut sent, mut received) = (0, 0);
        dma.0.borrow_mut().pace = 1;
        for (act, count) in acts {
            match act {
                0 | 1 => if sender.push(&u32::to_ne_bytes(sent)).is_ok() { sent += 1 },
                2 => passing(sender.flush())?,
                3 => passing(sender.refresh())?,
                4 => dma.advance(count.into()),
                5 => dma.0.borrow_mut().fails = Some(count.into()),
                _ => while let Some(message) = dma.receive() {
                    prop_assert_eq!(message, received);
                    received += 1;
                },
            }
        }
        dma.0.borrow_mut().fails = None;
        sender.flush().expect("the engine is well again");
        dma.advance(usize::MAX);
        while dma.receive() == Some(received) { received += 1; }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(sender.counted().messages, u64::from(sent));
    }

    #[test]
    fn what_the_peer_sends_arrives_once_in_order(acts in prop::collection::vec((0..8u8, 0..4u8), 1..300)) {
        let (shadow, dma) = Dma::new(9);
        let mut receiver = Receiver::create(shadow, SHAPE, dma.clone(), NoDelay, BACKOFF).expect("the engine is quick");
        let (mut sent, mut received, mut bytes) = (0, 0u32, [0; 4]);
        dma.0.borrow_mut().pace = 1;
        for (act, count) in acts {
            match act {
                0 | 1 => if dma.send(sent) { sent += 1 },
                2 => passing(receiver.acknowledge())?,
                3 | 4 => passing(receiver.refresh())?,
                5 => dma.advance(count.into()),
                6 => dma.0.borrow_mut().fails = Some(count.into()),
                _ => while receiver.pop(&mut bytes) == Ok(4) {
                    prop_assert_eq!(u32::from_ne_bytes(bytes), received);
                    received += 1;
                },
            }
        }
        (dma.0.borrow_mut().fails, dma.0.borrow_mut().pace) = (None, 9);
        while receiver.receive(&mut bytes) == Ok(4) {
            prop_assert_eq!(u32::from_ne_bytes(bytes), received);
            received += 1;
        }
        prop_assert_eq!(received, sent);
    }
}
