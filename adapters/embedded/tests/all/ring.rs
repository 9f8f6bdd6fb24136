//! A ring between two cores of a microcontroller, which wait for each other with a timer of `embedded-hal`.
#![cfg(feature = "embedded-hal")]

use embedded_hal::delay::DelayNs;
use terrace_core::ring::{Backoff, Consumer, Header, LentRing, Producer, RingError, RingLayout, create};
use terrace_core::sync::AtomicU32;

/// A timer that records each delay, and runs a step of the other core meanwhile.
struct Timer<'a> {
    asked: Vec<u32>,
    meanwhile: &'a mut dyn FnMut(usize),
}

impl DelayNs for Timer<'_> {
    fn delay_ns(&mut self, nanoseconds: u32) {
        self.asked.push(nanoseconds);
        (self.meanwhile)(self.asked.len());
    }
}

static HEADER: Header = Header::new();
static WORDS: [AtomicU32; 2 * 4] = [const { AtomicU32::new(0) }; 2 * 4];

#[test]
fn a_timer_of_embedded_hal_waits_for_room_and_for_messages() {
    let memory = LentRing { header: &HEADER, words: &WORDS };
    create(&memory, RingLayout::new(2, 16).expect("a layout")).expect("enough words");
    let mut producer = Producer::open(memory).expect("the first");
    let mut consumer = Consumer::open(memory).expect("the first");
    let backoff = Backoff { first: 100, max: 1_000, total: 5_000 };
    producer.push(b"one").expect("room");
    producer.push(b"two").expect("room");

    // The other core reads while the timer runs for the third time.
    let mut bytes = [0; 12];
    let mut read = |times| {
        if times == 3 {
            assert_eq!(consumer.pop(&mut bytes), Ok(3))
        }
    };
    let mut timer = Timer { asked: Vec::new(), meanwhile: &mut read };
    producer.send(b"three", backoff, &mut |ns| timer.delay_ns(ns)).expect("room after a while");
    assert_eq!(timer.asked, [100, 200, 400]);

    let mut timer = Timer { asked: Vec::new(), meanwhile: &mut |_| () };
    let sent = producer.send(b"four", backoff, &mut |ns| timer.delay_ns(ns));
    assert_eq!((sent, timer.asked.iter().sum()), (Err(RingError::Full), 5_000));

    for (expected, length) in [(&b"two"[..], 3), (&b"three"[..], 5)] {
        let received = consumer.receive(&mut bytes, backoff, &mut |ns| timer.delay_ns(ns));
        assert_eq!((received, &bytes[..length]), (Ok(length), expected));
    }
    let mut write = |times| {
        if times == 2 {
            producer.push(b"late").expect("room")
        }
    };
    let mut timer = Timer { asked: Vec::new(), meanwhile: &mut write };
    assert_eq!(consumer.receive(&mut bytes, backoff, &mut |ns| timer.delay_ns(ns)), Ok(4));
    assert_eq!(
        HEADER.telemetry.each_ref().map(|side| side.snapshot().map(|counted| counted.waits)),
        [Some(11), Some(2)]
    );
}
